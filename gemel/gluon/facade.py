"""`F`, the first argument of `hybrid_forward`: the operations under MXNet's names.

It is `gemel.symbol` while a block is traced, and otherwise `gemel.ndarray`. Both have the same
operations, which accept arrays and symbols; `print(F)` shows which one it is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def operations(symbols: bool) -> Any:
    """The module to use as `F`."""
    return import_module("gemel.symbol" if symbols else "gemel.ndarray")
