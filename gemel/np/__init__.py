"""`np`: NumPy's names on gemel's arrays.

Operations and functions say themselves that they are public here (``public="np"``, see
`gemel.ir.public`). `__init__.pyi`, which `make stubs` writes, lists all of them for type checkers.
"""

from __future__ import annotations

from typing import Any

from gemel.dtype import DTYPES, DType, bool_
from gemel.errors import unknown_attribute
from gemel.ir.public import NAMESPACES
from gemel.np import creation, linalg, queries, random, types  # noqa: F401 -- they declare what is public here

_public = {
    **NAMESPACES["np"],
    **{dtype.name: dtype for dtype in DTYPES},
    "DType": DType,
    "bool": bool_,
    "bool_": bool_,
    "e": 2.718281828459045,
    "inf": float("inf"),
    "nan": float("nan"),
    "newaxis": None,
    "pi": 3.141592653589793,
    "linalg": linalg,
    "random": random,
}
globals().update(_public)
__all__ = sorted(_public)


def __getattr__(name: str) -> Any:
    raise unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return __all__
