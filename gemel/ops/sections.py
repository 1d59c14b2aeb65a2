"""Parts of an axis: a number of equal parts, or parts between given positions."""

from __future__ import annotations

from typing import Any

from gemel.errors import ShapeError
from gemel.extent import WHOLE, same_for_all
from gemel.spec import is_several, whole, whole_numbers


def section_lengths(name: str, extent: int, sections: Any) -> tuple[tuple[int, int], ...]:
    """(start, length) of each part: an equal count, or cut positions. Raises `ShapeError`."""
    if isinstance(sections, WHOLE):
        if sections <= 0 or extent % sections != 0:
            raise ShapeError(
                f"{name}: axis of {extent} does not divide into {sections} equal parts"
            )
        length = extent // sections
        return tuple((index * length, length) for index in range(sections))
    whole_numbers(name, "cuts", sections)
    # As in slices, negative cuts count from the end, and all are limited to the axis.
    inside = (max(cut + extent, 0) if cut < 0 else min(cut, extent) for cut in sections)
    cuts = [0, *inside, extent]
    pairs = zip(cuts, cuts[1:], strict=False)
    return tuple((a, b - a if b > a else 0) for a, b in pairs)


def overlapping(name: str, extent: int, sections: Any) -> tuple[tuple[int, int], ...]:
    """The (start, length) of each part, if cuts may go back, so that the parts are not the whole
    axis once; else nothing."""
    if isinstance(sections, WHOLE):
        return ()
    spans = section_lengths(name, extent, sections)
    once = same_for_all(sum([length for _, length in spans]), extent)
    return () if once else spans


def sections_of(name: str, given: Any) -> Any:
    """The number of parts, or a tuple of the positions of cuts. Raises `TypeError`."""
    return tuple(given) if is_several(given) else whole(name, "the number of parts", given)


def check_span(name: str, axis: int, extent: int, start: int, length: int, step: int = 1) -> None:
    """Raises `ShapeError` unless these positions lie in an axis. Positions with free extents are
    not checked here: whoever computed them has set the guards."""
    whole_numbers(name, "positions", (start, length, step))
    if any(type(n) is not int for n in (start, length, step)):
        return
    ends = (start, start + (length - 1) * step) if length else ()
    if length < 0 or step == 0 or not all(0 <= end < extent for end in ends):
        raise ShapeError(
            f"{name}: {length} positions from {start}, {step} apart, are not within axis {axis} "
            f"of length {extent}"
        )
