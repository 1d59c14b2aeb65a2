"""Slices in MXNet's files: begin, end and step that are right for all sizes of an axis.

A node has a slice in canonical form, ("slice", first, count, step), which holds for the sizes seen:
`x[:-2]` of two rows is ("slice", 0, 0, 1). So what is written is compared with the slice that the
function gave.
"""

from __future__ import annotations

from typing import Any

from gemel.extent import Dim, evaluate, form_of, same_for_all, seen
from gemel.forms import names_of
from gemel.symbol.sizes import as_seen, depends_on_batch

#: Begin, end and step; None for the ends of the axis.
Bounds = tuple[Any, Any, int]


def given_slices(index: Any, key: tuple[Any, ...]) -> list[slice | None]:
    """The slices of an index, one for each item of its canonical form; None for other items."""
    items = [] if index is None else list(index) if isinstance(index, tuple) else [index]
    if not any(item is Ellipsis for item in items):
        items.append(Ellipsis)
    rest = len(key) - len(items) + 1
    found = [[item] if item is not Ellipsis else [slice(None)] * rest for item in items]
    each = [item if isinstance(item, slice) else None for part in found for item in part]
    return [None] * len(key) if index is None else each


def bounds(item: Any, extent: Any, given: slice | None) -> Bounds:
    """How to write a canonical slice of an axis; `given` is the slice of the program, if known."""
    found = _of_canonical(item, extent)
    wanted = None if given is None else _of_given(given, extent)
    return found if wanted is None or _alike(found, wanted) else wanted


def _of_canonical(item: Any, extent: Any) -> Bounds:
    first, count, by = item[1:]
    last = first + count * by
    if by < 0:
        begin = None if same_for_all(first, extent - 1) else _place(first, extent)
        return begin, None if seen(last) < 0 else _place(last, extent), by
    whole = same_for_all(last, extent) or _reaches(last, extent)
    return _place(first, extent), None if whole else _place(last, extent), by


def _of_given(given: slice, extent: Any) -> Bounds | None:
    """A slice as it was given, without free extents; None if they cannot be left out."""
    step = 1 if given.step is None else given.step
    if isinstance(step, Dim):
        return None
    forward = step > 0
    if _is_past(given.start if forward else given.stop, extent):
        return 0, 0, step.__index__()  # `x[n:]` and `x[:n:-1]` are empty
    start, stop = (
        None if _is_past(end, extent) else _given_place(end, extent, forward)
        for end in (given.start, given.stop)
    )
    if isinstance(start, Dim) or isinstance(stop, Dim):
        return None
    return start, stop, step.__index__()


def _is_past(end: Any, extent: Any) -> bool:
    """Whether a start or stop is the end of a free axis, or past it: `n` or `n + 1`."""
    if not isinstance(end, Dim):
        return False
    from_end = end - extent
    return not isinstance(from_end, Dim) and from_end >= 0


def _given_place(end: Any, extent: Any, forward: bool) -> Any:
    """A start or stop: `n - 2` on an axis of n is -2."""
    if not isinstance(end, Dim):
        return None if end is None else end.__index__()
    from_end = end - extent
    # If `n - 3` is negative, it counts from the end itself: -1 of two rows is the last. The
    # comparison leaves a guard against that. -1 of one row, from `n - 2`, is the first, as is -2.
    fixed = not isinstance(from_end, Dim) and from_end < 0
    if fixed and ((forward and from_end >= -2) or end >= 0):
        return from_end
    return end if depends_on_batch(end) else as_seen(end)


def _alike(found: Bounds, wanted: Bounds) -> bool:
    """Whether two slices select the same elements, whatever the size of the axis."""
    if any(isinstance(bound, Dim) for bound in found):
        return False
    ends = {abs(bound) for bound in (*found[:2], *wanted[:2]) if bound is not None}
    # Between these sizes neither start nor stop moves past an end of the axis, or past the other.
    near = {0, *ends, *(a + b for a in ends for b in ends), *(a - b for a in ends for b in ends)}
    sizes = {size + by for size in near for by in range(-2, 3) if size + by >= 0}
    one, two = slice(*found), slice(*wanted)
    return all(range(*one.indices(n)) == range(*two.indices(n)) for n in sizes)


#: Sizes to try if two extents cannot be compared in general: even and odd ones.
TRIED = (2, 3, 4, 5, 7, 8, 12, 17, 64, 101)


def _reaches(last: Any, extent: Any) -> bool:
    """Whether a position is at or past the end of an axis for all sizes, not only those seen in the
    trace: true for `x[::2]`, false for `x[:5]` of five rows.
    """
    names = sorted(names_of(form_of(last)) | names_of(form_of(extent)))
    orders = names, names[::-1]
    sizes = [{n: size * (1 + i) for i, n in enumerate(o)} for size in TRIED for o in orders]
    reached = all(evaluate(last, each) >= evaluate(extent, each) for each in sizes)
    return reached and seen(last) >= seen(extent)


def _place(place: Any, extent: Any) -> Any:
    """A position on an axis, counted from the end if it is at a fixed distance from a free end."""
    from_end = place - extent if isinstance(place, Dim) else 0
    return place if isinstance(from_end, Dim) or from_end >= 0 else from_end
