"""`np.fft`: discrete Fourier transforms.

A function is public here if its declaration says so (``public="np.fft"``, see `gemel.ir.public`).
`fft.pyi`, which `make stubs` writes, lists all of them for type checkers.
"""

from __future__ import annotations

from typing import Any

from gemel.ir.public import NAMESPACES, lookup
from gemel.ops import fourier  # noqa: F401 -- it declares the public functions

globals().update(NAMESPACES["np.fft"])


def __getattr__(name: str) -> Any:
    return lookup(name, __name__, globals(), {})


def __dir__() -> list[str]:
    return __getattr__("__all__")  # type: ignore[no-any-return]
