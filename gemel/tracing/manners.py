"""Whose manners arrays have: NumPy's or MXNet 1's. Results have those of the arrays given.

Of several kinds the first array among the arguments decides.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gemel.ir.graph import Entry
from gemel.ndarray import ndarray


def is_nd(value: Any) -> bool:
    """Whether a value is an NDArray of MXNet 1's, or stands for one in a trace."""
    return getattr(value, "_is_nd", False)


def are_nd(values: Any) -> bool:
    """Whether the first array in nested values is one."""
    return is_nd(_first(values))


def _first(values: Any) -> Any:
    """The first array, or what stands for one, in lists, tuples and dicts; None: there is none."""
    if isinstance(values, (ndarray, Entry)):
        return values
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, (list, tuple)):
        return None
    return next((found for found in map(_first, values) if found is not None), None)


def as_nd(value: Any) -> Any:
    """Nested results with all arrays as NDArrays. New ones become that, others are shown as it.

    What a function gives beside arrays, lists, tuples and dicts stays as it is.
    """
    if isinstance(value, ndarray):
        if type(value) is not ndarray or value._grad is not None:
            return value.as_nd_ndarray()  # a variable stays what its owner made it
        value.__class__ = import_module("gemel.legacy.ndarray").NDArray
        return value
    if isinstance(value, Entry):
        return value.as_nd_ndarray()
    if isinstance(value, (list, tuple)):
        items = [as_nd(item) for item in value]
        if type(value) in (list, tuple):
            return type(value)(items)
        return type(value)(*items) if hasattr(value, "_fields") else value
    if type(value) is dict:
        return {name: as_nd(item) for name, item in value.items()}
    return value


__all__ = ["are_nd", "as_nd", "is_nd"]
