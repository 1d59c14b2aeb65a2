"""Cells of `gluon.rnn` under the name they have in MXNet 1."""

from types import ModuleType

from gemel.elsewhere import module_elsewhere
from gemel.gluon.rnn import (
    Conv1DGRUCell,
    Conv1DLSTMCell,
    Conv1DRNNCell,
    Conv2DGRUCell,
    Conv2DLSTMCell,
    Conv2DRNNCell,
    Conv3DGRUCell,
    Conv3DLSTMCell,
    Conv3DRNNCell,
    LSTMPCell,
    VariationalDropoutCell,
)

__all__ = [
    "Conv1DGRUCell",
    "Conv1DLSTMCell",
    "Conv1DRNNCell",
    "Conv2DGRUCell",
    "Conv2DLSTMCell",
    "Conv2DRNNCell",
    "Conv3DGRUCell",
    "Conv3DLSTMCell",
    "Conv3DRNNCell",
    "LSTMPCell",
    "VariationalDropoutCell",
]


def __getattr__(name: str) -> ModuleType:
    return module_elsewhere(__name__, name, __all__)
