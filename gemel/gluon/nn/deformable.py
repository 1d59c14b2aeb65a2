"""Convolutions that read shifted pixels; a second convolution computes the shifts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gemel import npx
from gemel.errors import ShapeError
from gemel.gluon.block import Tensor
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.inputs import of_array, of_input
from gemel.gluon.nn.activations import Activation
from gemel.gluon.nn.convolution import check_groups
from gemel.ops.convolution import per_axis
from gemel.ranges import counted
from gemel.spec import product

if TYPE_CHECKING:
    from gemel.gluon.parameter import Parameter


class DeformableConvolution(HybridBlock):
    """`channels` filters of `kernel_size` over images (N, in_channels, height, width); each point
    of the kernel reads at a position that a second convolution shifts.

    Parameters: `deformable_conv_weight` (channels, in_channels / groups, *kernel_size) and
    `deformable_conv_bias` (channels,); `offset_weight` and `offset_bias`, initially zeros, for two
    numbers for each point and each of `num_deformable_group` groups of channels. With `in_channels`
    0, the first input determines it. See `npx.deformable_convolution`.
    """

    #: Numbers for each point of the kernel: the shifts down and to the right.
    _per_point: ClassVar[int] = 2

    def __init__(
        self,
        channels: int,
        kernel_size: Any = (1, 1),
        strides: Any = (1, 1),
        padding: Any = (0, 0),
        dilation: Any = (1, 1),
        groups: int = 1,
        num_deformable_group: int = 1,
        layout: str = "NCHW",
        use_bias: bool = True,
        in_channels: int = 0,
        activation: str | None = None,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        offset_weight_initializer: Any = "zeros",
        offset_bias_initializer: Any = "zeros",
        offset_use_bias: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        name = type(self).__name__
        if layout != "NCHW":
            raise ShapeError(f"{name}: layout {layout!r} must be 'NCHW'; transpose the images")
        self._channels = channels = counted(name, "channels", channels)
        self._groups = groups = counted(name, "groups", groups)
        self._shifts = counted(name, "num_deformable_group", num_deformable_group)
        check_groups(name, {"channels": channels, "in_channels": max(in_channels, 0)}, groups)
        self._moves: dict[str, Any] = {
            "kernel": per_axis(name, "kernel_size", kernel_size, 2, 1),
            "stride": per_axis(name, "strides", strides, 2, 1),
            "dilate": per_axis(name, "dilation", dilation, 2, 1),
            "pad": per_axis(name, "padding", padding, 2, 0),
        }
        self._offsets = self._per_point * num_deformable_group * product(self._moves["kernel"])
        weight, offset = self._weight_shapes(in_channels)
        self.offset_weight: Parameter = self.params.get(
            "offset_weight", shape=offset, init=offset_weight_initializer
        )
        self.offset_bias: Parameter | None = None
        if offset_use_bias:
            self.offset_bias = self.params.get(
                "offset_bias", shape=(self._offsets,), init=offset_bias_initializer
            )
        self.deformable_conv_weight: Parameter = self.params.get(
            "deformable_conv_weight", shape=weight, init=weight_initializer
        )
        self.deformable_conv_bias: Parameter | None = None
        if use_bias:
            self.deformable_conv_bias = self.params.get(
                "deformable_conv_bias", shape=(channels,), init=bias_initializer
            )
        self.act = None if activation is None else Activation(activation)

    def _weight_shapes(self, inputs: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        kernel = self._moves["kernel"]
        return (self._channels, inputs // self._groups, *kernel), (self._offsets, inputs, *kernel)

    @of_input
    def infer_shape(self, x: Tensor) -> None:
        """The weights have a kernel for each channel of the input."""
        if len(x.shape) != 4:
            raise ShapeError(f"{type(self).__name__}: the input has shape {list(x.shape)}")
        shapes = self._weight_shapes(int(x.shape[1]))
        self.deformable_conv_weight.shape, self.offset_weight.shape = shapes

    def _predicted(self, x: Tensor) -> Tensor:
        """The result of the second convolution for each position."""
        bias = None if self.offset_bias is None else self.offset_bias.data()
        return npx.convolution(
            x,
            self.offset_weight.data(),
            bias,
            num_filter=self._offsets,
            no_bias=bias is None,
            **self._moves,
        )

    def _settings(self) -> dict[str, Any]:
        return {
            **self._moves,
            "num_filter": self._channels,
            "num_group": self._groups,
            "num_deformable_group": self._shifts,
        }

    def _read(self, x: Tensor, bias: Any) -> Tensor:
        weight = self.deformable_conv_weight.data()
        return npx.deformable_convolution(x, self._predicted(x), weight, bias, **self._settings())

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """(batch, in_channels, height, width) -> (batch, channels, *places)."""
        bias = None if self.deformable_conv_bias is None else self.deformable_conv_bias.data()
        y = self._read(x, bias)
        return y if self.act is None else self.act(y)

    def __repr__(self) -> str:
        inputs = self.offset_weight.shape[1] if self.offset_weight.shape else 0
        moves = ", ".join(f"{name}={each}" for name, each in self._moves.items())
        return f"{type(self).__name__}({inputs or -1} -> {self._channels}, {moves})"


class ModulatedDeformableConvolution(DeformableConvolution):
    """`DeformableConvolution` whose second convolution also computes a weight for each point.

    The weight is between 0 and 2, initially 1. See `npx.modulated_deformable_convolution`.
    """

    _per_point = 3

    def _read(self, x: Tensor, bias: Any) -> Tensor:
        predicted, shifts = self._predicted(x), self._offsets // 3 * 2
        return npx.modulated_deformable_convolution(
            x,
            predicted[:, :shifts],
            npx.sigmoid(predicted[:, shifts:]) * 2,
            self.deformable_conv_weight.data(),
            bias,
            **self._settings(),
        )


__all__ = ["DeformableConvolution", "ModulatedDeformableConvolution"]
