"""How large arrays are, of the sizes a graph was traced with: nothing is asked of free extents."""

from __future__ import annotations

from collections.abc import Sequence

from gemel.extent import seen
from gemel.ir.graph import Entry
from gemel.spec import product


def elements_of(shape: Sequence[int]) -> int:
    """Elements."""
    return int(product(map(seen, shape)))


def bytes_of(entry: Entry) -> int:
    """Bytes."""
    return elements_of(entry.shape) * int(entry.dtype.itemsize)


__all__ = ["bytes_of", "elements_of"]
