"""Reshapes as MXNet's files say them for any sizes: extents that stay, are split, or are joined.

A shape in a file has numbers, and one -1 for what is left over. Where more than one extent is free
and moves to another place, `npx.reshape` has codes that take the extents as they come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gemel.extent import Dim, form_of, same_for_all, seen
from gemel.forms import names_of
from gemel.spec import product

Shape = tuple[Any, ...]
#: Extents that become these: one that stays, one and its parts, or several and their product.
Group = tuple[Shape, Shape]
#: The codes of `npx.reshape`.
COPY, DROP, JOIN, SPLIT = -2, -3, -5, -6


class Before(NamedTuple):
    """The shape of a reshape that comes before another."""

    shape: Shape


def codes(source: Shape, target: Shape) -> tuple[int, ...] | Before | None:
    """The codes of a reshape, or what comes before it; None if neither is known.

    Something comes before where an extent is split into more than two, or is of more than two.
    """
    groups = _grouped(source, target)
    if groups is None:
        return None
    if any(max(len(old), len(new)) > 2 for old, new in groups):
        return Before(tuple(extent for group in groups for extent in _halfway(*group)))
    found: list[int] = []
    for old, new in groups:
        written = _written(old, new)
        if written is None:
            return None
        found += written
    return tuple(found)


def _grouped(source: Shape, target: Shape) -> list[Group] | None:
    """Which extents become which; None where that is not known."""
    before: list[Group] = []
    behind: list[Group] = []
    while source and target:
        count = _together(source, target, same_for_all)
        if count is None and 1 in (len(source), len(target)):
            # All others are the same: so is what is left of both.
            count = len(source), len(target)
        if count is None and same_for_all(source[-1], target[-1]):
            behind.insert(0, (source[-1:], target[-1:]))
            source, target = source[:-1], target[:-1]
            continue
        # A number may stand for an extent that must be that number.
        count = count or _together(source, target, _seen_alike)
        if count is None:
            return None
        m, k = count
        before.append((source[:m], target[:k]))
        source, target = source[m:], target[k:]
    if target and behind:  # a 1 would be in the place of what is behind it
        return None
    return [*before, (source, target), *behind]


def _together(
    source: Shape, target: Shape, alike: Callable[[Any, Any], bool]
) -> tuple[int, int] | None:
    """How many of the first extents of both are the same elements."""
    for k in range(1, len(target) + 1):
        if alike(source[0], product(target[:k])):
            return 1, k
    for m in range(2, len(source) + 1):
        if alike(product(source[:m]), target[0]):
            return m, 1
    return None


def _seen_alike(a: Any, b: Any) -> bool:
    """Whether two extents were equal when they were traced, of which one has the other's names."""
    names, others = names_of(form_of(a)), names_of(form_of(b))
    return seen(a) == seen(b) and (names <= others or others <= names)


def _halfway(old: Shape, new: Shape) -> Shape:
    """What is between extents that become others, one of them at a time."""
    if len(new) > 2:
        return new[0], product(new[1:])
    return (old[0], product(old[1:])) if len(old) > 2 else old


def _written(old: Shape, new: Shape) -> list[int] | None:
    """The codes of one group of at most two extents; None for two free parts of one."""
    if len(old) == len(new):
        return [COPY if isinstance(extent, Dim) else int(extent) for extent in new]
    if len(new) == 2 and old:
        parts = [-1 if isinstance(extent, Dim) else int(extent) for extent in new]
        return [SPLIT, *parts] if parts.count(-1) < 2 else None
    return [JOIN] if len(old) == 2 and new else [*[DROP] * len(old), *[1] * len(new)]
