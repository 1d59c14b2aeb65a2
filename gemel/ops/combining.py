"""The methods of universal functions: `reduce`, `accumulate`, `reduceat`, `outer`, `at`.

Where there is an operation for the combination (`sum` for `add`, `max` for `maximum`), it is used,
with its kernels and gradient. For other functions NumPy combines.
"""

from __future__ import annotations

from typing import Any

from gemel.device import beside_arrays
from gemel.dtype import weak
from gemel.errors import ArgumentError, ArrayIndexError, ShapeError
from gemel.extent import NUMBER
from gemel.ir.above import above
from gemel.ir.declare import op
from gemel.ir.keywords import fits, into
from gemel.ir.methods import named
from gemel.ir.op import Op, find
from gemel.ir.public import Array
from gemel.ir.reference import numpy
from gemel.ops.assignment import contents
from gemel.ops.cumulative import cumprod, cumsum
from gemel.ops.elementwise import cast, iota, subtract
from gemel.ops.indexing import gather, scatter
from gemel.ops.reduction import all, any, in_dtype, max, min, prod, sum
from gemel.ops.scans import cummax, cummin, logcumsumexp
from gemel.ops.shape import broadcast_to, operand, operands, reshape
from gemel.spec import Spec, normalize_axes, normalize_axis, product

#: The reduction that combines elements by the function of this name.
REDUCTIONS: dict[str, Any] = {
    **{"add": sum, "multiply": prod, "maximum": max, "minimum": min},
    **{"logical_and": all, "logical_or": any},
}
#: The same for the elements so far. Sums and products of small integers are of wider ones.
RUNNING: dict[str, Any] = {
    **{"add": cumsum, "multiply": cumprod},
    **{"maximum": cummax, "minimum": cummin, "logaddexp": logcumsumexp},
}
WIDER = ("add", "multiply")
#: Functions that are sums, which kernels compute at positions.
SUMS = ("add", "subtract")
#: Functions whose result is one of their arguments.
EXTREMES = ("maximum", "minimum", "fmax", "fmin")


def _function(name: str) -> Any:
    """NumPy's function that combines as an operation does, if there is one."""
    return getattr(numpy(), name, None)


def _pairs(op: Op, method: str) -> None:
    """Raises `ArgumentError` unless `op` makes one array of two and NumPy has the method."""
    if op.arity != 2 or op.outputs != 1 or not hasattr(_function(op.name), method):
        raise ArgumentError(
            f"{op.name}.{method}: only functions of two arrays with one result have this method; "
            f"{op.name} takes {op.arity} and gives {op.outputs}"
        )


def _combined_dtype(by: str, x: Spec) -> Any:
    """The dtype of the function `by` of two elements of x."""
    element = Spec((), x.dtype)
    return find(by).infer(element, element)[0].dtype


# --- reduce ---------------------------------------------------------------------------------


@op(complex=True)
def fold_along(x: Any, *, by: str, axis: Any, keepdims: bool) -> Any:
    """The elements along axes combined by a function of two, from the first to the last."""
    x = numpy().asarray(x)
    for place in reversed(normalize_axes(by, axis, x.ndim)):
        x = _function(by).reduce(x, place, keepdims=keepdims)
    return numpy().asarray(x)


@fold_along.spec
def _(x: Spec, *, by: str, axis: Any, keepdims: bool) -> Spec:
    axes = normalize_axes(f"{by}.reduce", axis, x.ndim)
    empty = [a for a in axes if x.shape[a] == 0]
    if empty and _function(by).identity is None:
        raise ShapeError(f"{by}.reduce: {x}: axis {empty[0]} is empty, so the result is undefined")
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes]
    return Spec(shape, _combined_dtype(by, x))


