"""The methods of arrays and symbols: those written out, and one for each operation that says so.

`array_methods.pyi` lists them for type checkers; `make stubs` writes it.
"""

from __future__ import annotations

from gemel.ir.methods import WrittenMethods


class ArrayMethods(WrittenMethods):
    """The methods and operators of an array, for arrays and symbols alike."""

    __slots__ = ()


__all__ = ["ArrayMethods"]
