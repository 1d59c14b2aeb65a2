"""Recurrent cells whose inputs and states are images: convolutions instead of products."""

from __future__ import annotations

from typing import Any, ClassVar

from gemel import npx
from gemel.errors import ShapeError
from gemel.gluon.block import Tensor
from gemel.gluon.nn.activations import activation_named
from gemel.gluon.rnn.cells import GatedCell, GRUCell, HybridRecurrentCell, LSTMCell, RNNCell
from gemel.ops.convolution import per_axis
from gemel.ops.layouts import LAYOUTS, is_channels_last
from gemel.ranges import counted


class _Convolutional(GatedCell):
    """A cell over pictures of `input_shape`: channels and space, in the order of `conv_layout`.

    `i2h_weight` (gates * hidden_channels, channels, *i2h_kernel) is moved over the input, padded by
    `i2h_pad`, and `h2h_weight`, whose kernel is odd, over h, padded so that it keeps its size.
    Shi et al., Convolutional LSTM network, NeurIPS 2015.
    """

    _axes: ClassVar[int]

    def __init__(
        self,
        input_shape: tuple[int, ...],
        hidden_channels: int,
        i2h_kernel: Any,
        h2h_kernel: Any,
        i2h_pad: Any = 0,
        i2h_dilate: Any = 1,
        h2h_dilate: Any = 1,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        conv_layout: str | None = None,
        activation: str = "tanh",
        **settings: Any,
    ) -> None:
        HybridRecurrentCell.__init__(self, **settings)
        name, axes = type(self).__name__, self._axes
        self._layout = conv_layout or LAYOUTS[axes - 1][0]
        self._last = is_channels_last(name, self._layout, axes)
        if len(input_shape) != axes + 1:
            raise ShapeError(f"{name}: input_shape {tuple(input_shape)} must have {axes + 1} axes")
        self._hidden_size = counted(name, "hidden_channels", hidden_channels)
        self._activation, self._recurrent_activation = activation_named(activation), "sigmoid"
        kernels = [per_axis(name, "kernel", k, axes, 1) for k in (i2h_kernel, h2h_kernel)]
        dilate = [per_axis(name, "dilate", d, axes, 1) for d in (i2h_dilate, h2h_dilate)]
        if any(k % 2 == 0 for k in kernels[1]):
            raise ShapeError(
                f"{name}: h2h_kernel {kernels[1]} must be odd, so that h keeps its size"
            )
        same = tuple(d * (k - 1) // 2 for k, d in zip(kernels[1], dilate[1], strict=True))
        pads = [per_axis(name, "i2h_pad", i2h_pad, axes, 0), same]
        rows = self._gates * self._hidden_size
        self._moved: list[dict[str, Any]] = [
            {"kernel": k, "pad": p, "dilate": d, "num_filter": rows, "layout": self._layout}
            for k, p, d in zip(kernels, pads, dilate, strict=True)
        ]
        channels, *space = channels_before(input_shape, self._last)
        steps = zip(space, kernels[0], pads[0], dilate[0], strict=True)
        self._space = [n + 2 * p - d * (k - 1) for n, k, p, d in steps]
        get, shape = self.params.get, self._ordered
        i2h, h2h = shape(rows, channels, kernels[0]), shape(rows, hidden_channels, kernels[1])
        self.i2h_weight = get("i2h_weight", shape=i2h, init=i2h_weight_initializer)
        self.h2h_weight = get("h2h_weight", shape=h2h, init=h2h_weight_initializer)
        self.i2h_bias = get("i2h_bias", shape=(rows,), init=i2h_bias_initializer)
        self.h2h_bias = get("h2h_bias", shape=(rows,), init=h2h_bias_initializer)

    def _alias(self) -> str:
        return "conv_" + super()._alias().partition("d")[2]

    def _ordered(self, lead: int, channels: int, space: Any) -> tuple[int, ...]:
        """A shape with the channels at the position of the layout."""
        return (lead, *space, channels) if self._last else (lead, channels, *space)

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """The same for h and for c: (batch, hidden_channels, *space) in the layout's order."""
        shape = self._ordered(batch_size, self._hidden_size, self._space)
        return [{"shape": shape, "__layout__": self._layout} for _ in range(self._states)]

    def infer_shape(self, x: Tensor, *others: Any) -> None:
        """Do nothing: `input_shape` determines all shapes."""

    def _added(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        ours = (self.i2h_weight, self.i2h_bias), (self.h2h_weight, self.h2h_bias)
        given = zip((x, h), ours, self._moved, strict=True)
        a, b = (npx.convolution(v, w.data(), c.data(), **how) for v, (w, c), how in given)
        return a, b

    def _gate(self, gates: Tensor, number: int) -> Tensor:
        part = slice(number * self._hidden_size, (number + 1) * self._hidden_size)
        return gates[..., part] if self._last else gates[:, part]

    def __repr__(self) -> str:
        inputs = (self.i2h_weight.shape or ())[-1 if self._last else 1]
        rows = self._gates * self._hidden_size
        said = f"{inputs} -> {rows}, {self._activation}, {self._layout}"
        return f"{type(self).__name__}({said})"


def channels_before(shape: tuple[int, ...], last: bool) -> tuple[int, ...]:
    """The shape of an image with the channels before the spatial axes."""
    return (shape[-1], *shape[:-1]) if last else tuple(shape)


class Conv1DRNNCell(_Convolutional, RNNCell):
    """h = activation(x * i2h + h * h2h + biases), * a convolution; over 1 axis of space."""

    _axes = 1


class Conv1DLSTMCell(_Convolutional, LSTMCell):
    """A convolutional LSTM; gates as in `LSTMCell`; over 1 axis of space."""

    _axes = 1


class Conv1DGRUCell(_Convolutional, GRUCell):
    """A convolutional GRU; gates as in `GRUCell`; over 1 axis of space."""

    _axes = 1


class Conv2DRNNCell(_Convolutional, RNNCell):
    """h = activation(x * i2h + h * h2h + biases), * a convolution; over 2 axes of space."""

    _axes = 2


class Conv2DLSTMCell(_Convolutional, LSTMCell):
    """A convolutional LSTM; gates as in `LSTMCell`; over 2 axes of space."""

    _axes = 2


class Conv2DGRUCell(_Convolutional, GRUCell):
    """A convolutional GRU; gates as in `GRUCell`; over 2 axes of space."""

    _axes = 2


class Conv3DRNNCell(_Convolutional, RNNCell):
    """h = activation(x * i2h + h * h2h + biases), * a convolution; over 3 axes of space."""

    _axes = 3


class Conv3DLSTMCell(_Convolutional, LSTMCell):
    """A convolutional LSTM; gates as in `LSTMCell`; over 3 axes of space."""

    _axes = 3


class Conv3DGRUCell(_Convolutional, GRUCell):
    """A convolutional GRU; gates as in `GRUCell`; over 3 axes of space."""

    _axes = 3


__all__ = [
    "Conv1DGRUCell",
    "Conv1DLSTMCell",
    "Conv1DRNNCell",
    "Conv2DGRUCell",
    "Conv2DLSTMCell",
    "Conv2DRNNCell",
    "Conv3DGRUCell",
    "Conv3DLSTMCell",
    "Conv3DRNNCell",
]
