"""MXNet 1's checkpoints of symbols: ``PREFIX-symbol.json`` and ``PREFIX-0001.params``."""

from __future__ import annotations

from typing import Any

from gemel.legacy.ndarray import as_nd
from gemel.npx import serialize
from gemel.symbol import Symbol, load

Arrays = dict[str, Any]


def save_checkpoint(
    prefix: Any,
    epoch: int,
    symbol: Symbol | None,
    arg_params: Arrays,
    aux_params: Arrays,
    remove_amp_cast: bool = True,
) -> None:
    """Write a symbol, if one is given, and its arrays."""
    if symbol is not None:
        symbol.save(f"{prefix}-symbol.json")
    arrays = {f"arg:{name}": array for name, array in arg_params.items()}
    arrays.update({f"aux:{name}": array for name, array in aux_params.items()})
    serialize.save(f"{prefix}-{epoch:04d}.params", arrays)


def load_params(prefix: Any, epoch: int) -> tuple[Arrays, Arrays]:
    """The arrays of arguments and of auxiliary states. Raises `ParameterFileError`."""
    found: dict[str, Arrays] = {"arg": {}, "aux": {}}
    arrays = as_nd(serialize.load(f"{prefix}-{epoch:04d}.params"))
    for name, array in arrays.items():
        kind, _, bare = name.partition(":")
        if kind in found:
            found[kind][bare] = array
    return found["arg"], found["aux"]


def load_checkpoint(prefix: Any, epoch: int) -> tuple[Symbol, Arrays, Arrays]:
    """A symbol, and the arrays of its arguments and of its auxiliary states."""
    return load(f"{prefix}-symbol.json"), *load_params(prefix, epoch)


__all__ = ["load_checkpoint", "load_params", "save_checkpoint"]
