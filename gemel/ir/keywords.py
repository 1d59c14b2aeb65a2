"""The keywords that all NumPy functions of a kind share (`out`, `where`, `dtype`, ...), by kind.

`into` and `fits` implement `out`; `gemel.ops.keywords` implements the others by composing
operations. Calls without any of these keywords do not pass through here.
"""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel.dtype import as_dtype, castable
from gemel.errors import DTypeError, GradientError, OperandError, ShapeError, TraceError
from gemel.extent import Dim
from gemel.ir.array_methods import ArrayMethods
from gemel.ir.graph import Entry
from gemel.ir.methods import call
from gemel.ir.trace import own
from gemel.ranges import check_flag

#: The keywords of NumPy's universal functions, with their defaults.
UFUNC: dict[str, Any] = {
    "out": None,
    "where": True,
    "casting": "same_kind",
    "order": "K",
    "dtype": None,
    "subok": True,
}
#: The keywords of its generalized universal functions (matmul, vecdot).
ROWS: dict[str, Any] = {name: value for name, value in UFUNC.items() if name != "where"}
#: The keywords of any reduction; of one with `where`; of one that also has an `initial` value.
OUT: dict[str, Any] = {"out": None}
REDUCTION: dict[str, Any] = {"out": None, "where": True}
STARTED: dict[str, Any] = {"out": None, "initial": None, "where": True}
#: The keywords of a reduction by its `combine`.
REDUCTIONS = {
    **dict.fromkeys(("sum", "prod", "max", "min"), STARTED),
    **dict.fromkeys(("any", "all"), REDUCTION),
}
ORDERS = ("C", "F", "A", "K", None)


def into(name: str, out: Any, found: Any, casting: str = "same_kind") -> Any:
    """Write results into `out` (an array, or a tuple of as many) and return that.

    Without `out` the results themselves. The write is an assignment like any other: recorded on the
    tape, a node in a trace. Raises `TypeError` if `out` is not an array, `DTypeError` for a cast
    that `casting` forbids, `ShapeError` if the result does not broadcast to `out`.
    """
    if out is None:
        return found
    targets = out if isinstance(out, tuple) else (out,)
    values = found if isinstance(found, (tuple, list)) else (found,)
    if len(targets) != len(values):
        raise OperandError(f"{name}: {len(values)} results, but out has {len(targets)} arrays")
    for target, value in zip(targets, values, strict=True):
        if target is not None:
            fits(name, target, value.shape, value.dtype, casting)
        outside = isinstance(value, Entry) and isinstance(target, _core.Array)
        if outside and not _core.capturing():
            raise TraceError(
                f"{name}: out is an array from outside of the hybridized function, so it would "
                "change only while the function is traced; pass it as an argument, or return "
                "the result"
            )
    written = tuple(map(_written, targets, values))
    return written if isinstance(found, (tuple, list)) else written[0]


def _written(target: Any, value: Any) -> Any:
    if target is None:
        return value
    target[...] = value
    return target


def check_target(name: str, target: Any) -> None:
    """Raise `OperandError` unless `target` is an array that a result can be written to."""
    is_array: bool = isinstance(target, ArrayMethods)
    if not is_array:
        kind = type(target).__name__
        raise OperandError(
            f"{name}: out is {kind}; it must be a gemel array or a tuple of gemel arrays"
        )


def fits(name: str, target: Any, shape: Any, dtype: Any, casting: str) -> None:
    """Raises what `into` raises for a target that cannot hold a result of this spec."""
    check_target(name, target)
    if not castable(dtype, target.dtype, casting):
        raise DTypeError(
            f"{name}: unsafe cast: a result of dtype {dtype} cannot be stored in out of dtype "
            f"{target.dtype} (casting={casting!r}); use an out of dtype {dtype}, or "
            "casting='unsafe'"
        )
    lead = target.ndim - len(shape)
    pairs = zip(shape, target.shape[max(lead, 0) :], strict=False)
    if lead < 0 or not all(m == n or m == 1 for m, n in pairs):
        raise ShapeError(
            f"{name}: a result of shape {list(shape)} cannot be stored in out of shape "
            f"{list(target.shape)}"
        )


def converted(name: str, x: Any, dtype: Any, casting: str) -> Any:
    """x in a dtype. Raises `DTypeError` if `casting` does not allow the conversion."""
    target = as_dtype(dtype)
    if not castable(x.dtype, target, casting):
        hint = f"(casting={casting!r}); use casting='unsafe'"
        raise DTypeError(f"{name}: unsafe cast: {x.dtype} to {target} {hint}")
    return x if x.dtype is target else call("cast", x, dtype=target)


def check_unrecorded(name: str, kind: str, value: Any) -> None:
    """Raise `GradientError` for a recorded array whose numbers are about to be read.

    The result would depend on it, and its gradient would be 0.
    """
    if getattr(value, "_is_tracked", False) and _core.recording():
        raise GradientError(
            f"{name}: {kind} is a recorded array, but {name} has no gradient for it; use its "
            f"numbers, {kind}.item() or {kind}.tolist(), or {kind}.detach()"
        )


def number(name: str, kind: str, value: Any) -> float:
    """A real number that an operation reads when it is called.

    Raises `TypeError` for anything else, such as an array of several, and `GradientError` for a
    recorded array.
    """
    check_unrecorded(name, kind, value)
    try:
        return float(value)
    except (TypeError, ValueError):
        shape = getattr(value, "shape", ())
        given = f"an array of shape {list(shape)}" if len(shape) else repr(value)
        raise OperandError(f"{name}: {kind} is {given}; it must be a number") from None


def static(value: Any, name: str = "", kind: str = "", default: Any = None) -> Any:
    """A parameter in hashable form: lists become tuples, NumPy's arrays too, and numbers Python's.

    `name` is the operation and `kind` the parameter, for errors. Raises `GradientError` for a
    recorded array, and `OperandError` for what is no parameter, or no truth value where the
    `default` is one.
    """
    if type(default) is bool:
        check_flag(name, kind, value)
    if value is None or type(value) is int:
        return value
    if isinstance(value, Dim):
        return own(value)
    if isinstance(value, (list, tuple)):
        try:
            return tuple([static(item, name, kind) for item in value])
        except RecursionError:
            rule = "contains itself, or is nested too deeply"
            where = " ".join(filter(None, (kind, f"a {type(value).__name__} that {rule}")))
            raise OperandError(f"{name or 'this operation'}: {where}") from None
    if isinstance(value, (_core.Array, Entry)):
        check_unrecorded(name or "this operation", kind or "a parameter", value)
        return value if value.shape else value.item()
    if type(value).__hash__ is None and hasattr(value, "tolist"):
        return static(value.tolist())
    if type(value).__hash__ is None:
        raise OperandError(
            f"{value!r} is not a parameter of an operation; parameters are numbers and names"
        )
    is_number = getattr(value, "shape", None) == () and hasattr(value, "item")
    return value.item() if is_number else value


__all__ = [
    "ORDERS",
    "OUT",
    "REDUCTION",
    "REDUCTIONS",
    "ROWS",
    "STARTED",
    "UFUNC",
    "check_unrecorded",
    "converted",
    "fits",
    "into",
    "number",
    "static",
]
