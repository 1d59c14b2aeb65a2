"""Bytes and seconds as people write them. A KB is 1,000 bytes, as is usual for bandwidths."""

from __future__ import annotations

import re

from gemel.errors import TopologyError

_BYTES = {"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_STEPS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3))


def read_bytes(text: str) -> float:
    """Parse `160MB`, `64 kb` or `1e6`. Raises `TopologyError`."""
    found = re.fullmatch(r"\s*([\d.]+(?:[eE]\d+)?)\s*([A-Za-z]*)\s*", text)
    try:
        if found and found[2].upper() in _BYTES:
            return float(found[1]) * _BYTES[found[2].upper()]
    except ValueError:
        pass
    raise TopologyError(f"{text!r} is not a number of bytes; write 64KB, 160MB or 1.5GB")


def show_bytes(count: float) -> str:
    """Format as `160 MB`."""
    for unit, size in _STEPS:
        if count >= size:
            return f"{_short(count / size)} {unit}"
    return f"{_short(count)} B"


def show_seconds(seconds: float) -> str:
    """Format as `5.21 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size * 0.9995:
            return f"{_short(seconds / size)} {unit}"
    return f"{_short(seconds / 1e-6)} us"


def _short(value: float) -> str:
    """Three significant digits, without trailing zeros."""
    if value >= 99.95:
        return f"{value:.0f}"
    text = f"{value:.2f}" if value < 9.995 else f"{value:.1f}"
    return text.rstrip("0").rstrip(".")
