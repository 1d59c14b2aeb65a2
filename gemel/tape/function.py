"""`autograd.Function`: a differentiable operation that a user writes in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gemel import _core
from gemel.errors import (
    GemelError,
    GradientError,
    OperandError,
    ShapeError,
    name_call,
)
from gemel.extent import NUMBER
from gemel.ir.above import above
from gemel.ir.current import recording_trace
from gemel.ir.graph import Entry
from gemel.ir.interpret import spec_of
from gemel.ops.elementwise import copy, full
from gemel.spec import Spec
from gemel.tape.recording import Leaf, recording, region_of, source_of, tracked
from gemel.tape.traced import in_trace


class Function:
    """Base class of custom differentiable functions: define `forward(self, *arrays)` and
    `backward(self, *gradients)`.

    Calling an instance runs `forward` at once, unrecorded. It may contain any Python, and the call
    raises its exceptions. `backward` gets one gradient per result (zeros if none arrived) and
    returns one per argument (None if there is none). It runs inside `backward()` or `grad()`, which
    raise its exceptions before any gradient has changed. An instance holds what one call saved, so
    create a new one for every call.

    In a hybridized function both are traced where it is called, `backward` only if calls are
    recorded: what they compute becomes a part of the program. Raises `PythonGivenError` there if
    one of them needs the values of arrays, as `x.asnumpy()` and `if x > 0` do. A hybridized block
    is then compiled in parts.
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
        """The arrays given to `save_for_backward`. Raises `GradientError` if one has been
        overwritten in place outside of the recording.
        """
        name = type(self).__name__
        return tuple(e.array(name) if isinstance(e, _Kept) else e for e in self._saved)

    def __call__(self, *inputs: Any) -> Any:
        """The results of `forward`, on the tape when recording; NDArrays for NDArrays."""
        trace = recording_trace()
        is_on = _core.recording() and tracked(*inputs) if trace is None else trace.recording.is_on
        if is_on and self._used:
            name = type(self).__name__
            raise GradientError(f"{name}: this instance has already been called; create a new one")
        if trace is not None:
            return self._traced(inputs)
        found = recording(False, self.forward, *inputs)
        outputs = self._returned(found)
        if is_on:
            self._used = True
            outputs = self._record(inputs, outputs)
        outputs = _like(inputs, outputs)
        return outputs if isinstance(found, (tuple, list)) else outputs[0]

    def _traced(self, inputs: tuple[Any, ...]) -> Any:
        """The results as symbols of the trace in progress, which needs no saved arrays later."""
        held = self._saved
        try:
            return in_trace(self.forward, self.backward, inputs, self._returned, self._checked)
        finally:
            self._saved = held

    def _returned(self, found: Any) -> tuple[Any, ...]:
        """What `forward` returned. Raises `OperandError` unless these are arrays."""
        outputs = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        for output in outputs:
            if not isinstance(output, (_core.Array, Entry)):
                name, kind = type(self).__name__, type(output).__name__
                raise OperandError(f"{name}.forward must return arrays; it returned a {kind}")
        return outputs

    def _checked(self, found: Any, specs: Sequence[Spec | None]) -> list[Any]:
        """What `backward` returned: a gradient, in its dtype, or None for each argument.

        Gradients of arguments without a spec are not looked at. Raises `GradientError` or
        `ShapeError`.
        """
        name = type(self).__name__
        results = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(results) != len(specs):
            raise GradientError(
                f"{name}.backward returned {len(results)} gradients for {len(specs)} "
                "arguments; return None for those without one"
            )
        checked: list[Any] = []
        for result, spec in zip(results, specs, strict=True):
            if result is None or spec is None:
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
            if isinstance(array, NUMBER):
                array = full(array, shape=(), dtype=spec.dtype)
            checked.append(array.astype(spec.dtype, copy=False))
        return checked

    def _record(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        # New array objects over the same memory, as somebody else may hold a result. But arguments
        # and other results would not know of writes to it, nor it of writes to them.
        taken = {value._storage for value in inputs if isinstance(value, _core.Array)}
        fresh = []
        for output in outputs:
            shared = output._storage in taken
            fresh.append(recording(False, copy, output) if shared else output._detached())
            taken.add(output._storage)
        call = FunctionCall(self, inputs, tuple(fresh))
        for index, output in enumerate(fresh):
            if output.dtype.is_inexact:
                output._track((call, index))
        self._saved = tuple(_kept(value, fresh) for value in self._saved)
        return tuple(fresh)


class _Kept(NamedTuple):
    """An array that a recorded call has saved for `backward`."""

    saved: Any
    #: Where its contents come from; of a result of the call itself only the number, as the call
    #: owns this.
    source: Any
    is_nd: bool

    def array(self, name: str, source: Any = None) -> Any:
        """The array with the contents it had, connected to the tape at a source."""
        array = self.saved.array
        if array.version != self.saved.version:
            raise GradientError(
                f"backward: {spec_of(array)}, which {name} had saved for backward, was overwritten "
                "in place, outside of the recording or through another array; write to a new array "
                "instead"
            )
        if source is not None:
            array = array._detached()
            array._track(source)
        return array.as_nd_ndarray() if self.is_nd else array


def _kept(value: Any, results: Sequence[Any]) -> Any:
    """What to keep of a value given to `save_for_backward`, in a call with these results."""
    if not isinstance(value, _core.Array):
        return value
    source, is_nd = source_of(value), _are_nd((value,))
    for index, result in enumerate(results if source is None else ()):
        if _is_same(value, result) and result.dtype.is_inexact:
            # The result knows of writes to it, and `value` is an array that only forward has seen.
            return _Kept(result._save(), index, is_nd)
    return _Kept(value._save(), source, is_nd)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two arrays show the same elements."""
    same = one._storage == other._storage and one.dtype is other.dtype
    return same and region_of(one) == region_of(other)


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
        self.variables: dict[int, Leaf] = {}
        self.freed = False

    def backward(self, gradients: tuple[Any, ...], create_graph: bool) -> tuple[Any, ...]:
        """The gradients of the arguments. Raises `GradientError` or `ShapeError`."""
        given = [each.as_nd_ndarray() for each in gradients] if self.is_nd else gradients
        run = self._connected if create_graph else self.function.backward
        found = recording(create_graph, run, *given)
        specs = zip(self.inputs, self.sources, strict=True)
        wanted = [None if source is None else spec for spec, source in specs]
        return tuple(self.function._checked(found, wanted))

    def _connected(self, *given: Any) -> Any:
        """What the function's `backward` returns, with saved arrays connected to the tape."""
        held, name = self.function._saved, type(self.function).__name__
        arrays = [e.array(name, self._source(e)) if isinstance(e, _Kept) else e for e in held]
        self.function.save_for_backward(*arrays)
        try:
            return self.function.backward(*given)
        finally:
            self.function._saved = held

    def _source(self, kept: _Kept) -> Any:
        """Where the contents of a saved array come from."""
        return (self, kept.source) if isinstance(kept.source, int) else kept.source

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