@named
def combined(op: Op, array: Any, axis: Any, keepdims: bool, **options: Any) -> Array:
    """`op.reduce(array, axis)`; the options are those of reductions."""
    _pairs(op, "reduce")
    x = operand(array)
    if op.name in REDUCTIONS:
        return _reduction(op.name, x, axis, keepdims, **options)
    if options["where"] is not True:
        raise ArgumentError(
            f"{op.name}.reduce: where is only supported for {', '.join(REDUCTIONS)}"
        )
    x = in_dtype(x, options["dtype"])
    found = fold_along(x, by=op.name, axis=axis, keepdims=keepdims)
    if options["initial"] is not None:
        found = op(options["initial"], found)
    return into(f"{op.name}.reduce", options["out"], found)


def _reduction(
    name: str, x: Any, axis: Any, keepdims: bool, dtype: Any, out: Any, initial: Any, where: Any
) -> Array:
    reduction = REDUCTIONS[name]
    given = {"initial": initial, "where": where, "out": out}
    common = {key: given[key] for key in reduction.common}
    if name in WIDER:
        common["dtype"] = dtype
    return reduction(in_dtype(x, dtype), axis=axis, keepdims=keepdims, **common)


# --- accumulate, reduceat -------------------------------------------------------------------


@op(complex=True)
def running(x: Any, *, by: str, axis: int) -> Any:
    """The elements up to each one along an axis, combined by a function of two."""
    return _function(by).accumulate(x, axis)


@running.spec
def _(x: Spec, *, by: str, axis: int) -> Spec:
    normalize_axis(f"{by}.accumulate", axis, x.ndim)
    return Spec(x.shape, _combined_dtype(by, x))


@named
def combined_so_far(op: Op, array: Any, axis: int, dtype: Any, out: Any) -> Array:
    """`op.accumulate(array, axis)`."""
    _pairs(op, "accumulate")
    x = in_dtype(operand(array), dtype)
    if op.name in RUNNING:
        normalize_axis(f"{op.name}.accumulate", axis, x.ndim)
        found = in_dtype(RUNNING[op.name](x, axis=axis), dtype)
    else:
        found = running(x, by=op.name, axis=axis)
    return into(f"{op.name}.accumulate", out, found)


@op(fails=True, complex=True)
def fold_slices(x: Any, indices: Any, *, by: str, axis: int) -> Any:
    """The slices that begin at positions along an axis, combined by a function of two."""
    return _function(by).reduceat(x, indices, axis)


@fold_slices.spec
def _(x: Spec, indices: Spec, *, by: str, axis: int) -> Spec:
    place = normalize_axis(f"{by}.reduceat", axis, x.ndim)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise ArrayIndexError(
            f"{by}.reduceat: {indices} must be a one-dimensional array of positions"
        )
    shape = (*x.shape[:place], *indices.shape, *x.shape[place + 1 :])
    summed = by in WIDER and x.dtype.kind in "biu"
    return Spec(shape, sum.result_dtype(x.dtype) if summed else _combined_dtype(by, x))


@named
@beside_arrays
def combined_slices(op: Op, array: Any, indices: Any, axis: int, dtype: Any, out: Any) -> Array:
    """`op.reduceat(array, indices, axis)`."""
    _pairs(op, "reduceat")
    x = in_dtype(operand(array), dtype)
    indices = operand(above.index_item(indices, x))
    found = fold_slices(x, indices, by=op.name, axis=axis)
    return into(f"{op.name}.reduceat", out, in_dtype(found, dtype))


# --- outer, at ------------------------------------------------------------------------------


@named
def of_all_pairs(op: Op, a: Any, b: Any, **keywords: Any) -> Array:
    """`op.outer(a, b)`."""
    _pairs(op, "outer")
    a, b = operands((a, b))
    return op(reshape(a, shape=(*a.shape, *[1] * b.ndim)), b, **keywords)


@op(fails=True, complex=True)
def combine_flat(x: Any, positions: Any, values: Any, *, by: str) -> Any:
    """A row with values combined into it at positions, one after another."""
    found = numpy().array(x)
    _function(by).at(found, positions, values)
    return found


