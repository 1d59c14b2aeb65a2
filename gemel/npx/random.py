"""`npx.random`: random arrays that MXNet has in addition to `np.random`.

A function is public here if its declaration says so, see `gemel.np.random`.
"""

from __future__ import annotations

from typing import Any

from gemel.ir.public import NAMESPACES, lookup

globals().update(NAMESPACES["npx.random"])


def __getattr__(name: str) -> Any:
    return lookup(name, __name__, globals(), {})


def __dir__() -> list[str]:
    return __getattr__("__all__")  # type: ignore[no-any-return]
