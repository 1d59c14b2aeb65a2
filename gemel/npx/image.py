"""`npx.image`: images as arrays, (H, W, C) or (N, H, W, C).

A function is public here if its declaration says so, see `gemel.ops.images`.
"""

from __future__ import annotations

from typing import Any

from gemel.ir.public import NAMESPACES, lookup

globals().update(NAMESPACES["npx.image"])


def __getattr__(name: str) -> Any:
    return lookup(name, __name__, globals(), {})


def __dir__() -> list[str]:
    return __getattr__("__all__")  # type: ignore[no-any-return]
