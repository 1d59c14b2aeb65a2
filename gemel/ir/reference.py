"""NumPy, in which the references of operations are written."""

from __future__ import annotations

from typing import Any


def numpy() -> Any:
    """NumPy, imported on first use: a cached inference does not need it."""
    import numpy

    return numpy


__all__ = ["numpy"]
