"""Methods of arrays and symbols that read or write elements in place: `flat`, `fill`, `put`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from gemel.errors import ShapeError
from gemel.ir.protocols import NumpyProtocols, own


class Flat:
    """The elements of an array one after another, to read and to write: `x.flat[3] = 1`."""

    __slots__ = ("base",)

    def __init__(self, base: Any) -> None:
        self.base = base

    def __len__(self) -> int:
        return int(self.base.size)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.base.reshape(-1))

    def __getitem__(self, key: Any) -> Any:
        return self.base.reshape(-1)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        row = self.base.reshape(-1)
        row[key] = value
        # Reshaping copies an array that is not contiguous (and perhaps a symbol): write it back.
        if not getattr(self.base, "_is_contiguous", False):
            self.base[...] = row.reshape(self.base.shape)

    def copy(self) -> Any:
        """The elements in an array of one dimension."""
        return self.base.flatten()

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        return self.base.reshape(-1).__array__(*arguments, **options)


class ElementMethods(NumpyProtocols):
    """Methods of NumPy's arrays that are not operations."""

    __slots__ = ()

    #: Whether it has the manners of MXNet 1's NDArray, see `gemel.legacy.ndarray`.
    _is_nd = False

    def __copy__(self: Any) -> Any:
        return self.copy()

    def __deepcopy__(self: Any, memo: Any) -> Any:
        return self.copy()

    def __contains__(self: Any, value: Any) -> bool:
        """Whether any element equals `value`. Waits for them."""
        equal = self == value
        return equal if isinstance(equal, bool) else bool(equal.any())

    def asscalar(self: Any) -> Any:
        """The element of an array of one, as a Python number. Waits for it."""
        return self.item()

    def itemset(self: Any, *arguments: Any) -> None:
        """Write one element: `x.itemset(value)`, `x.itemset(position, value)`."""
        *index, value = arguments
        self._one(tuple(index))[...] = value

    def _one(self: Any, index: tuple[Any, ...]) -> Any:
        """The element at a position: one number counts in the flattened array."""
        if len(index) == 1 and isinstance(index[0], tuple):
            (index,) = index
        if len(index) == 1 and self.ndim != 1:
            at = range(self.size)[index[0]]
            found = []
            for extent in reversed(self.shape):
                at, rest = divmod(at, extent)
                found.append(rest)
            index = tuple(reversed(found))
        if len(index) != self.ndim and (index or self.size != 1):
            raise ShapeError(
                f"item: {list(index)} is not a valid index into shape {list(self.shape)}"
            )
        return self[index] if index else self.reshape(())

    def fill(self: Any, value: Any) -> None:
        """Set all elements to one number."""
        self[...] = value

    @property
    def flat(self) -> Flat:
        """The elements one after another, to read and to write."""
        return Flat(self)

    @flat.setter
    def flat(self: Any, value: Any) -> None:
        Flat(self)[:] = value

    def put(self: Any, indices: Any, values: Any, mode: str = "raise") -> None:
        """Write values at positions of the flattened array: see `np.put`."""
        own("np", "put")(self, indices, values, mode)

    def partition(self: Any, kth: Any, axis: int = -1) -> None:
        """Partially sort each row along an axis in place: see `np.partition`."""
        self[...] = own("np", "partition")(self, kth, axis)

    def as_np_ndarray(self: Any) -> Any:
        """The same elements with NumPy's methods: this array itself, if it has those."""
        return self

    def as_nd_ndarray(self: Any) -> Any:
        """The same elements, on the same memory, with the methods of MXNet 1's NDArray."""
        return import_module("gemel.legacy.ndarray").shown_as_nd(self)


__all__ = ["ElementMethods", "Flat"]
