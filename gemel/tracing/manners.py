"""Whether arrays behave like NumPy's or MXNet 1's. Results behave like the given arrays.

If the arguments are mixed, the first array among them decides.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from gemel.ir.graph import Entry
from gemel.ndarray import ndarray


def is_nd(value: Any) -> bool:
    """Whether a value is an NDArray (MXNet 1's), or stands for one in a trace."""
    return getattr(value, "_is_nd", False)


def are_nd(values: Any) -> bool:
    """Whether the first array in nested values is an NDArray."""
    return is_nd(_first(values))


def _first(values: Any) -> Any:
    """The first array or entry in lists, tuples and dicts; None if there is none."""
    if isinstance(values, (ndarray, Entry)):
        return values
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, (list, tuple)):
        return None
    return next((found for found in map(_first, values) if found is not None), None)


def like(given: Any, results: Any) -> Any:
    """Nested results with the class of the first given array; unchanged if there is none."""
    first = _first(given)
    if first is None:
        return results
    return as_nd(results) if is_nd(first) else as_plain(results)


def as_nd(value: Any) -> Any:
    """Nested results with all arrays as NDArrays. These are new array objects over the same memory,
    so arrays that are in use elsewhere do not change.

    Values other than arrays, lists, tuples and dicts stay as they are.
    """
    return _turned(value, lambda array: array.as_nd_ndarray())


def made_nd(value: Any) -> Any:
    """`as_nd` for new arrays, which nobody else holds: these become NDArrays in place."""
    return _turned(value, _become_nd)


def as_plain(value: Any) -> Any:
    """Nested results with all arrays as plain ones; unchanged if they are plain already."""
    return _turned(value, lambda array: array.as_np_ndarray()) if _has_nd(value) else value


def _become_nd(array: Any) -> Any:
    if type(array) is not ndarray:
        return array.as_nd_ndarray()
    array.__class__ = import_module("gemel.legacy.ndarray").NDArray
    return array


def _turned(value: Any, turn: Callable[[Any], Any]) -> Any:
    """A nested value with `turn` applied to its arrays."""
    if isinstance(value, (ndarray, Entry)):
        return turn(value)
    if isinstance(value, (list, tuple)):
        items = [_turned(item, turn) for item in value]
        if type(value) in (list, tuple):
            return type(value)(items)
        return type(value)(*items) if hasattr(value, "_fields") else value
    if type(value) is dict:
        return {name: _turned(item, turn) for name, item in value.items()}
    return value


def _has_nd(value: Any) -> bool:
    """Whether there is an NDArray in a nested value."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return is_nd(value)
    return any(map(_has_nd, value))


__all__ = ["are_nd", "as_nd", "as_plain", "is_nd", "like", "made_nd"]
