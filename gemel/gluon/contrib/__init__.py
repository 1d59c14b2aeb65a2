"""What MXNet 1 kept under `contrib`: layers and cells of `gluon.nn` and `gluon.rnn` now."""

from gemel.gluon.contrib import nn, rnn

__all__ = ["nn", "rnn"]
