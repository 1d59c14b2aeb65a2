"""Operations on Python numbers, computed while tracing (constant folding)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemel.dtype import DType
    from gemel.ir.graph import Entry


class PythonLane:
    """The namespace `xp` for running an elementwise body on Python numbers."""

    maximum = staticmethod(lambda a, b: a if a != a or a > b else b)
    minimum = staticmethod(lambda a, b: a if a != a or a < b else b)
    where = staticmethod(lambda condition, a, b: a if condition else b)
    absolute = staticmethod(abs)
    power = staticmethod(lambda a, b: a**b)
    sign = staticmethod(lambda x: (x > 0) - (x < 0))
    logical_and = staticmethod(lambda a, b: bool(a) and bool(b))
    logical_or = staticmethod(lambda a, b: bool(a) or bool(b))
    logical_not = staticmethod(lambda x: not x)

    def __getattr__(self, name: str) -> Any:
        return getattr(math, name)


def body_on_numbers(
    body: Callable[..., Any],
    types: tuple[DType, ...],
    dtypes: tuple[DType, ...],
    numbers: list[Any],
    parameters: dict[str, Any],
) -> tuple[Any, ...] | None:
    """An elementwise body's results of these dtypes, on numbers converted to these types.

    None if only a kernel can compute them: 1 / 0 and log(-1), which raise in Python, and functions
    that Python lacks.
    """
    try:
        values = [_number(d.kind, n) for d, n in zip(types, numbers, strict=True)]
        found = body(PythonLane(), *values, **parameters)
        results = found if len(dtypes) > 1 else (found,)
        return tuple(_number(d.kind, n) for d, n in zip(dtypes, results, strict=True))
    except (ArithmeticError, ValueError, AttributeError, TypeError):
        return None


def _number(kind: str, value: Any) -> Any:
    if kind == "c":
        return complex(value)
    return bool(value) if kind == "b" else float(value) if kind == "f" else int(value)


def known_number(entry: Entry, what: str) -> Any:
    """The value of an entry computed from numbers alone. Raises `TraceError`, naming `what`."""
    node = entry.node
    if node.op is None:
        return entry._value(what)
    numbers = [known_number(source, what) for source in node.inputs]
    specs = tuple(source.spec for source in node.inputs)
    found = node.op.on_numbers(specs, node.params, numbers)
    if found is None:
        raise entry._unknown(what)
    return found[entry.index]


def beyond(value: Any) -> bool:
    """Whether an integer needs uint64. NumPy then makes an array of that dtype, and so does
    gemel."""
    return type(value) is int and value >= 2**63


def plain_number(value: Any) -> Any:
    """A plain Python number for an instance of a subclass, such as NumPy's float64."""
    if isinstance(value, bool) or type(value) in (int, float, complex):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, complex):
        return complex(value)
    return int(value) if type(value).__module__ == "numpy" and isinstance(value, int) else value


__all__ = ["beyond", "body_on_numbers", "known_number", "plain_number"]
