"""MXNet's sparse arrays in parameter files, which become dense ones: gemel has no others.

After the dtype such an array has, for each array of indices, ``i32 type | i32 ndim, i64 x ndim``;
then follow the stored elements, and the indices. Kind 1, ``row_sparse``, stores whole rows and
which rows they are; kind 2, ``csr``, stores elements row by row, where each row of these begins,
and the columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gemel.arrays.making import from_buffer
from gemel.device import Device
from gemel.dtype import DType
from gemel.ir.reference import numpy

#: How many arrays of indices each kind has.
INDICES = {1: 1, 2: 2}


class Sparse(NamedTuple):
    """A sparse array in a file: its elements, and its arrays of indices."""

    kind: int
    dtype: DType
    shape: tuple[int, ...]
    stored: tuple[int, ...]
    elements: memoryview
    indices: list[tuple[DType, tuple[int, ...], memoryview]]

    def dense(self, device: Device) -> Any:
        """The array. Raises `ValueError`, which says what is wrong, for one that is damaged."""
        np = numpy()
        for dtype, shape, _ in self.indices:
            if dtype.name not in ("int32", "int64") or len(shape) != 1:
                raise ValueError(f"its indices are {dtype}{list(shape)}")
        indices = [np.frombuffer(part, dtype.name) for dtype, _, part in self.indices]
        # The bytes of elements are all that matters, and NumPy has no bfloat16.
        bits = f"V{self.dtype.itemsize}"
        elements = np.frombuffer(self.elements, bits).reshape(self.stored)
        place = self._rows(*indices) if self.kind == 1 else self._places(*indices)
        found = np.zeros(self.shape, bits)
        found[place] = elements
        return from_buffer(found.view("u1"), self.dtype, self.shape, device)

    def _rows(self, rows: Any) -> Any:
        if not self.shape or self.stored != (rows.size, *self.shape[1:]):
            raise ValueError(f"it stores {list(self.stored)} of {list(self.shape)}")
        return self._inside(rows, self.shape[0])

    def _places(self, begins: Any, columns: Any) -> Any:
        np = numpy()
        if len(self.shape) != 2 or self.stored != (columns.size,):
            raise ValueError(f"it stores {list(self.stored)} of {list(self.shape)}")
        counts = np.diff(begins)
        ends = begins.size == self.shape[0] + 1 and begins[0] == 0 and begins[-1] == columns.size
        if not ends or (counts < 0).any():
            raise ValueError("its rows do not follow each other")
        return np.repeat(np.arange(counts.size), counts), self._inside(columns, self.shape[1])

    @staticmethod
    def _inside(indices: Any, extent: int) -> Any:
        if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < extent:
            raise ValueError(f"it has an index that is not below {extent}")
        return indices
