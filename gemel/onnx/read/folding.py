"""The arithmetic of shapes: operators on known numbers, which include extents of a trace.

Exporters write such arithmetic as nodes (Shape, Gather, Unsqueeze, Concat, Reshape). It is computed
here once, while the program is traced, and needs no arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from gemel.dtype import DType
from gemel.extent import Dim, maximum, minimum
from gemel.ir.reference import numpy
from gemel.onnx.read.known import MOST, Known, each, shape_of
from gemel.onnx.read.table import folds
from gemel.onnx.types import dtype_of
from gemel.spec import product

# --- arithmetic -------------------------------------------------------------------------------


def _quotient(a: Any, b: Any) -> Any:
    """Divide rounding towards zero, as ONNX does for integers."""
    if isinstance(a, Dim) or isinstance(b, Dim) or (a >= 0 and b > 0):
        return a // b
    return int(a / b) if b else 0


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Max": maximum,
    "Min": minimum,
    "Mul": operator.mul,
    "Sub": operator.sub,
}
TESTS: dict[str, Callable[..., Any]] = {
    "And": lambda a, b: bool(a and b),
    "Equal": operator.eq,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Or": lambda a, b: bool(a or b),
}

for _name, _function in ARITHMETIC.items():
    folds(_name)(lambda node, *x, f=_function: _whole(f, *x))
for _name, _function in TESTS.items():
    folds(_name)(lambda node, a, b, f=_function: each(f, a, b, dtype="bool"))


def _whole(function: Callable[..., Any], *inputs: Known) -> Known | None:
    """Compute integers only; results with a fraction have to be rounded as in arrays of their
    dtype."""
    if any(x.dtype.kind not in "iu" for x in inputs) or len(inputs) > 2:
        return None
    return each(function, *inputs)


@folds("Div")
def _(node: Any, a: Known, b: Known) -> Any:
    return _whole(_quotient, a, b)


@folds("Mod")
def _(node: Any, a: Known, b: Known) -> Any:
    return None if node.get("fmod", 0) else _whole(operator.mod, a, b)


@folds("Neg", "Abs")
def _(node: Any, x: Known) -> Any:
    return _whole(operator.neg if node.kind == "Neg" else operator.abs, x)


@folds("Not")
def _(node: Any, x: Known) -> Any:
    return each(lambda a: not a, x)


@folds("Where")
def _(node: Any, condition: Known, a: Known, b: Known) -> Any:
    return each(lambda c, x, y: x if c else y, condition, a, b, dtype=a.dtype)


@folds("Cast")
def _(node: Any, x: Known) -> Any:
    dtype: DType = dtype_of(node.get("to"), node.where)
    if x.is_fixed:
        return Known.of(x.numpy().astype(dtype.dtype), dtype)
    whole = dtype.kind in "iu" and x.dtype.kind in "iu" and dtype.itemsize >= 4
    return Known(x.list(), x.shape, dtype) if whole else None


@folds("ReduceProd", "ReduceSum")
def _(node: Any, x: Known, axes: Any = None) -> Any:
    if x.ndim != 1 or x.dtype.kind not in "iu":
        return None
    values: list[Any] = x.list()
    found: Any = product(values) if node.kind == "ReduceProd" else sum(values)
    return Known([found], (1,) if node.get("keepdims", 1) else (), x.dtype)


# --- movement ---------------------------------------------------------------------------------


folds("Shape")(shape_of)


@folds("Identity")
def _(node: Any, x: Known) -> Any:
    return x


@folds("Gather")
def _(node: Any, x: Known, indices: Known) -> Any:
    places, axis = indices.numpy(), node.get("axis", 0)
    return x.moved(lambda at: numpy().take(at, places, axis=axis))


@folds("Unsqueeze")
def _(node: Any, x: Known, axes: Any = None) -> Any:
    places = tuple(node.numbers(axes, "axes"))
    return x.moved(lambda at: numpy().expand_dims(at, places))


@folds("Squeeze")
def _(node: Any, x: Known, axes: Any = None) -> Any:
    places = node.numbers(axes, "axes")
    return x.moved(lambda at: numpy().squeeze(at, None if places is None else tuple(places)))


@folds("Reshape")
def _(node: Any, x: Known, shape: Any = None) -> Any:
    wanted = node.numbers(shape, "shape")
    if any(isinstance(n, Dim) for n in wanted):
        return None
    if not node.get("allowzero", 0):
        wanted = [x.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    return x.moved(lambda at: at.reshape(tuple(wanted)))


@folds("Transpose")
def _(node: Any, x: Known) -> Any:
    return x.moved(lambda at: numpy().transpose(at, node.get("perm")))


@folds("Slice")
def _(
    node: Any, x: Known, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None
) -> Any:
    first, last = node.numbers(starts, "starts"), node.numbers(ends, "ends")
    places = node.numbers(axes, "axes") or range(len(first))
    by = node.numbers(steps) or [1] * len(first)
    key = [slice(None)] * x.ndim
    for axis, *part in zip(places, first, last, by, strict=True):
        key[axis] = slice(*map(int, part))
    return x.moved(lambda at: at[tuple(key)])


@folds("Concat")
def _(node: Any, *parts: Known) -> Any:
    if any(part.ndim != 1 for part in parts):
        return None
    values = [n for part in parts for n in part.list()]
    return Known(values, (len(values),), parts[0].dtype)


@folds("Split")
def _(node: Any, x: Known, split: Any = None) -> Any:
    lengths = node.numbers(split, "split")
    if x.ndim != 1 or lengths is None:
        return None
    values, found = x.list(), []
    for length in map(int, lengths):
        found.append(Known(values[:length], (length,), x.dtype))
        values = values[length:]
    return tuple(found)


@folds("Expand", "Tile")
def _(node: Any, x: Known, shape: Known) -> Any:
    wanted = shape.list()
    if (
        any(isinstance(n, Dim) for n in wanted)
        or x.size * product(max(n, 1) for n in wanted) > MOST
    ):
        return None
    if node.kind == "Tile":
        return x.moved(lambda at: numpy().tile(at, wanted))
    whole = numpy().broadcast_shapes(x.shape, tuple(wanted))
    return x.moved(lambda at: numpy().broadcast_to(at, whole))


@folds("ConstantOfShape")
def _(node: Any, shape: Known) -> Any:
    value, wanted = node.get("value"), shape.list()
    whole = value is not None and value.dtype.kind in "iub"
    if not whole or any(isinstance(n, Dim) for n in wanted) or product(wanted) > MOST:
        return None
    return Known(value.list() * product(wanted), wanted, value.dtype)


@folds("Range")
def _(node: Any, start: Known, limit: Known, delta: Known) -> Any:
    bounds = [x.item() for x in (start, limit, delta)]
    if start.dtype.kind not in "iu" or any(isinstance(n, Dim) for n in bounds):
        return None
    values = range(*bounds)
    return Known(list(values), (len(values),), start.dtype) if len(values) <= MOST else None
