"""MXNet 1's `contrib`: its layers and cells are now in `gluon.nn` and `gluon.rnn`."""

from importlib import import_module
from typing import Any

from gemel.elsewhere import module_elsewhere
from gemel.gluon.contrib import nn, rnn

__all__ = ["cnn", "data", "estimator", "nn", "rnn"]


def __getattr__(name: str) -> Any:
    if name in ("data", "estimator"):
        return import_module(f"gemel.gluon.contrib.{name}")
    return module_elsewhere(__name__, name, __all__)
