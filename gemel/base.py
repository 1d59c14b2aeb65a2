"""The error programs for MXNet catch: every error gemel raises by design is one."""

from __future__ import annotations

from gemel.errors import GemelError

MXNetError = GemelError

__all__ = ["MXNetError"]
