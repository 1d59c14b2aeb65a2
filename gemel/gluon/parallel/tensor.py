"""Splitting the layers: every device has all examples, and a part of each weight.

The network runs on every device, over the same batch. A layer split by columns computes some units
on each device. A layer split by rows takes these as inputs and sums the results of the devices.
Such a pair needs one all-reduce forward and one backward. Shoeybi et al., Megatron-LM: training
multi-billion parameter language models using model parallelism, 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import _core, autograd, np, npx
from gemel import init as initializers
from gemel.errors import AxisError, ShapeError
from gemel.gluon.block import Tensor
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.nn import Dense
from gemel.gluon.parallel.split import (
    Split,
    SplitError,
    apart,
    as_array,
    as_batch,
    loss_of,
    together,
)
from gemel.gluon.parameter import Parameter
from gemel.gluon.places import places
from gemel.gluon.utils import split_data
from gemel.gluon.variable import Aside
from gemel.ir.current import current_trace
from gemel.ops.meeting import Group, all_reduce

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gemel.device import Device
    from gemel.gluon.block import Block
    from gemel.np import ndarray


class CutParameter(Parameter):
    """A parameter split into equal parts along `axis`, one for each device.

    `shape`, initial values, files and the argument of `set_data` are those of the whole parameter;
    `data()` is the part on the current device. Raises `ShapeError` if the axis does not divide
    evenly, and `AxisError` if there is no such axis.
    """

    def __init__(self, axis: int, name: str = "", **settings: Any) -> None:
        super().__init__(name, **settings)
        self.cut_axis = axis

    @classmethod
    def like(cls, other: Parameter, axis: int) -> CutParameter:
        """Create one with the settings of another parameter."""
        return cls(
            axis,
            other.name,
            grad_req=other.grad_req,
            shape=other.shape,
            dtype=other.dtype,
            init=other.init,
        )

    def _check_divides(self, shape: tuple[int, ...], devices: list[Device]) -> None:
        """Raise unless a parameter of this shape divides into equal parts for these devices."""
        axis: Any = self.cut_axis
        if not hasattr(axis, "__index__") or not -len(shape) <= axis < len(shape):
            raise AxisError(
                f"parameter {self.name}: there is no axis {axis!r} of {shape} to split it along"
            )
        if shape[axis] % len(devices):
            raise ShapeError(
                f"parameter {self.name}: axis {axis} of {shape} does not divide into "
                f"{len(devices)} equal parts for {', '.join(map(str, devices))}; choose another "
                "number of units or of devices"
            )

    def _cut(self, whole: ndarray, devices: list[Device]) -> tuple[ndarray, ...]:
        """The part of each device."""
        self._check_divides(tuple(whole.shape), devices)
        parts = split_data(whole, len(devices), self.cut_axis or 0)
        return tuple([part.copyto(device) for part, device in zip(parts, devices, strict=True)])

    def _make(self) -> tuple[ndarray, ...]:
        assert self._waiting is not None
        initializer, devices = self._waiting
        if len(devices) == 1:
            return super()._make()
        with Aside():
            whole = np.zeros(self._shape, self._dtype, device=devices[0])
            with np.random.initialization(), devices[0]:
                initializer(initializers.InitDesc(self.name, {"__init__": initializer}), whole)
            arrays = self._cut(whole, devices)
        self._waiting = None
        self._adopt(arrays)
        return arrays

    def gathered(self) -> ndarray:
        """The whole array, on the first device."""
        first, *others = self.arrays()
        if not others:
            return first
        with Aside():
            parts = [first, *(other.as_in_ctx(first.device) for other in others)]
            whole: ndarray = np.concatenate(parts, axis=self.cut_axis)
            return whole

    def set_data(self, data: Any) -> None:
        """Write the whole array: each device gets its part."""
        if current_trace() is not None or len(self.homes) < 2:
            super().set_data(data)
            return
        whole = data if hasattr(data, "as_in_ctx") else np.array(data, dtype=self._dtype)
        self.shape = tuple(whole.shape)
        arrays = self.arrays()
        with Aside():
            parts = split_data(whole, len(arrays), self.cut_axis or 0)
            for array, part in zip(arrays, parts, strict=True):
                array[...] = part

    def reset_device(self, device: Any = None, ctx: Any = None) -> None:
        """Move the parameter to another device, or its parts to several."""
        devices = places(device, ctx)
        if self._waiting is not None:
            self._waiting = (self._waiting[0], devices)
        if self._arrays and self.homes != devices:
            whole = self.gathered()
            with Aside():
                arrays = self._cut(whole, devices)
            self._adopt(arrays)


class ColumnDense(Dense):
    """A `Dense` layer whose units are split over the devices: each has some rows of `weight` and
    `bias`.

    The input is the same on all devices; each device gets its part of the result, (batch, units /
    devices). Elementwise layers may follow, then a `RowDense`. On one device it is a `Dense`.
    """

    def __init__(self, units: int, activation: str | None = None, **settings: Any) -> None:
        super().__init__(units, activation, **settings)
        self.weight = CutParameter.like(self.weight, 0)
        if self.bias is not None:
            self.bias = CutParameter.like(self.bias, 0)


class RowDense(Dense):
    """A `Dense` layer whose inputs are split over the devices: each has some columns of `weight`.

    The input is the result of a `ColumnDense`; every device gets all units. One all-reduce sums the
    devices' products, then the bias is added. On one device it is a `Dense`.
    """

    def __init__(self, units: int, activation: str | None = None, **settings: Any) -> None:
        super().__init__(units, activation, **settings)
        self.weight = CutParameter.like(self.weight, 1)

    def infer_shape(self, x: Tensor) -> None:
        """The weight has as many columns as the examples of all devices have values."""
        super().infer_shape(x)
        trace = current_trace()
        shapes_only = trace is not None and trace.shapes_only
        if not shapes_only and self.weight.shape is not None:
            units, columns = self.weight.shape
            self.weight._shape = (units, columns * len(self.weight.homes))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, part of in_units) -> (batch, units), the same on every device."""
        devices = tuple(self.weight.homes)
        if len(devices) == 1:
            return super().forward(x)
        if self._own.group is None or self._own.group.devices != devices:
            self._own.group = Group(devices, f"RowDense {self.name}")
        y = npx.fully_connected(x, self.weight.data(), None, flatten=self._flatten)
        y = all_reduce(y, group=self._own.group)
        if self.bias is not None:
            y = y + self.bias.data()
        return y if self.act is None else self.act(y)


