"""x[key] for every kind of key."""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel.dtype import int32, int64
from gemel.errors import ArrayIndexError, ShapeError
from gemel.ir.above import above
from gemel.ir.current import current_trace
from gemel.ir.methods import named
from gemel.ir.reference import numpy
from gemel.lists import leaves
from gemel.ops.indexing import basic_index, boolean_index, gather, integer_indices
from gemel.ops.keys import (
    canonical,
    check_masks,
    is_array,
    is_basic,
    is_mask,
    parted,
    placed,
)
from gemel.ops.points import points
from gemel.ops.shape import expand_dims, transpose
from gemel.spec import Spec, broadcast

#: The usual dtypes of positions.
POSITIONS = (int32, int64)


@named
def getitem(x: Any, key: Any) -> Any:
    """x[key] for every kind of key: basic, integer arrays, boolean masks."""
    if is_basic(key):
        return basic_index(x, key=canonical(x.shape, key))
    if _are_rows(x, key):
        return gather(x, key, axis=0)
    items = list(key) if isinstance(key, tuple) else [key]
    if current_trace() is not None:
        items = [known_mask(item) for item in items]
        if any(is_mask(item) and type(item).__module__ == "numpy" for item in items):
            x, items = _masks_as_positions(x, items)
    items = [above.index_item(item, x) for item in items]
    if is_basic(tuple(items)):  # the only arrays were NumPy's integers
        return basic_index(x, key=canonical(x.shape, tuple(items)))
    if any(is_mask(item) for item in items):
        whole = len(items) == 1 and items[0].ndim == len(x.shape)
        # `boolean_index` has no gradient; on the tape, a gather by positions is used instead.
        tracked = _core.capturing() or (_core.recording() and getattr(x, "_is_tracked", False))
        if whole and not tracked:
            check_masks(x.shape, items)
            return boolean_index(x, items[0])
        x, items = _masks_as_positions(x, items)
    return _advanced(x, items)


def _are_rows(x: Any, key: Any) -> bool:
    """Whether x[key] selects rows by their positions, outside of traces: the most frequent key."""
    if not (isinstance(key, _core.Array) and isinstance(x, _core.Array)) or _core.capturing():
        return False
    return key.dtype in POSITIONS and x.ndim > 0 and key.device is x.device


def known_mask(item: Any) -> Any:
    """In a trace, a mask given as bools is a constant of the program, kept as a NumPy array."""
    if isinstance(item, (list, bool)) and all(isinstance(leaf, bool) for leaf in leaves(item)):
        return numpy().array(item, "bool") if item != [] else item
    return item


def _masks_as_positions(x: Any, items: list[Any]) -> tuple[Any, list[Any]]:
    """The index with positions instead of masks, and x with a new axis for each 0-d mask."""
    check_masks(x.shape, items)
    found: list[Any] = []
    for item, axis in reversed(placed(items, len(x.shape))):
        if not is_mask(item):
            found.append(item)
            continue
        if not item.ndim:
            x, item = expand_dims(x, axis), item.reshape(1)
        positions = item.nonzero()
        found += reversed(positions) if isinstance(positions, tuple) else [positions]
    return x, found[::-1]


def _advanced(x: Any, items: list[Any]) -> Any:
    """Index with integer arrays: first the basic items, then one gather."""
    items, basic, axes, lead = parted(items, len(x.shape))
    named = placed(items, len(x.shape))
    x = getitem(x, basic)
    arrays = [item for item in items if is_array(item)]
    return _selected(x, arrays, axes, lead, [axis for item, axis in named if is_array(item)])


def _selected(x: Any, arrays: list[Any], axes: list[int], lead: int, named: list[int]) -> Any:
    """The elements at integer arrays, each along an axis, whose common axes are in the result from
    axis `lead` on; errors call the arrays' axes by the numbers `named`."""
    given = [Spec(array.shape, array.dtype) for array in arrays]
    try:
        broadcast("x[positions]", *given)
    except ShapeError as error:
        raise ArrayIndexError(str(error)) from None
    for indices in given:
        integer_indices("take", indices)
    others = [axis for axis in range(len(x.shape)) if axis not in axes]
    if axes[0] != lead or len(axes) > 1:
        x = transpose(x, axes=(*others[:lead], *axes, *others[lead:]))
    if named == [lead]:
        return gather(x, arrays[0], axis=lead)
    return points(x, *arrays, axis=lead, named=tuple(named), caller="take")


__all__ = ["getitem", "known_mask"]
