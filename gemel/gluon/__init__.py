"""Training: blocks, layers, losses, data, `Trainer`.

What a program does not use is not imported: a network that only computes needs no trainer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel.gluon import nn, parameter
from gemel.gluon.block import Block
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.parameter import Constant, Parameter, ParameterDict

if TYPE_CHECKING:
    from gemel.gluon import data, loss, utils
    from gemel.gluon.symbol_block import SymbolBlock
    from gemel.gluon.trainer import Trainer

__all__ = [
    "Block",
    "Constant",
    "HybridBlock",
    "Parameter",
    "ParameterDict",
    "SymbolBlock",
    "Trainer",
    "data",
    "loss",
    "nn",
    "parameter",
    "utils",
]


def __getattr__(name: str) -> Any:
    if name in ("data", "loss", "utils"):
        # The import system sets the attribute, so this runs once for each name.
        __import__(f"gemel.gluon.{name}")
        return globals()[name]
    if name == "Trainer":
        from gemel.gluon.trainer import Trainer

        globals()[name] = Trainer
        return Trainer
    if name == "SymbolBlock":
        from gemel.gluon.symbol_block import SymbolBlock

        return globals().setdefault(name, SymbolBlock)
    raise AttributeError(f"module 'gemel.gluon' has no attribute {name!r}")
