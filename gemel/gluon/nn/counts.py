"""Checks of layer settings that count something: units, channels, groups."""

from __future__ import annotations

import operator
from typing import Any

from gemel.errors import ArgumentError


def counted(name: str, what: str, value: Any) -> int:
    """Check a setting that is a count. Raises `ArgumentError` unless it is at least one.

    >>> counted("Dense", "units", 8)
    8
    """
    if not hasattr(value, "__index__") or operator.index(value) < 1:
        raise ArgumentError(f"{name}: {what} must be a whole number of at least 1, not {value!r}")
    return operator.index(value)


def check_groups(name: str, counts: dict[str, int], groups: int) -> None:
    """Raises `ArgumentError` unless `groups` divides each of the counts."""
    for what, count in counts.items():
        if count % groups:
            raise ArgumentError(f"{name}: {what}={count} is not divisible by groups={groups}")


__all__ = ["check_groups", "counted"]
