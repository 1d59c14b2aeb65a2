"""Cells of `gluon.rnn` under the name they have in MXNet 1."""

from gemel.gluon.rnn import LSTMPCell, VariationalDropoutCell

__all__ = ["LSTMPCell", "VariationalDropoutCell"]
