"""`F`, the first argument of `hybrid_forward`: the operations under MXNet's names.

`gemel.symbol` while a block is traced, `gemel.ndarray` otherwise: the same operations, which take
both; `print(F)` tells which it is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def operations(symbols: bool) -> Any:
    """The module that `F` is."""
    return import_module("gemel.symbol" if symbols else "gemel.ndarray")
