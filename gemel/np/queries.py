"""Questions about arrays that are answered at once: shapes, and comparisons of whole arrays."""

from __future__ import annotations

from typing import Any

from gemel.device import beside_arrays
from gemel.ir.public import function
from gemel.np.creation import asarray
from gemel.ops.logic import equal, isclose, isnan, logical_or
from gemel.spec import normalize_axes, product


@function(public="np")
def shape(a: Any) -> tuple[int, ...]:
    """The shape of an array or of anything that can be one."""
    return tuple(a.shape) if hasattr(a, "shape") else tuple(asarray(a).shape)


@function(public="np")
def ndim(a: Any) -> int:
    """The number of dimensions."""
    return len(shape(a))


@function(public="np")
def size(a: Any, axis: Any = None) -> int:
    """The number of elements, or of positions along one or more axes."""
    extents = shape(a)
    return product(extents[a] for a in normalize_axes("size", axis, len(extents)))


@function(public="np")
@beside_arrays
def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether all elements are close, as `isclose` says. Waits for both."""
    return bool(isclose(a, b, rtol, atol, equal_nan=equal_nan).all())


@function(public="np")
@beside_arrays
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Whether shapes and all elements are equal. Waits for both."""
    if shape(a1) != shape(a2):
        return False
    same = equal(a1, a2)
    return bool((logical_or(same, isnan(a1) & isnan(a2)) if equal_nan else same).all())
