"""MXNet's operations under its names and keywords, implemented by those of `np` and `npx`.

Each has one declaration. `F`, `gemel.symbol` and `gemel.ndarray` offer the operations under these
names, the nodes of a symbol file are run by them, and exported calls are written in terms of them.
"""

from __future__ import annotations

from gemel.legacy.declare import Legacy, find, known, wanted

__all__ = ["Legacy", "find", "known", "wanted"]
