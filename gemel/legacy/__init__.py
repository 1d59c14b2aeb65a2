"""MXNet's operations under its names and keywords, implemented by those of `np` and `npx`.

Each has one declaration. `F`, `gemel.symbol` and `gemel.ndarray` offer the operations under these
names, the nodes of a symbol file are run by them, and exported calls are written in terms of them.

`declare`, `facade`
    What a declaration is, and the modules that offer the operations.
`arithmetic`, `arrange`, `matrices`, `numeric`, `derived`
    Elementwise operations and reductions, movements, linear algebra, and what has NumPy's names.
`layers`, `sequences`, `ends`, `control`
    Operations of layers, recurrent ones, output layers with the gradient of a loss, loops.
`draws`, `drawn`
    Random numbers: the namespace, and the operations.
`updates`, `steps`
    The steps of optimizers.
`rare`, `contrib`
    What few programs use.
`ndarray`
    The class `NDArray`.
"""

from __future__ import annotations

from gemel.legacy.declare import Legacy, find, known, wanted

__all__ = ["Legacy", "find", "known", "wanted"]
