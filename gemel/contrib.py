"""MXNet 1's `contrib`: mixed precision, ONNX, text, and operations of `nd` and `sym`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gemel.errors import unknown_attribute

#: The modules that its names refer to.
_ELSEWHERE = {
    "amp": "gemel.amp",
    "nd": "gemel.ndarray.contrib",
    "ndarray": "gemel.ndarray.contrib",
    "onnx": "gemel.onnx",
    "sym": "gemel.symbol.contrib",
    "symbol": "gemel.symbol.contrib",
    "text": "gemel.text",
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise unknown_attribute("gemel.contrib", name, __dir__())
    place = _ELSEWHERE[name]
    parent, _, last = place.rpartition(".")
    return import_module(place) if parent == "gemel" else getattr(import_module(parent), last)


def __dir__() -> list[str]:
    return sorted(_ELSEWHERE)