class SelfAttention(HybridBlock):
    """Self-attention with heads split over the devices: (batch, time, width) -> (batch, time,
    units).

    The projections of queries, keys and values are split by columns, so each device has whole
    heads; the output projection is split by rows, with one all-reduce. Raises `SplitError` when
    `units` does not divide by `heads`, or `heads` by the number of devices. Vaswani et al.,
    Attention is all you need, NeurIPS 2017.
    """

    def __init__(
        self, units: int, heads: int, causal: bool = False, use_bias: bool = True, **settings: Any
    ) -> None:
        super().__init__(**settings)
        whole = all(hasattr(number, "__index__") for number in (units, heads))
        if not whole or heads < 1 or units % heads:
            raise SplitError(f"SelfAttention: {units!r} units do not divide into {heads!r} heads")
        self._heads, self._size, self._causal = heads, units // heads, causal
        dense: dict[str, Any] = {"flatten": False, "use_bias": use_bias}
        with self.name_scope():
            self.query = ColumnDense(units, prefix="query_", **dense)
            self.key = ColumnDense(units, prefix="key_", **dense)
            self.value = ColumnDense(units, prefix="value_", **dense)
            self.output = RowDense(units, prefix="output_", **dense)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) -> (batch, time, units), the same on every device."""
        if x.ndim != 3:
            raise ShapeError(
                f"SelfAttention: {list(x.shape)} has {x.ndim} axes; give (batch, time, width)"
            )
        count = max(len(self.query.weight.homes), 1)
        if self._heads % count:
            raise SplitError(
                f"SelfAttention: {self._heads} heads do not divide among {count} devices; each "
                "device needs whole heads"
            )
        batch, time = x.shape[0], x.shape[1]
        heads = [
            part(x).reshape(batch, time, self._heads // count, self._size).swapaxes(1, 2)
            for part in (self.query, self.key, self.value)
        ]
        queries, keys, values = heads
        seen = npx.attention(queries, keys, values, causal=self._causal).swapaxes(1, 2)
        return self.output(seen.reshape(batch, time, self._heads // count * self._size))


class TensorParallel(Split):
    """Every device runs the network on the whole batch, with its parts of the split layers.

    Other layers are replicated: all devices compute the same, also for `BatchNorm` and for
    `Dropout`, whose masks are the same everywhere (between `ColumnDense` and `RowDense`, each
    device drops the same positions of its own part). The loss is divided by the number of devices,
    so a device's gradient of a replicated parameter is its share; `Trainer` sums the shares.
    """

    def __init__(self, net: Block, devices: Sequence[Device]) -> None:
        super().__init__(net, devices)
        self._place()

    def _place(self) -> None:
        parameters = [parameter for _, parameter in self.net.collect_params().distinct()]
        if len(self.devices) > 1 and not any(isinstance(p, CutParameter) for p in parameters):
            raise SplitError(
                "TensorParallel: no layer of this network is split, so every device would compute "
                "all of it; use ColumnDense and RowDense for its large layers, or DataParallel"
            )
        for parameter in parameters:  # all, before one is moved
            if isinstance(parameter, CutParameter) and parameter.is_shape_known:
                parameter._check_divides(tuple(parameter.shape or ()), self.devices)
        super()._place()

    def _everywhere(self, run: Callable[[Device], Any]) -> list[Any]:
        """Run this on each device, with the same random numbers; returns the results."""
        state = _core.random_state()
        found = []
        for device in self.devices:
            _core.set_random_state(*state)
            found.append(run(device))
        return found

    def __call__(self, x: Any) -> ndarray:
        """The network's results, on the first device."""
        x = as_array(x)
        with together(self.net):
            found: ndarray = self._everywhere(lambda device: self.net(x.as_in_ctx(device)))[0]
        return found

    def backward(self, x: Any, y: Any, loss: Callable[..., Any]) -> ndarray:
        """Compute each device's share of the gradients; returns the losses on the first device. See
        `Split.backward`."""
        x, y = as_batch(type(self).__name__, x, y)
        places = [(x.as_in_ctx(device), y.as_in_ctx(device)) for device in self.devices]
        parts = dict(zip(self.devices, places, strict=True))

        def run(device: Device) -> Any:
            a, b = parts[device]
            return loss_of(loss, self.net(a), b)

        with together(self.net):
            with autograd.record():
                losses = self._everywhere(run)
            for one in losses:
                one.backward(np.full_like(one, 1 / len(losses)))
        found: ndarray = apart(losses[:1], self.devices[0])
        return found


__all__ = ["ColumnDense", "CutParameter", "RowDense", "SelfAttention", "TensorParallel"]
