"""Three ways to split the training of a network over devices, with one interface.

    split = parallel.Pipeline(net, [gpu(0), gpu(1)], micro_batches=8)
    trainer = gluon.Trainer(split.collect_params(), "adam")
    losses = split.step(trainer, x, y, gluon.loss.SoftmaxCrossEntropyLoss())

`DataParallel` splits the batch, `Pipeline` the list of layers, and `TensorParallel` the layers
themselves. docs/parallel.md describes the costs of each.
"""

from __future__ import annotations

from gemel.gluon.parallel.data import DataParallel
from gemel.gluon.parallel.pipeline import Pipeline
from gemel.gluon.parallel.split import Split, SplitError
from gemel.gluon.parallel.tensor import (
    ColumnDense,
    CutParameter,
    RowDense,
    SelfAttention,
    TensorParallel,
)

__all__ = [
    "ColumnDense",
    "CutParameter",
    "DataParallel",
    "Pipeline",
    "RowDense",
    "SelfAttention",
    "Split",
    "SplitError",
    "TensorParallel",
]
