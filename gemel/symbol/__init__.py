"""MXNet 1's symbols: `var`, operations under its names, `load`, `Group`.

`F` of `hybrid_forward` is this module while a block is traced, and `gemel.ndarray` otherwise: the
operations accept arrays, entries of a trace, and `Symbol`.

`symbol`, `node`, `scopes`, `functions`, `flow`
    A `Symbol`, the nodes it consists of, their names; `sym.np`, `sym.npx` and control flow.
`run`, `executor`, `history`
    Symbols run on arrays, or bound to them; the symbol of a recorded computation.
`json`
    MXNet's symbol files.
`export`, `traced`, `noting`, `outside`, `nodes`, `loops`, `own`
    A traced program as a symbol: the calls it made, what it closes over, the rules of single
    operations, loops, and gemel's own operations.
`composed`, `parts`, `sizes`, `slices`, `regrouping`
    For files, also ONNX's: operations as several others, and what is right for all sizes.
"""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel import np as _np
from gemel import npx as _npx
from gemel.ir.current import current_trace
from gemel.ir.graph import Entry
from gemel.legacy.facade import attribute, directory
from gemel.legacy.ndarray import giving
from gemel.ops.loops import leaves
from gemel.symbol.functions import Functions
from gemel.symbol.symbol import Symbol, compose, group, load, load_json, var

Variable = var
Group = group
fromjson = load_json
np, npx = Functions(_np, "np"), Functions(_npx, "npx")


def __getattr__(name: str) -> Any:
    return attribute(name, __name__, globals(), _both, _whole, (npx, np))


def __dir__() -> list[str]:
    return directory(*__all__, "fromjson")


def _both(operation: Any) -> Any:
    """An operation that accepts symbols, and arrays as `operation` itself does."""
    if operation.takes_symbols:
        return operation

    of_arrays = giving(operation)

    def call(*inputs: Any, **keywords: Any) -> Any:
        given = [*inputs, *keywords.values()]
        given += [each for held in given if isinstance(held, (list, tuple)) for each in held]
        of_symbols = any(isinstance(each, Symbol) for each in given)
        arrays = any(isinstance(each, (_core.Array, Entry)) for each in given)
        if not of_symbols and (arrays or current_trace() is not None):
            return of_arrays(*inputs, **keywords)
        return compose(operation, inputs, keywords)

    call.__name__ = call.__qualname__ = operation.__name__
    call.__doc__ = operation.__doc__
    return call


def _whole(function: Any) -> Any:
    """A function of `npx` or `np.random`; for loops and conditionals, one that accepts symbols."""
    if function.__name__ not in ("foreach", "while_loop", "cond"):
        return function

    def call(*inputs: Any, **keywords: Any) -> Any:
        from gemel.symbol import flow  # few programs need it

        given = leaves([*inputs, *keywords.values()])
        of_symbols = any(isinstance(each, Symbol) for each in given)
        apply = getattr(flow, function.__name__) if of_symbols else giving(function)
        return apply(*inputs, **keywords)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


__all__ = ["Group", "Symbol", "Variable", "load", "load_json", "var"]
