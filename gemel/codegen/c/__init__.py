"""Programs as C, for readers."""

from __future__ import annotations

from gemel.codegen.c.kernels import source

__all__ = ["source"]
