"""`np`: NumPy's functions on gemel's arrays.

An operation or function is public here if its declaration says so (``public="np"``, see
`gemel.ir.public`). `__init__.pyi`, which `make stubs` writes, lists all of them for type checkers.
"""

from __future__ import annotations

from typing import Any

from gemel.dtype import BY_NAME, DTYPES, DType, bool_, int64, uint64
from gemel.ir.late import later
from gemel.ir.public import NAMESPACES, lookup
from gemel.np import creation, queries, random  # noqa: F401 -- they declare public functions

later("gemel.np.types", "gemel.np.standard", "gemel.np.linalg", "gemel.np.fft")
later("gemel.np.grids", "gemel.np.printing", "gemel.np.text", "gemel.npx.sharing")

#: What gemel takes from NumPy unchanged: families of dtypes, numbers as text, switches of NumPy's
#: warnings, and its iterators, which also read gemel's arrays.
FROM_NUMPY = (
    *("character", "complexfloating", "flexible", "floating", "generic", "inexact", "integer"),
    *("number", "signedinteger", "unsignedinteger", "bytes_", "object_", "str_", "void"),
    *("base_repr", "binary_repr", "format_float_positional", "format_float_scientific"),
    *("errstate", "geterr", "seterr"),
    *("min_scalar_type", "nditer", "nested_iters", "poly1d"),
)

#: The C names of dtypes.
C_NAMES = {
    **{"half": "float16", "single": "float32", "double": "float64"},
    **{"csingle": "complex64", "cdouble": "complex128"},
    **{"byte": "int8", "short": "int16", "intc": "int32", "long": "int64", "longlong": "int64"},
}

_others = {
    **{dtype.name: dtype for dtype in DTYPES},
    "__array_api_version__": "2024.12",
    "DType": DType,
    **{name: BY_NAME[dtype] for name, dtype in C_NAMES.items()},
    **{f"u{n}": BY_NAME[f"u{dtype}"] for n, dtype in C_NAMES.items() if dtype.startswith("int")},
    "bool": bool_,
    "bool_": bool_,
    "int_": int64,
    "intp": int64,
    "uint": uint64,
    "uintp": uint64,
    "True_": True,
    "False_": False,
    "e": 2.718281828459045,
    "euler_gamma": 0.5772156649015329,
    "inf": float("inf"),
    "nan": float("nan"),
    # MXNet's names for them.
    **dict.fromkeys(("PINF", "Inf", "Infinity"), float("inf")),
    **dict.fromkeys(("NAN", "NaN"), float("nan")),
    "NINF": -float("inf"),
    "NZERO": -0.0,
    "PZERO": 0.0,
    "newaxis": None,
    "pi": 3.141592653589793,
    "random": random,
}
globals().update(_others, **NAMESPACES["np"])


def __getattr__(name: str) -> Any:
    return lookup(name, __name__, globals(), _others, ("fft", "linalg"), FROM_NUMPY)


def __dir__() -> list[str]:
    return __getattr__("__all__")  # type: ignore[no-any-return]
