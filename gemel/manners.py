"""Methods of arrays that NumPy's and MXNet's have, and that are functions under other names."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any

from gemel import _core
from gemel.errors import ArgumentError, ShapeError
from gemel.ir.late import load
from gemel.ir.layout import dense_strides
from gemel.ir.protocols import NAMESPACES


def _np(name: str) -> Any:
    """A function of `gemel.np`."""
    load()
    return NAMESPACES["np"][name]


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
        if not self.base._is_contiguous:  # the row is a copy
            self.base[...] = row.reshape(self.base.shape)

    def copy(self) -> Any:
        """The elements in an array of one dimension."""
        return self.base.flatten()

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        return self.base.reshape(-1).__array__(*arguments, **options)


class Flags:
    """How an array lies in memory, by NumPy's names: `x.flags.c_contiguous`, `x.flags["C"]`."""

    __slots__ = ("c_contiguous", "f_contiguous", "writeable")

    def __init__(self, array: Any) -> None:
        pairs = zip(array.shape, array._element_strides, strict=True)
        lying = [(n, s) for n, s in pairs if n != 1][::-1]
        dense = dense_strides(tuple(n for n, _ in lying))
        self.c_contiguous = bool(array._is_contiguous)
        self.f_contiguous = not array.size or tuple(s for _, s in lying) == dense
        self.writeable = True

    def __getitem__(self, name: str) -> bool:
        short = {"C": "c_contiguous", "F": "f_contiguous", "W": "writeable"}
        found: bool = getattr(self, short.get(name, name.lower()))
        return found

    def __repr__(self) -> str:
        return "\n".join(f"  {name.upper()} : {getattr(self, name)}" for name in self.__slots__)


class Manners:
    """What NumPy's users call of an array, beside operations."""

    __slots__ = ()

    def item(self: Any, *index: Any) -> Any:
        """One element as a Python number: the only one, or that at a position. Waits for it."""
        return _core.Array.item(self._one(index) if index else self)

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
            raise ShapeError(f"item: {list(index)} names no element of shape {list(self.shape)}")
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

    @property
    def flags(self) -> Flags:
        """How the array lies in memory."""
        return Flags(self)

    def tobytes(self: Any, order: str = "C") -> bytes:
        """The elements as bytes, in C order (or "F"). Waits for them."""
        if order not in ("C", "F"):
            raise ArgumentError(f"tobytes: order {order!r} must be 'C' or 'F'")
        return bytes(_core.to_bytes(self if order == "C" else self.transpose()))

    def tofile(self: Any, file: str | PathLike[str] | Any, sep: str = "") -> None:
        """Write the elements into a file, as bytes or as text with `sep` between. Waits."""
        self.asnumpy().tofile(file, sep)

    def put(self: Any, indices: Any, values: Any, mode: str = "raise") -> None:
        """Write values at positions of the flattened array: see `np.put`."""
        _np("put")(self, indices, values, mode)

    def partition(self: Any, kth: Any, axis: int = -1) -> None:
        """Put each row along an axis in such an order, in place, as `np.partition` gives."""
        self[...] = _np("partition")(self, kth, axis)

    def as_np_ndarray(self: Any) -> Any:
        """The array itself: there is only one kind."""
        return self

    as_nd_ndarray = as_np_ndarray

    def drop_grad(self: Any) -> None:
        """No gradient is wanted any more: what `attach_grad` made is forgotten."""
        self.attach_grad("null")


__all__ = ["Flags", "Flat", "Manners"]
