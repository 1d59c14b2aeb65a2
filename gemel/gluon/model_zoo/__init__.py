"""Well-known networks."""

from __future__ import annotations

from gemel.gluon.model_zoo import vision
from gemel.gluon.model_zoo.vision import get_model

__all__ = ["get_model", "vision"]
