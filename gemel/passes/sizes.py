"""Sizes of arrays for cost estimates, with the extents seen when tracing: they leave no guards."""

from __future__ import annotations

from collections.abc import Sequence

from gemel.extent import seen
from gemel.ir.graph import Entry
from gemel.spec import product


def elements_of(shape: Sequence[int]) -> int:
    """The number of elements of a shape."""
    return int(product(map(seen, shape)))


def bytes_of(entry: Entry) -> int:
    """The number of bytes of an entry."""
    return elements_of(entry.shape) * int(entry.dtype.itemsize)


__all__ = ["bytes_of", "elements_of"]
