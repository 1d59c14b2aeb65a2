"""Recurrent layers over whole sequences, and the cells they can be built from."""

from __future__ import annotations

from types import ModuleType

from gemel.elsewhere import module_elsewhere
from gemel.gluon.rnn.cells import (
    GRUCell,
    HybridRecurrentCell,
    LSTMCell,
    LSTMPCell,
    RecurrentCell,
    RNNCell,
)
from gemel.gluon.rnn.combined import (
    BidirectionalCell,
    DropoutCell,
    HybridSequentialRNNCell,
    ModifierCell,
    ResidualCell,
    SequentialRNNCell,
    VariationalDropoutCell,
    ZoneoutCell,
)
from gemel.gluon.rnn.convolutional import (
    Conv1DGRUCell,
    Conv1DLSTMCell,
    Conv1DRNNCell,
    Conv2DGRUCell,
    Conv2DLSTMCell,
    Conv2DRNNCell,
    Conv3DGRUCell,
    Conv3DLSTMCell,
    Conv3DRNNCell,
)
from gemel.gluon.rnn.layers import GRU, LSTM, RNN

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "BidirectionalCell",
    "Conv1DGRUCell",
    "Conv1DLSTMCell",
    "Conv1DRNNCell",
    "Conv2DGRUCell",
    "Conv2DLSTMCell",
    "Conv2DRNNCell",
    "Conv3DGRUCell",
    "Conv3DLSTMCell",
    "Conv3DRNNCell",
    "DropoutCell",
    "GRUCell",
    "HybridRecurrentCell",
    "HybridSequentialRNNCell",
    "LSTMCell",
    "LSTMPCell",
    "ModifierCell",
    "RNNCell",
    "RecurrentCell",
    "ResidualCell",
    "SequentialRNNCell",
    "VariationalDropoutCell",
    "ZoneoutCell",
]


def __getattr__(name: str) -> ModuleType:
    return module_elsewhere(__name__, name, __all__)
