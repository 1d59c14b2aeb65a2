"""Arrays whose elements are known while a program is traced: constants, shapes and their
results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gemel import np
from gemel.dtype import DType
from gemel.extent import Dim
from gemel.ir.current import current_trace
from gemel.ir.reference import numpy
from gemel.runtime.prepare import as_entry

#: Arrays with more elements are computed as arrays.
MOST = 1024


class Known:
    """Elements as a flat list, perhaps with free extents, with shape and dtype; or a NumPy
    array."""

    def __init__(self, values: Any, shape: Sequence[int], dtype: Any) -> None:
        self.values = values
        self.shape = tuple(shape)
        self.dtype = DType(dtype)
        self._array: Any = None

    @classmethod
    def of(cls, array: Any, dtype: Any = None) -> Known:
        """A NumPy array as known elements; `dtype` is the true one if NumPy does not have it."""
        found = cls(None, array.shape, dtype or array.dtype)
        found._array = array
        return found

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(numpy().prod(self.shape, dtype="int64"))

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def list(self) -> list[Any]:
        """The elements, flat."""
        if self.values is None:
            self.values = self._array.ravel().tolist()
        return list(self.values)

    def item(self) -> Any:
        """The single element."""
        (found,) = self.list()
        return found

    @property
    def is_fixed(self) -> bool:
        """Whether no free extent is among the elements."""
        return self.values is None or not any(isinstance(n, Dim) for n in self.values)

    def numpy(self) -> Any:
        """The elements as a NumPy array; free extents are fixed to their present values."""
        if self._array is None:
            plain = [int(n) if isinstance(n, Dim) else n for n in self.values]
            self._array = numpy().array(plain, dtype=self.dtype.dtype).reshape(self.shape)
        return self._array

    def array(self) -> Any:
        """The elements as a gemel array; in a trace, as a constant of the program."""
        if self.is_fixed:
            found = np.array(self.numpy(), dtype=self.dtype)
            return found if current_trace() is None else as_entry(found)
        parts = [np.full((1,), n, dtype=self.dtype) for n in self.list()]
        return np.reshape(np.concatenate(parts), self.shape)

    def moved(self, rule: Callable[[Any], Any], dtype: Any = None) -> Known:
        """The elements after `rule` has been applied to an array of their positions."""
        places = rule(numpy().arange(self.size).reshape(self.shape))
        own = self.list()
        values = [own[place] for place in places.ravel().tolist()]
        return Known(values, places.shape, dtype or self.dtype)

    def __repr__(self) -> str:
        return f"Known({self.list()}, {self.shape}, {self.dtype})"


def each(rule: Callable[..., Any], *inputs: Known, dtype: Any = None) -> Known | None:
    """Apply a function to broadcast elements; returns None if there are too many."""
    np_ = numpy()
    shape = np_.broadcast_shapes(*(x.shape for x in inputs))
    if np_.prod(shape, dtype="int64") > MOST:
        return None
    columns = []
    for x in inputs:
        places = np_.broadcast_to(np_.arange(x.size).reshape(x.shape), shape)
        own = x.list()
        columns.append([own[place] for place in places.ravel().tolist()])
    values = [rule(*row) for row in zip(*columns, strict=True)]
    return Known(values, shape, dtype or inputs[0].dtype)


def shape_of(node: Any, x: Any) -> Known:
    """The operator Shape: all or some extents of an array or of known numbers."""
    extents = list(x.shape)[node.get("start", 0) : node.get("end")]
    return Known(extents, (len(extents),), "int64")


__all__ = ["MOST", "Known", "each", "shape_of"]
