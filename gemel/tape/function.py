"""`autograd.Function`: a differentiable operation that a user writes in Python."""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel.errors import (
    GemelError,
    GradientError,
    OperandError,
    PythonGivenError,
    ShapeError,
    name_call,
)
from gemel.ir.above import above
from gemel.ir.current import current_trace
from gemel.ir.interpret import spec_of
from gemel.spec import Spec
from gemel.tape.recording import Leaf, recording, source_of, tracked


class Function:
    """Base class of custom differentiable functions: define `forward(self, *arrays)` and
    `backward(self, *gradients)`.

    Calling an instance runs `forward` at once, unrecorded. It may contain any Python, and the call
    raises its exceptions. `backward` gets one gradient per result (zeros if none arrived) and
    returns one per argument (None if there is none). It runs inside `backward()` or `grad()`, which
    raise its exceptions before any gradient has changed. An instance holds what one call saved, so
    create a new one for every call.
    """

    _saved: tuple[Any, ...] = ()
    _used = False

    def forward(self, *arrays: Any) -> Any:
        """Compute the result, or a tuple of results."""
        raise NotImplementedError(f"{type(self).__name__} needs a method forward")

    def backward(self, *gradients: Any) -> Any:
        """Compute the gradient of each argument from those of the results."""
        raise NotImplementedError(f"{type(self).__name__} needs a method backward")

    def save_for_backward(self, *arrays: Any) -> None:
        """Save arrays for `backward`, which reads them from `saved_tensors`."""
        self._saved = arrays

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The arrays given to `save_for_backward`."""
        return self._saved

    def __call__(self, *inputs: Any) -> Any:
        """The results of `forward`, on the tape when recording; NDArrays for NDArrays."""
        name = type(self).__name__
        if current_trace() is not None:
            raise PythonGivenError(
                f"{name} runs Python code, which a hybridized function cannot contain; call it "
                "outside, or write it with gemel's operations"
            )
        recorded = _core.recording() and tracked(*inputs)
        if recorded and self._used:
            raise GradientError(f"{name}: this instance has already been called; create a new one")
        found = recording(False, self.forward, *inputs)
        single = not isinstance(found, (tuple, list))
        outputs = (found,) if single else tuple(found)
        for output in outputs:
            if not isinstance(output, _core.Array):
                kind = type(output).__name__
                raise OperandError(f"{name}.forward must return arrays; it returned a {kind}")
        if recorded:
            self._used = True
            outputs = self._record(inputs, outputs)
        outputs = _like(inputs, outputs)
        return outputs[0] if single else outputs

    def _record(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        # New array objects over the same memory: a result may be an argument, or held elsewhere.
        fresh = tuple(output._detached() for output in outputs)
        call = FunctionCall(self, inputs, fresh)
        for index, output in enumerate(fresh):
            if output.dtype.is_inexact:
                output._track((call, index))
        return fresh


class Transfer(Function):
    """A copy to another device; gradients are sent back."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def forward(self, x: Any) -> Any:
        """A copy on the device."""
        self.origin = x.device
        return x.copyto(self.device)

    def backward(self, g: Any) -> Any:
        """The gradient on the original device."""
        return g.to_device(self.origin)


class FunctionCall:
    """A recorded call of a `Function`."""

    __slots__ = (
        "devices",
        "freed",
        "function",
        "inputs",
        "is_nd",
        "outputs",
        "sources",
        "storages",
        "variables",
    )

    reached = None  # gradients pass from all outputs to all inputs

    def __init__(
        self, function: Function, inputs: tuple[Any, ...], outputs: tuple[Any, ...]
    ) -> None:
        self.sources = tuple(source_of(value) for value in inputs)
        self.is_nd = _are_nd(inputs)
        self.function = function
        self.inputs = tuple(_spec(value) for value in inputs)
        self.outputs = tuple(spec_of(value) for value in outputs)
        self.devices = tuple(value.device for value in outputs)
        self.storages = [value._storage for value in outputs]
        self.variables: dict[int, Leaf] = {}
        self.freed = False

    def backward(self, gradients: tuple[Any, ...], create_graph: bool) -> tuple[Any, ...]:
        """The gradients of the arguments. Raises `GradientError` or `ShapeError`."""
        name = type(self.function).__name__
        if create_graph:
            saved = self.function.saved_tensors
            self.function.save_for_backward(*map(self._connected, saved))
        given = [each.as_nd_ndarray() for each in gradients] if self.is_nd else gradients
        found = recording(create_graph, self.function.backward, *given)
        results = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(results) != len(self.inputs):
            raise GradientError(
                f"{name}.backward returned {len(results)} gradients for {len(self.inputs)} "
                "arguments; return None for those without one"
            )
        checked: list[Any] = []
        for result, spec, source in zip(results, self.inputs, self.sources, strict=True):
            if result is None or spec is None or source is None:
                checked.append(None)
                continue
            try:
                array = above.as_array(result)
            except GemelError as error:
                name_call(error, f"{name}.backward")
                raise
            if tuple(getattr(array, "shape", ())) != tuple(spec.shape):
                raise ShapeError(
                    f"{name}.backward returned {spec_of(array)} as the gradient of {spec}; it "
                    "must have the same shape"
                )
            checked.append(array.astype(spec.dtype, copy=False))
        return tuple(checked)

    def _connected(self, saved: Any) -> Any:
        """A saved array; if it is a result of the function, connected to the tape again."""
        if saved._storage not in self.storages or tracked(saved):
            return saved
        index = self.storages.index(saved._storage)
        found = saved._detached()
        if found.dtype.is_inexact and tuple(found.shape) == tuple(self.outputs[index].shape):
            found._track((self, index))
        return found

    def free(self) -> None:
        """Release what the function saved and the calls before it."""
        self.freed = True
        self.sources = ()
        self.function.save_for_backward()


def _are_nd(inputs: tuple[Any, ...]) -> bool:
    """Whether the first array among them is an NDArray."""
    arrays: list[Any] = [each for each in inputs if isinstance(each, _core.Array)]
    return bool(arrays) and arrays[0]._is_nd


def _like(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The outputs as NDArrays if the inputs are."""
    return tuple(each.as_nd_ndarray() for each in outputs) if _are_nd(inputs) else outputs


def _spec(value: Any) -> Spec | None:
    return spec_of(value) if isinstance(value, _core.Array) else None


__all__ = ["Function", "FunctionCall", "Transfer"]
