"""Checks of layer settings that are numbers: units, channels, groups, probabilities."""

from __future__ import annotations

import operator
from numbers import Real
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


def check_probability(name: str, what: str, value: Any) -> None:
    """Raises `ArgumentError` unless `value`, the share that a layer drops, is from 0 to below 1."""
    number = isinstance(value, Real) or hasattr(value, "item")
    if not (number and 0 <= float(value) < 1):
        raise ArgumentError(
            f"{name}: {what} is {value!r}; it must be a probability from 0 to below 1"
        )


def check_groups(name: str, counts: dict[str, int], groups: int) -> None:
    """Raises `ArgumentError` unless `groups` divides each of the counts."""
    for what, count in counts.items():
        if count % groups:
            raise ArgumentError(f"{name}: {what}={count} is not divisible by groups={groups}")


__all__ = ["check_groups", "check_probability", "counted"]
