"""Python functions as operations of the engine: NumPy does the work, in the Python lane.

A lane is a queue of the engine with its own threads; the thread of this one may take the GIL. The
call returns at once, and the function runs when its inputs are ready. If that is expected within
some 50 us, the call waits and runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from gemel import _core
from gemel.device import CPUS, current_device
from gemel.errors import ShapeError
from gemel.extent import NUMBER
from gemel.ops.elementwise import copy
from gemel.spec import Spec


class View:
    """How an array lies in memory: enough to make a NumPy array over that.

    The memory is the array's whole storage; for a dense array only its own part, unless `whole`.
    """

    __slots__ = ("name", "offset", "shape", "strides")

    def __init__(self, array: Any, whole: bool = False) -> None:
        itemsize = array.dtype.itemsize
        dense = array._is_contiguous and not whole
        self.name = array.dtype.name
        self.shape = array.shape
        self.strides = None if dense else array.strides
        self.offset = 0 if dense else array.offset * itemsize

    def over(self, memory: memoryview) -> Any:
        """The NumPy array."""
        import numpy

        if 0 in self.shape:
            return numpy.empty(self.shape, self.name)
        return numpy.ndarray(self.shape, self.name, memory, self.offset, self.strides)


def issue(
    name: str,
    function: Callable[..., Any],
    inputs: Sequence[Any],
    results: Sequence[Spec],
    targets: Sequence[Any] = (),
) -> tuple[Any, ...]:
    """Issue function(*inputs, *targets) on NumPy arrays; new arrays with these specs.

    The inputs are read-only and only valid during the call. `targets` are overwritten in place.
    The function returns an array per result (one, or a tuple). What it raises becomes the failure
    of the results and targets. Arrays on a GPU are copied to the CPU and back; arrays of a dtype
    that NumPy lacks are converted to the dtype's twin and back.
    """
    device = next((a.device for a in (*targets, *inputs)), None) or current_device()
    inputs, places = [in_memory(value) for value in inputs], [in_memory(value) for value in targets]
    seen = [View(array) for array in inputs]
    written = [View(array) for array in places]

    def run(readable: tuple[memoryview, ...], writable: tuple[memoryview, ...]) -> None:
        arrays = [view.over(memory) for view, memory in zip(seen, readable, strict=True)]
        changed = [view.over(m) for view, m in zip(written, writable, strict=False)]
        returned = function(*arrays, *changed)
        if results:
            values = returned if isinstance(returned, tuple) else (returned,)
            deliver(values, writable[len(changed) :])

    deliver = _delivery(results)
    code = 0 if device.linked else device.code
    outputs = _core.call_python(run, name, inputs, _described(results), places, code)
    for place, target in zip(places, targets, strict=True):
        if place is not target:
            copy.into(target, place.to_device(device))
    pairs = zip(outputs, results, strict=True)
    outputs = tuple(array.astype(spec.dtype, copy=False) for array, spec in pairs)
    return tuple(array.to_device(device) for array in outputs) if device.linked else outputs


def step(function: Callable[..., Any], specs: Sequence[Spec], results: Sequence[Spec]) -> Any:
    """A function and result specs by which the core can run such calls on dense arrays itself.

    None where an array has a dtype that NumPy lacks and must be converted first.
    """
    if any(spec.dtype.twin is not spec.dtype for spec in (*specs, *results)):
        return None
    arrays, deliver = _dense(specs), _delivery(results)

    def run(readable: tuple[Any, ...], writable: tuple[memoryview, ...]) -> None:
        deliver(function(*arrays(readable)), writable)

    return run, _described(results)


def _dense(specs: Sequence[Spec]) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """A function that makes NumPy arrays over memoryviews; it passes numbers through."""
    from numpy import dtype, ndarray

    shapes = [tuple(spec.shape) for spec in specs]
    kinds = [dtype(spec.dtype.twin.name) for spec in specs]
    if not any(spec.weak for spec in specs):
        return partial(map, ndarray, shapes, kinds)

    def over(memories: Iterable[Any]) -> list[Any]:
        several = zip(shapes, kinds, memories, strict=True)
        return [m if isinstance(m, NUMBER) else ndarray(n, kind, m) for n, kind, m in several]

    return over


def _described(results: Sequence[Spec]) -> list[tuple[int, tuple[int, ...]]]:
    """Result specs in the form the core takes: (dtype code, shape)."""
    return [(spec.dtype.twin.code, tuple(spec.shape)) for spec in results]


def in_memory(array: Any) -> Any:
    """The array in memory that NumPy can use, in a dtype that NumPy has."""
    array = as_twin(array)
    return array.to_device(CPUS[0]) if array.device.linked else array


def as_twin(array: Any) -> Any:
    """The array in a dtype NumPy has: bfloat16 as its twin float32."""
    return array.astype(array.dtype.twin, copy=False)


def _delivery(results: Sequence[Spec]) -> Callable[[tuple[Any, ...], Sequence[memoryview]], None]:
    """A function that copies returned arrays into the memory of the results."""
    from numpy import asarray, ndarray

    over = _dense(results)

    def deliver(values: tuple[Any, ...], memories: Sequence[memoryview]) -> None:
        if len(values) != len(results):
            raise ShapeError(f"it returned {len(values)} arrays, but {len(results)} were declared")
        for value, place in zip(values, over(memories), strict=True):
            array = value if type(value) is ndarray else asarray(value)
            if array.shape != place.shape:
                named = f"{place.dtype}{list(place.shape)}"
                raise ShapeError(f"it returned shape {array.shape}, but {named} was declared")
            place[...] = array

    return deliver


def copying(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function called on copies of its arrays, which it may keep."""
    return lambda *arrays: function(*(array.copy() for array in arrays))


__all__ = ["copying", "issue", "step"]
