"""Points: elements at positions along several axes at once (`x[i, j]`), and sums into them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemel.dtype import as_dtype
from gemel.errors import ShapeError
from gemel.ir.declare import composite, op
from gemel.ir.reference import numpy
from gemel.ir.rules import Emitter
from gemel.ops.elementwise import where
from gemel.ops.indexing import gather, out_of_range, scatter, some_place
from gemel.ops.keys import signed
from gemel.ops.shape import reshape
from gemel.spec import Spec, broadcast, extents, product, same_shape

# Both operations are composites of those along one axis, over which the axes are joined: gradients
# of gradients, and files for other systems, follow that. Plans do it in one kernel, without copying
# x to join axes that are not adjacent in memory, and check each position against its own axis.
# `named` has the axes' numbers for errors, and `caller` the function that users have called.


def _flat(shape: Sequence[int], indices: Sequence[Any]) -> Any:
    """Positions along some axes of these extents as one position over them; if one of them is out
    of range, then so is the result, far."""
    if len(indices) == 1:
        return indices[0]
    flat: Any = None
    for each, extent in zip(indices, shape, strict=True):
        index = signed(each)
        index = where(index < 0, index + extent, index)
        index = where((index < 0) | (index >= extent), -(2**40), index)
        flat = index if flat is None else flat * extent + index
    return flat


def _in_numpy(axis: int, indices: Sequence[Any]) -> tuple[Any, ...]:
    """The index with these positions from an axis on."""
    most = numpy().uint64(2**63 - 1)  # NumPy would take larger ones as negative
    within = (numpy().minimum(i, most) if i.dtype == "uint64" else i for i in indices)
    return (*[slice(None)] * axis, *(each.astype("int64") for each in within))


def _specs(
    shape: tuple[int, ...], indices: Sequence[Spec], axis: int, caller: str
) -> tuple[int, ...]:
    """The shape of what positions select. Raises `ShapeError`, and `IndexError` for empty axes."""
    chosen = broadcast(caller, *indices)
    for place in range(axis, axis + len(indices)):
        some_place(caller, shape, place, Spec(chosen, "int64"))
    return (*shape[:axis], *chosen, *shape[axis + len(indices) :])


# --- reading --------------------------------------------------------------------------------


@composite(fails=True, moves=1)
def points(x: Any, *indices: Any, axis: int, named: Any, caller: str) -> Any:
    """The elements of x at positions along several axes, from `axis` on; negative ones count from
    the end.

    The positions are broadcast together. One out of range is an `IndexError`, raised when the
    result is waited for.
    """
    end = axis + len(indices)
    over = x.shape[axis:end]
    rows = reshape(x, shape=(*x.shape[:axis], product(over), *x.shape[end:]))
    return gather(rows, _flat(over, indices), axis=axis)


@points.spec
def _(x: Spec, *indices: Spec, axis: int, named: Any, caller: str) -> Spec:
    return Spec(_specs(x.shape, indices, axis, caller), x.dtype)


@points.planned
def _(x: Any, *indices: Any, axis: int, named: Any, caller: str) -> Any:
    return read_points(x, *indices, axis=axis, named=named, caller=caller)


@points.gradient
def _(g: Any, y: Any, x: Any, *indices: Any, axis: int, named: Any, caller: str) -> Any:
    found = points_added(g, *indices, axis=axis, shape=x.shape, named=named, caller=caller)
    return found, *[None] * len(indices)


@op(fails=True, moves=1)
def read_points(x: Any, *indices: Any, axis: int, named: Any, caller: str) -> Any:
    """`points` in one kernel."""
    return x[_in_numpy(axis, indices)]


@read_points.spec
def _(x: Spec, *indices: Spec, axis: int, named: Any, caller: str) -> Spec:
    return Spec(_specs(x.shape, indices, axis, caller), x.dtype)


@read_points.element
def _(loop: Any, at: Any, x: Any, *indices: Any, axis: int, named: Any, caller: str) -> Any:
    end = axis + len(indices)
    after = axis + len(at) - len(x.shape) + len(indices)
    over = x.shape[axis:end]
    loop.failure = out_of_range(caller, *zip(named, over, strict=True))
    positions = []
    for each, extent in zip(indices, over, strict=True):
        position = each.at(*at[after - len(each.shape) : after])
        positions.append(loop.checked(position, extent))
    return x.at(*at[:axis], *positions, *at[after:])


# --- adding ---------------------------------------------------------------------------------


@composite(fails=True)
def points_added(g: Any, *indices: Any, axis: int, shape: Any, named: Any, caller: str) -> Any:
    """Zeros of the given shape with g added at positions along several axes, from `axis` on.

    Sums are accumulated as `sum` does: float16 in float32. The sum of bools is whether any is true.
    """
    end = axis + len(indices)
    over = shape[axis:end]
    rows = (*shape[:axis], product(over), *shape[end:])
    return reshape(scatter(g, _flat(over, indices), axis=axis, shape=rows), shape=shape)


@points_added.spec
def _(g: Spec, *indices: Spec, axis: int, shape: Any, named: Any, caller: str) -> Spec:
    return _added_spec(g, indices, axis, shape, caller)


def _added_spec(g: Spec, indices: Sequence[Spec], axis: int, shape: Any, caller: str) -> Spec:
    selected = _specs(extents(caller, shape), indices, axis, caller)
    if not same_shape(g.shape, selected):
        raise ShapeError(
            f"{caller}: {g} must have the shape {list(selected)} that the positions select"
        )
    return Spec(shape, g.dtype)


@points_added.planned
def _(g: Any, *indices: Any, axis: int, shape: Any, named: Any, caller: str) -> Any:
    return add_points(g, *indices, axis=axis, shape=shape, named=named, caller=caller)


@points_added.gradient
def _(g: Any, y: Any, x: Any, *indices: Any, axis: int, shape: Any, named: Any, caller: str) -> Any:
    return points(g, *indices, axis=axis, named=named, caller=caller), *[None] * len(indices)


@op(fails=True)
def add_points(g: Any, *indices: Any, axis: int, shape: Any, named: Any, caller: str) -> Any:
    """`points_added` in one loop nest."""
    result = numpy().zeros(shape, as_dtype(g.dtype).accumulate.name)
    numpy().add.at(result, _in_numpy(axis, indices), g)
    return result.astype(g.dtype)


@add_points.spec
def _(g: Spec, *indices: Spec, axis: int, shape: Any, named: Any, caller: str) -> Spec:
    return _added_spec(g, indices, axis, shape, caller)


@add_points.lower
def _(
    emit: Emitter, outputs: Any, inputs: Any, *, axis: int, shape: Any, named: Any, caller: str
) -> None:
    (result,), (g, *indices) = outputs, inputs
    wide = result.dtype.accumulate
    total = result if wide is result.dtype else emit.temporary(wide, result.shape)
    emit.fill(total, 0)
    end = axis + len(indices)
    rest = len(shape) - end
    middle = len(g.shape) - axis - rest
    # Not in parallel and not in vectors: two elements may be added to the same place.
    over, steps = shape[axis:end], total.strides[axis:end]
    failure = out_of_range(caller, *zip(named, over, strict=True))
    loop = emit.loop(g.shape, failure=failure, parallel=False)
    target = loop.target(total, (*total.strides[:axis], *[0] * middle, *total.strides[end:]))
    terms = []
    for each, extent, step in zip(indices, over, steps, strict=True):
        own = (0 if n == 1 else s for n, s in zip(each.shape, each.strides, strict=True))
        lead = axis + middle - len(each.shape)
        position = loop.load(each, (*[0] * lead, *own, *[0] * rest))
        terms.append((loop.checked(position, extent), step))
    loop.scatter_add(target, loop.sum(tuple(terms)), loop.cast(loop.load(g), total.dtype), 1)
    loop.finish()
    if total is not result:
        emit.copy(total, result)


__all__ = ["points", "points_added"]
