"""Histograms: how many elements lie in each bin, counted by NumPy."""

from __future__ import annotations

from typing import Any

from gemel.device import beside_arrays
from gemel.dtype import default_float, float64, int64
from gemel.errors import ShapeError
from gemel.ir.above import above
from gemel.ir.declare import op
from gemel.ir.keywords import number
from gemel.ir.protocols import computed
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.shape import operand
from gemel.spec import Spec, is_several, same_shape, sequence, whole


@op(dynamic=True, public="np", mxnet="_npi_bincount")
def bincount(x: Any, weights: Any = None, *, minlength: int = 0) -> Any:
    """Count how often each number from 0 occurs, or sum its weights. Waits for the elements."""
    return numpy().bincount(x, weights, minlength)


@bincount.facade
def _(x: Any, /, weights: Any = None, minlength: int = 0) -> Array:
    """How often each number from 0 on occurs, or the sum of its weights. Waits for them.

    >>> np.bincount(np.array([0, 2, 2], "int64"))
    """
    inputs = (x,) if weights is None else (x, weights)
    whole, *others = (operand(each, inputs) for each in (above.index_item(x, None), *inputs[1:]))
    return bincount(whole, *others, minlength=minlength)


@op()
def histogram_edges(x: Any, *, bins: int, limits: Any) -> Any:
    """The edges of `bins` bins of equal width, from the smallest element to the largest."""
    edges = numpy().histogram_bin_edges(x.astype("float64"), bins, limits)
    return edges.astype(x.dtype if x.dtype.kind == "f" else default_float().name)


@histogram_edges.spec
def _(x: Spec, *, bins: int, limits: Any) -> Spec:
    if bins < 1:
        raise ShapeError(f"histogram: {bins} is not a number of bins")
    return Spec((bins + 1,), x.dtype.floating)


@op()
def histogram_counts(x: Any, edges: Any, weights: Any = None, *, density: bool) -> Any:
    """How many elements lie between edges (or the sum of their weights); the last edge counts."""
    x = x.astype("uint8") if x.dtype == bool else x
    found = numpy().histogram(x, edges, None, density, weights)[0]
    return found.astype("float64") if density else found


@histogram_counts.spec
def _(x: Spec, edges: Spec, weights: Spec | None = None, *, density: bool) -> Spec:
    if edges.ndim != 1 or edges.shape[0] < 2:
        raise ShapeError(f"histogram: edges {edges} must be a one-dimensional array of two or more")
    if weights is not None and not same_shape(x.shape, weights.shape):
        raise ShapeError(f"histogram: weights {weights} must have the shape of {x}")
    plain = weights.dtype if weights is not None else int64
    return Spec((edges.shape[0] - 1,), float64 if density else plain)


@function(public="np")
@beside_arrays
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Array:
    """The edges of bins: `bins` itself, or that many equal bins over a range or all elements.

    One of NumPy's rules for the number of bins ("auto") waits for the elements.
    """
    if isinstance(bins, str):
        return computed(numpy().histogram_bin_edges, (operand(a), bins, range, weights), {})
    if is_several(bins):
        return operand(bins, (a,))
    bins = whole("histogram", "bins", bins)
    limits = (
        None
        if range is None
        else tuple(
            number("histogram", "range", end) for end in sequence("histogram", "range", range)
        )
    )
    return histogram_edges(operand(a), bins=bins, limits=limits)


@function(public="np")
@beside_arrays
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None
) -> tuple[Any, Any]:
    """The number of elements in each bin (or their weights, or a density), and the bins' edges."""
    a = operand(a)
    edges = histogram_bin_edges(a, bins, range, weights)
    extra = () if weights is None else (operand(weights, (a,)),)
    return histogram_counts(a, edges, *extra, density=density), edges
