"""Reshapes in MXNet's files that are valid for all sizes: extents stay, are split, or are joined.

A shape in a file has numbers and at most one -1, which is inferred. If more than one extent is free
and moves to another axis, the codes of `npx.reshape` refer to the extents of the input instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gemel.extent import Dim, form_of, same_for_all, seen
from gemel.forms import names_of
from gemel.spec import product

Shape = tuple[Any, ...]
#: Old and new extents: one that stays, one and its parts, or several and their product.
Group = tuple[Shape, Shape]
#: The codes of `npx.reshape`.
COPY, DROP, JOIN, SPLIT = -2, -3, -5, -6


class Before(NamedTuple):
    """The shape of a reshape that has to come first."""

    shape: Shape


def codes(source: Shape, target: Shape) -> tuple[int, ...] | Before | None:
    """The codes of a reshape, or a reshape that has to come first; None if neither is known.

    Another reshape comes first if an extent is split into, or joined from, more than two.
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
    """The groups of old and new extents that correspond; None if they are not known."""
    before: list[Group] = []
    behind: list[Group] = []
    while source and target:
        count = _together(source, target, same_for_all)
        if count is None and 1 in (len(source), len(target)):
            # All others are equal, so the remaining extents must correspond, too.
            count = len(source), len(target)
        if count is None and same_for_all(source[-1], target[-1]):
            behind.insert(0, (source[-1:], target[-1:]))
            source, target = source[:-1], target[:-1]
            continue
        # A number may stand for an extent that must equal it.
        count = count or _together(source, target, _seen_alike)
        if count is None:
            return None
        m, k = count
        before.append((source[:m], target[:k]))
        source, target = source[m:], target[k:]
    if target and behind:  # a new 1 here would shift the extents after it
        return None
    return [*before, (source, target), *behind]


def _together(
    source: Shape, target: Shape, alike: Callable[[Any, Any], bool]
) -> tuple[int, int] | None:
    """How many leading extents of source and of target have equal products."""
    for k in range(1, len(target) + 1):
        if alike(source[0], product(target[:k])):
            return 1, k
    for m in range(2, len(source) + 1):
        if alike(product(source[:m]), target[0]):
            return m, 1
    return None


def _seen_alike(a: Any, b: Any) -> bool:
    """Whether two extents were equal in the trace, and one's names include the other's."""
    names, others = names_of(form_of(a)), names_of(form_of(b))
    return seen(a) == seen(b) and (names <= others or others <= names)


def _halfway(old: Shape, new: Shape) -> Shape:
    """The extents halfway from old to new, if more than two extents are split or joined."""
    if len(new) > 2:
        return new[0], product(new[1:])
    return (old[0], product(old[1:])) if len(old) > 2 else old


def _written(old: Shape, new: Shape) -> list[int] | None:
    """The codes of one group of at most two extents; None if an extent has two free parts."""
    if len(old) == len(new):
        return [COPY if isinstance(extent, Dim) else int(extent) for extent in new]
    if len(new) == 2 and old:
        parts = [-1 if isinstance(extent, Dim) else int(extent) for extent in new]
        return [SPLIT, *parts] if parts.count(-1) < 2 else None
    return [JOIN] if len(old) == 2 and new else [*[DROP] * len(old), *[1] * len(new)]
