"""Operations written in Python, run by the engine: NumPy does the work, in the Python lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gemel import _core
from gemel.device import CPUS, current_device
from gemel.errors import ShapeError
from gemel.ops.elementwise import copy
from gemel.spec import Spec


class View:
    """How an array lies in its storage: enough to make a NumPy array over the storage's bytes."""

    __slots__ = ("name", "offset", "shape", "strides")

    def __init__(self, array: Any) -> None:
        itemsize = array.dtype.itemsize
        self.name = array.dtype.name
        self.shape = array.shape
        self.strides = tuple(stride * itemsize for stride in array.strides)
        self.offset = array.offset * itemsize

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
    of the results and targets. Contents on a GPU travel to the CPU and back; what is of a dtype
    NumPy lacks goes there and back as its twin.
    """
    device = next((a.device for a in (*targets, *inputs)), None) or current_device()
    if device.linked:
        inputs = [value.to_device(CPUS[0]) for value in inputs]
    inputs, places = [as_twin(value) for value in inputs], [as_twin(value) for value in targets]
    seen = [View(array) for array in inputs]
    written = [View(array) for array in places]

    def run(readable: tuple[memoryview, ...], writable: tuple[memoryview, ...]) -> None:
        arrays = [view.over(memory) for view, memory in zip(seen, readable, strict=True)]
        changed = [view.over(m) for view, m in zip(written, writable, strict=False)]
        found = function(*arrays, *changed)
        values = found if isinstance(found, tuple) else (found,)
        if results:
            _deliver(values, results, writable[len(changed) :])

    described = [(spec.dtype.twin.code, spec.shape) for spec in results]
    code = 0 if device.linked else device.code
    made = _core.call_python(run, name, inputs, described, places, code)
    for place, target in zip(places, targets, strict=True):
        if place is not target:
            copy.into(target, place)
    pairs = zip(made, results, strict=True)
    made = tuple(array.astype(spec.dtype, copy=False) for array, spec in pairs)
    return tuple(array.to_device(device) for array in made) if device.linked else made


def as_twin(array: Any) -> Any:
    """The array in a dtype NumPy has."""
    return array.astype(array.dtype.twin, copy=False)


def _deliver(
    values: Sequence[Any], results: Sequence[Spec], memories: Sequence[memoryview]
) -> None:
    import numpy

    if len(values) != len(results):
        raise ShapeError(f"it returned {len(values)} arrays, {len(results)} were announced")
    for value, spec, memory in zip(values, results, memories, strict=True):
        found = numpy.asarray(value)
        if found.shape != tuple(spec.shape):
            raise ShapeError(f"it returned shape {found.shape}, {spec} was announced")
        if found.size:
            name = spec.dtype.twin.name
            numpy.ndarray(found.shape, name, memory)[...] = found


def copying(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on copies of its arrays: it may keep them."""
    return lambda *arrays: function(*(array.copy() for array in arrays))


__all__ = ["copying", "issue"]
