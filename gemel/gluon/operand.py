"""What is not an array, although it has one: it takes no part in arithmetic."""

from __future__ import annotations

from typing import Any, NoReturn

from gemel.errors import OperandError


class HasArray:
    """Operators, indexing and conversion are those of its array, `data()`: they raise
    `OperandError`."""

    def _refused(self, *_: Any, **__: Any) -> NoReturn:
        raise OperandError(f"{self} is not an array; compute with its array: parameter.data()")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refused
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refused
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _refused
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __abs__ = __getitem__ = __array__ = _refused


__all__ = ["HasArray"]