@op(fails=True, complex=True)
def extremes_flat(x: Any, positions: Any, values: Any, *, by: str) -> Any:
    """`combine_flat` by a function whose result is one of its arguments; it has a gradient."""
    return combine_flat.function(x, positions, values, by=by)


@combine_flat.spec
@extremes_flat.spec
def _(x: Spec, positions: Spec, values: Spec, *, by: str) -> Spec:
    return Spec(x.shape, x.dtype)


@extremes_flat.gradient
def _(g: Any, y: Any, x: Any, positions: Any, values: Any, *, by: str) -> Any:
    # Tied extremes share the gradient equally, as those of `max` do.
    kept = cast(x == y, dtype=x.dtype)
    met = cast(values == gather(y, positions, axis=0), dtype=x.dtype)
    share = g / (kept + scatter(met, positions, axis=0, shape=x.shape))
    return share * kept, None, gather(share, positions, axis=0) * met


@op(fails=True, complex=True)
def apply_flat(x: Any, positions: Any, *, by: str) -> Any:
    """A row with a function of one number applied to the elements at positions, as `at` does."""
    found = numpy().array(x)
    _function(by).at(found, positions)
    return found


@apply_flat.spec
def _(x: Spec, positions: Spec, *, by: str) -> Spec:
    return Spec(x.shape, x.dtype)


@named
@beside_arrays
def combine_at(op: Op, a: Any, indices: Any, b: Any) -> None:
    """`op.at(a, indices, b)`, with a[indices] expressed as positions in the flattened array."""
    operands = [a] if b is None else [a, b if isinstance(b, NUMBER) else operand(b, (a,))]
    if len(operands) != op.arity or not hasattr(_function(op.name), "at"):
        raise ArgumentError(f"{op.name}.at: {op.name} takes {op.arity} arrays, not {len(operands)}")
    specs = [
        Spec((), weak(x), weak=True) if isinstance(x, NUMBER) else Spec((), x.dtype)
        for x in operands
    ]
    fits(f"{op.name}.at", a, (), op.infer(*specs)[0].dtype, "same_kind")
    if op.name in SUMS and a.ndim and _is_rows(indices) and not a.dtype.is_complex:
        rows = operand(above.index_item(indices, a))
        value = contents(f"{op.name}.at", operands[1], a)
        value = broadcast_to(value, shape=(*rows.shape, *a.shape[1:]))
        a[...] = _added(op.name, a, rows, value)
        return
    size = product(a.shape)
    places = reshape(iota(shape=(size,), axis=0, dtype="int64"), shape=tuple(a.shape))[indices]
    row, flat = reshape(a, shape=(size,)), reshape(places, shape=(-1,))
    if b is None:
        a[...] = reshape(apply_flat(row, flat, by=op.name), shape=tuple(a.shape))
        return
    value = contents(f"{op.name}.at", operands[1], a)
    value = broadcast_to(value, shape=tuple(places.shape))
    value = reshape(value, shape=(-1,))
    a[...] = reshape(_with(op.name, row, flat, value), shape=tuple(a.shape))


def _is_rows(indices: Any) -> bool:
    """Whether these are positions along the first axis, in one array."""
    return hasattr(indices, "shape") and indices.ndim > 0 and indices.dtype.kind in "iu"


def _added(name: str, a: Any, rows: Any, value: Any) -> Any:
    """a with a value added, or subtracted, at positions along the first axis."""
    added = scatter(value, rows, axis=0, shape=tuple(a.shape))
    return a + added if name == "add" else subtract(a, added)


def _with(name: str, row: Any, flat: Any, value: Any) -> Any:
    """A row with values combined into it at positions. Sums use kernels; sums and extremes have
    gradients."""
    if name in SUMS and not row.dtype.is_complex:
        return _added(name, row, flat, value)
    if name in EXTREMES and not row.dtype.is_complex:
        return extremes_flat(row, flat, value, by=name)
    return combine_flat(row, flat, value, by=name)


__all__ = ["combine_at", "combined", "combined_slices", "combined_so_far", "of_all_pairs"]
