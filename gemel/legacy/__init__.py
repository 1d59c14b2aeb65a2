"""MXNet's operations: its names and keywords, meant by the operations of `np` and `npx`.

One paragraph each. It is what `F`, `gemel.symbol` and `gemel.ndarray` offer under these names, what
a symbol file's nodes are run by, and what calls in a network are written down as.
"""

from __future__ import annotations

from gemel.legacy.declare import Legacy, find, known, wanted

__all__ = ["Legacy", "find", "known", "wanted"]
