"""Operations on Python numbers, computed while tracing (constant folding)."""

from __future__ import annotations

import math
from typing import Any

from gemel.ir.op import Op
from gemel.ir.op_kinds import Elementwise
from gemel.spec import Spec


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


def computed(
    op: Op | None, specs: tuple[Spec, ...], parameters: dict[str, Any], numbers: list[Any]
) -> tuple[Any, ...] | None:
    """An operation's results on Python numbers; None if only the kernel can compute them.

    That is the case for 1 / 0 and log(-1), which raise in Python, for functions that Python lacks,
    and for operations that are not elementwise.
    """
    if not isinstance(op, Elementwise) or op.random or not numbers:
        return None
    types, dtypes = op.types(specs, parameters)
    try:
        values = [_number(d.kind, n) for d, n in zip(types, numbers, strict=True)]
        found = op.body(PythonLane(), *values, **parameters)
        results = found if op.outputs > 1 else (found,)
        return tuple(_number(d.kind, n) for d, n in zip(dtypes, results, strict=True))
    except (ArithmeticError, ValueError, AttributeError, TypeError):
        return None


def _number(kind: str, value: Any) -> Any:
    if kind == "c":
        return complex(value)
    return bool(value) if kind == "b" else float(value) if kind == "f" else int(value)


def known_number(entry: Any, what: str) -> Any:
    """The value of an entry computed from numbers alone. Raises `TraceError`, naming `what`."""
    node = entry.node
    if node.op is None:
        return entry._value(what)
    numbers = [known_number(source, what) for source in node.inputs]
    specs = tuple(source.spec for source in node.inputs)
    found = computed(node.op, specs, node.params, numbers)
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


__all__ = ["beyond", "computed", "known_number", "plain_number"]
