"""Recurrent layers over whole sequences, and the cells they can be built from."""

from __future__ import annotations

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
from gemel.gluon.rnn.layers import GRU, LSTM, RNN

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "BidirectionalCell",
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
