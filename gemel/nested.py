"""Nested arguments and results: lists, tuples and dicts of arrays as a structure and its leaves."""

from __future__ import annotations

import math
from typing import Any

from gemel.ir.graph import Entry
from gemel.ndarray import array_like, ndarray


def flatten(value: Any, out: list[Any]) -> Any:
    """Put the leaves of nested lists, tuples and dicts into `out`; the structure is returned."""
    if isinstance(value, (list, tuple)):
        return type(value), tuple(flatten(item, out) for item in value)
    if isinstance(value, dict):
        return dict, tuple((name, flatten(item, out)) for name, item in value.items())
    if isinstance(value, (ndarray, Entry)):
        out.append(value)
        return None
    if hasattr(value, "__array__"):
        out.append(array_like(value))
        return None
    if type(value) is float:  # 0.0 == -0.0, and they are not the same
        return "static", math.copysign(1.0, value), value
    return "static", type(value), value


def unflatten(structure: Any, leaves: Any) -> Any:
    """The nested value whose leaves come from an iterator."""
    if structure is None:
        return next(leaves)
    kind, *rest = structure
    if kind == "static":
        return rest[1]
    if kind is dict:
        return {name: unflatten(item, leaves) for name, item in rest[0]}
    items = [unflatten(item, leaves) for item in rest[0]]
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def flatten_results(value: Any, out: list[Any]) -> Any:
    """Like `flatten`, for what a function returns: numbers are results too."""
    if isinstance(value, (list, tuple)):
        return type(value), tuple(flatten_results(item, out) for item in value)
    if isinstance(value, dict):
        return dict, tuple((name, flatten_results(item, out)) for name, item in value.items())
    if value is None:
        return "static", type(None), None
    out.append(value)
    return None


__all__ = ["flatten", "flatten_results", "unflatten"]
