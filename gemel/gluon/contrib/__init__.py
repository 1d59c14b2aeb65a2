"""What MXNet 1 kept under `contrib`: layers that are in `gluon.nn` now."""

from gemel.gluon.contrib import nn

__all__ = ["nn"]
