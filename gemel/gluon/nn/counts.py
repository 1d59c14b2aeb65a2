"""What layers are told in numbers of things: units, channels, groups."""

from __future__ import annotations

import operator
from typing import Any

from gemel.errors import ArgumentError


def counted(name: str, what: str, value: Any) -> int:
    """A setting that says how many there are. Raises `ArgumentError` unless there is one at least.

    >>> counted("Dense", "units", 8)
    8
    """
    if not hasattr(value, "__index__") or operator.index(value) < 1:
        raise ArgumentError(f"{name}: {what} must be a whole number of at least 1, not {value!r}")
    return operator.index(value)


def check_groups(name: str, counts: dict[str, int], groups: int) -> None:
    """Raises `ArgumentError` unless groups have as many of each as the others."""
    for what, count in counts.items():
        if count % groups:
            raise ArgumentError(f"{name}: {what}={count} is not divisible by groups={groups}")


__all__ = ["check_groups", "counted"]
