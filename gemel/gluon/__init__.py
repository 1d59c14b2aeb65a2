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
    from gemel.gluon import contrib, data, loss, model_zoo, utils
    from gemel.gluon.trainer import Trainer

__all__ = [
    "Block",
    "Constant",
    "HybridBlock",
    "Parameter",
    "ParameterDict",
    "Trainer",
    "contrib",
    "data",
    "loss",
    "model_zoo",
    "nn",
    "parameter",
    "utils",
]


def __getattr__(name: str) -> Any:
    if name in ("contrib", "data", "loss", "model_zoo", "utils"):
        # The import system sets the attribute, so this runs once for each name.
        __import__(f"gemel.gluon.{name}")
        return globals()[name]
    if name == "Trainer":
        from gemel.gluon.trainer import Trainer

        globals()[name] = Trainer
        return Trainer
    raise AttributeError(f"module 'gemel.gluon' has no attribute {name!r}")
