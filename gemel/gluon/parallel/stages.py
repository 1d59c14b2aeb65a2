"""The boundaries of a pipeline's stages, and the memory layout of their arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import _core, autograd
from gemel.gluon.shapes import ShapeTrace
from gemel.gluon.summary import operations, size_of
from gemel.ir.graph import placeholder, walk
from gemel.spec import Spec
from gemel.tracing.nested import flatten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gemel.device import Device


def balanced(sizes: Sequence[int], parts: int) -> list[int]:
    """Divide a list of sizes into consecutive parts, so that the largest part is as small as
    possible.

    Returns where the parts begin; each has at least one size.

    >>> balanced([4, 1, 1, 1, 1], 2)
    [0, 1]
    """
    count = len(sizes)
    sums = [0]
    for size in sizes:
        sums.append(sums[-1] + size)
    # For each number of sizes, the largest part and where the last part begins.
    best: list[tuple[float, list[int]]] = [(sums[end], [0]) for end in range(count + 1)]
    for part in range(2, parts + 1):
        found: list[tuple[float, list[int]]] = [(float("inf"), [])] * (count + 1)
        for end in range(part, count + 1):
            found[end] = min(
                (max(best[begin][0], sums[end] - sums[begin]), [*best[begin][1], begin])
                for begin in range(part - 1, end)
            )
        best = found
    return best[count][1]


def parameters_of(layer: Any) -> int:
    """The number of elements in the parameters of a layer."""
    return sum(size_of(parameter) for _, parameter in layer.collect_params().distinct())


def costs(layers: Sequence[Any], x: Any) -> list[int]:
    """The number of floating-point operations of each layer for an input; also infers shapes.

    Nothing is computed. Raises `TraceError` if a layer reads values.
    """
    found: list[int] = []
    seen: set[int] = set()
    with autograd.pause(), ShapeTrace():
        value: Any = placeholder(Spec(x.shape, x.dtype))
        for layer in layers:
            given = value if isinstance(value, (tuple, list)) else (value,)
            value = layer(*given)
            entries: list[Any] = []
            flatten(value, entries, [])
            fresh = [node for node in walk(entries) if id(node) not in seen]
            seen.update(map(id, fresh))
            found.append(sum(map(operations, fresh)))
    return found


def lies_apart(array: Any, device: Device, room: int) -> tuple[Any, Any]:
    """Allocate memory on a device for an array like this one and `room` more elements; also returns
    the part for the array."""
    held = _core.empty((array.size + room,), array.dtype.code, device.code)
    return held, held[: array.size].reshape(array.shape)


def unset_like(array: Any) -> Any:
    """An array like another one, for results: its memory is allocated when the operation begins."""
    return _core.empty(array.shape, array.dtype.code, array.device.code)


__all__ = ["balanced", "costs", "lies_apart", "parameters_of", "unset_like"]
