"""Convolutions over one to three spatial axes, and their transposes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gemel import npx
from gemel.errors import ArgumentError, ShapeError
from gemel.gluon.block import Tensor
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.inputs import of_array, of_input
from gemel.gluon.nn.activations import Activation
from gemel.ops.convolution import per_axis
from gemel.ops.layouts import LAYOUTS, is_channels_last
from gemel.ranges import counted

if TYPE_CHECKING:
    from gemel.gluon.parameter import Parameter


#: The spatial axes in error messages.
SPACE = ("depth", "height", "width")


def check_groups(name: str, counts: dict[str, int], groups: int) -> None:
    """Raises `ArgumentError` unless `groups` divides each of the counts."""
    for what, count in counts.items():
        if count % groups:
            raise ArgumentError(f"{name}: {what}={count} is not divisible by groups={groups}")


class _Convolution(HybridBlock):
    """What convolutions share: weight, bias, and how the kernel moves.

    Raises `ArgumentError` unless the channels are whole numbers that `groups` divides, and
    `ShapeError` for kernels, strides or dilations below 1 and padding below 0.
    """

    _axes: ClassVar[int]
    _transposed: ClassVar[bool] = False

    def __init__(
        self,
        channels: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        layout: str | None = None,
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        name = type(self).__name__
        layout = layout or LAYOUTS[self._axes - 1][0]
        self._last = is_channels_last(name, layout, self._axes)
        self._channels = channels = counted(name, "channels", channels)
        groups = counted(name, "groups", groups)
        check_groups(name, {"channels": channels, "in_channels": max(in_channels, 0)}, groups)
        self._kwargs: dict[str, Any] = {
            "kernel": per_axis(name, "kernel_size", kernel_size, self._axes, 1),
            "stride": per_axis(name, "strides", strides, self._axes, 1),
            "dilate": per_axis(name, "dilation", dilation, self._axes, 1),
            "pad": per_axis(name, "padding", padding, self._axes, 0),
            "num_filter": channels,
            "num_group": groups,
            "no_bias": not use_bias,
            "layout": layout,
        }
        if self._transposed:
            self._kwargs["adj"] = per_axis(name, "output_padding", output_padding, self._axes, 0)
        self.weight: Parameter = self.params.get(
            "weight", shape=self._weight_shape(in_channels), init=weight_initializer
        )
        self.bias: Parameter | None = None
        if use_bias:
            self.bias = self.params.get("bias", shape=(channels,), init=bias_initializer)
        self.act: Activation | None = None
        if activation is not None:
            with self.name_scope():
                self.act = Activation(activation, prefix=f"{activation}_")

    def _alias(self) -> str:
        return "conv"

    def _weight_shape(self, inputs: int) -> tuple[int, ...]:
        kernel, groups = self._kwargs["kernel"], self._kwargs["num_group"]
        lead, other = self._channels, inputs // groups
        if self._transposed:
            lead, other = inputs, self._channels // groups
        return (lead, *kernel, other) if self._last else (lead, other, *kernel)

    @of_input
    def infer_shape(self, x: Tensor) -> None:
        """The weight has a kernel for each channel of the input."""
        if len(x.shape) != self._axes + 2:
            raise ShapeError(f"{type(self).__name__}: the input has shape {list(x.shape)}")
        self.weight.shape = self._weight_shape(int(x.shape[-1 if self._last else 1]))

    def _takes(self) -> str:
        space = SPACE[3 - self._axes :]
        found = self._inputs()
        channels = "channels" if found < 0 else str(found)
        axes = (*space, channels) if self._last else (channels, *space)
        return f"(batch, {', '.join(axes)})"

    def _inputs(self) -> int:
        """The number of input channels; -1 while it is not known."""
        shape = self.weight.shape or (-1, -1)
        axis = 0 if self._transposed else -1 if self._last else 1
        return max(shape[axis] * (1 if self._transposed else self._kwargs["num_group"]), -1)

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """(batch, in_channels, *space) -> (batch, channels, *places)."""
        bias = None if self.bias is None else self.bias.data()
        function = npx.deconvolution if self._transposed else npx.convolution
        y = function(x, self.weight.data(), bias, **self._kwargs)
        return y if self.act is None else self.act(y)

    def __repr__(self) -> str:
        how = self._kwargs
        said = [f"kernel_size={how['kernel']}", f"stride={how['stride']}"]
        names = {"pad": "padding", "dilate": "dilation", "adj": "output_padding"}
        for key, name in names.items():
            usual = 1 if key == "dilate" else 0
            if any(n != usual for n in how.get(key, ())):
                said.append(f"{name}={how[key]}")
        said += [f"groups={how['num_group']}"] if how["num_group"] != 1 else []
        said += ["bias=False"] if self.bias is None else []
        said += [repr(self.act)] if self.act is not None else []
        return f"{type(self).__name__}({self._inputs()} -> {self._channels}, {', '.join(said)})"


class _Forward(_Convolution):
    """The usual convolution: `channels` filters of `kernel_size`.

    `weight` is (channels, in_channels / groups, *kernel_size), `bias` (channels,). With
    `in_channels` 0, the first input determines it.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        layout: str | None = None,
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(
            channels,
            kernel_size,
            strides,
            padding,
            0,
            dilation,
            groups,
            layout,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            in_channels,
            **settings,
        )


class Conv1D(_Forward):
    """Convolution over one axis: (batch, in_channels, width) -> (batch, channels, places)."""

    _axes = 1


class Conv2D(_Forward):
    """Convolution over images: (batch, in_channels, height, width) -> (batch, channels, ...)."""

    _axes = 2


class Conv3D(_Forward):
    """Convolution over volumes: (batch, in_channels, depth, height, width) -> (batch, ...)."""

    _axes = 3


class Conv1DTranspose(_Convolution):
    """The transpose of `Conv1D`; `weight` is (in_channels, channels / groups, kernel_size)."""

    _axes, _transposed = 1, True


class Conv2DTranspose(_Convolution):
    """The transpose of `Conv2D`; `weight` is (in_channels, channels / groups, *kernel_size)."""

    _axes, _transposed = 2, True


class Conv3DTranspose(_Convolution):
    """The transpose of `Conv3D`; `weight` is (in_channels, channels / groups, *kernel_size)."""

    _axes, _transposed = 3, True


__all__ = ["Conv1D", "Conv1DTranspose", "Conv2D", "Conv2DTranspose", "Conv3D", "Conv3DTranspose"]
