"""Training: blocks, layers, losses, data, `Trainer`.

A program imports only what it uses: a network that only predicts does not load the trainer.

`block`, `hybrid`, `structure`, `naming`, `hooks`, `inputs`, `shapes`, `facade`, `summary`
    `Block` and `HybridBlock`; their children and programs, names, hooks, inputs, the inference of
    shapes, the `F` of `hybrid_forward`, the table of layers.
`variable`, `parameter`, `block_parameters`, `operand`, `checked`, `places`
    `Parameter` (in `variable`), `ParameterDict`, those of a block, and what their arguments mean.
`trainer`, `given`, `scaling`, `stepping`
    `Trainer`: its arguments, the scale of its loss, and steps compiled as one program.
`fitting`, `callbacks`, `job`, `checkpoint`
    `fit`, the loop around it: callbacks, several workers, a state to resume from.
`block_files`, `symbol_block`, `download`
    Files of parameters, files of networks, files from elsewhere.
`utils`
    Helpers of training loops.
`nn`, `rnn`, `loss`, `metric`, `data`, `model_zoo`, `probability`, `parallel`, `contrib`
    Layers, recurrent layers, losses, metrics, data, known networks, distributions, networks split
    over devices, and MXNet's `contrib`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gemel.gluon import nn, parameter
from gemel.gluon.block import Block
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.parameter import (
    Constant,
    DeferredInitializationError,
    Parameter,
    ParameterDict,
)

if TYPE_CHECKING:
    from gemel.gluon import (
        contrib,
        data,
        loss,
        metric,
        model_zoo,
        parallel,
        probability,
        rnn,
        utils,
    )
    from gemel.gluon.callbacks import Callback, ClipGradients, EarlyStopping
    from gemel.gluon.checkpoint import Checkpoint
    from gemel.gluon.fitting import Run, evaluate, fit
    from gemel.gluon.symbol_block import SymbolBlock
    from gemel.gluon.trainer import Trainer

__all__ = [
    "Block",
    "Callback",
    "Checkpoint",
    "ClipGradients",
    "Constant",
    "DeferredInitializationError",
    "EarlyStopping",
    "HybridBlock",
    "Parameter",
    "ParameterDict",
    "Run",
    "SymbolBlock",
    "Trainer",
    "contrib",
    "data",
    "evaluate",
    "fit",
    "loss",
    "metric",
    "model_zoo",
    "nn",
    "parallel",
    "parameter",
    "probability",
    "rnn",
    "utils",
]


#: Modules that are imported when they are first used.
_MODULES = (
    *("contrib", "data", "loss", "metric", "model_zoo"),
    *("parallel", "probability", "rnn", "trainer", "utils"),
)
#: The modules of names that are imported when they are first used.
_LATE = {
    "Callback": "callbacks",
    "Checkpoint": "checkpoint",
    "ClipGradients": "callbacks",
    "EarlyStopping": "callbacks",
    "Run": "fitting",
    "SymbolBlock": "symbol_block",
    "Trainer": "trainer",
    "evaluate": "fitting",
    "fit": "fitting",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        # The import system sets the attribute, so this runs once per name.
        __import__(f"gemel.gluon.{name}")
        return globals()[name]
    if name in _LATE:
        found = getattr(import_module(f"gemel.gluon.{_LATE[name]}"), name)
        return globals().setdefault(name, found)
    raise AttributeError(f"module 'gemel.gluon' has no attribute {name!r}")
