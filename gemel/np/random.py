"""`np.random`: random arrays. `seed` makes a whole run repeatable.

A distribution is public here if its declaration says so (``public="np.random"``, see
`gemel.ir.public`). `random.pyi`, which `make stubs` writes, lists all of them for type checkers.
"""

from __future__ import annotations

from typing import Any

from gemel.ir.late import later
from gemel.ir.public import NAMESPACES, lookup
from gemel.ops.random import initialization

later("gemel.np.generator")

_others = {"initialization": initialization}
globals().update(NAMESPACES["np.random"])


def __getattr__(name: str) -> Any:
    return lookup(name, __name__, globals(), _others)


def __dir__() -> list[str]:
    return __getattr__("__all__")  # type: ignore[no-any-return]
