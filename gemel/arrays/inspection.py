"""Methods of arrays about what is in memory, as in NumPy and MXNet."""

from __future__ import annotations

from os import PathLike
from typing import Any

from gemel import _core
from gemel.errors import ArgumentError
from gemel.ir.layout import dense_strides


class Flags:
    """The memory layout of an array, by NumPy's names: `x.flags.c_contiguous`, `x.flags["C"]`."""

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


#: The classes of arrays that accept floats as positions: MXNet 1's.
FLOATING: set[type] = set()


class Inspection:
    """Attributes and methods of NumPy that need an actual array, not a symbol."""

    __slots__ = ()

    def item(self: Any, *index: Any) -> Any:
        """One element as a Python number: the only element, or the one at a position. Waits for
        it."""
        return _core.Array.item(self._one(index) if index else self)

    @property
    def flags(self) -> Flags:
        """The memory layout of the array."""
        return Flags(self)

    def tobytes(self: Any, order: str = "C") -> bytes:
        """The elements as bytes, in C order (or "F"). Waits for them."""
        if order not in ("C", "F"):
            raise ArgumentError(f"tobytes: order {order!r} must be 'C' or 'F'")
        return bytes(_core.to_bytes(self if order == "C" else self.transpose()))

    def tofile(self: Any, file: str | PathLike[str] | Any, sep: str = "") -> None:
        """Write the elements into a file, as bytes or as text with `sep` between. Waits."""
        self.asnumpy().tofile(file, sep)

    def drop_grad(self: Any) -> None:
        """Undo `attach_grad`: the array is no longer a variable."""
        self.attach_grad("null")


__all__ = ["FLOATING", "Flags", "Inspection"]
