"""Polynomials as rows of coefficients, the highest power first."""

from __future__ import annotations

from typing import Any

from gemel.device import beside_arrays
from gemel.errors import ArgumentError, ShapeError
from gemel.ir.current import current_trace
from gemel.ir.protocols import computed
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.complexes import real
from gemel.ops.decomposing import eigvals
from gemel.ops.elementwise import add, cast, divide, full, iota, multiply, subtract
from gemel.ops.reduction import floating
from gemel.ops.series import convolve, trim_zeros
from gemel.ops.shape import concatenate, operand, operands, reshape
from gemel.ops.solving import matrices
from gemel.ranges import counted
from gemel.spec import Spec, promote_specs


def _coefficients(name: str, p: Any) -> Any:
    p = operand(p)
    if p.ndim > 1:
        raise ShapeError(f"{name}: {list(p.shape)}: coefficients must have one dimension")
    return reshape(p, shape=(-1,))


def _rows(name: str, *polynomials: Any) -> list[Any]:
    return [_coefficients(name, p) for p in operands(polynomials)]


@function(public="np")
@beside_arrays
def polyval(p: Any, x: Any) -> Array:
    """The polynomial's values at x, by Horner's rule.

    >>> np.polyval([3, 0, 1], np.array([0.0, 2.0]))
    """
    p, x = operands((p, x))
    p = _coefficients("polyval", p)
    found = full(0, shape=tuple(x.shape), dtype=x.dtype)
    for place in range(int(p.shape[0])):
        found = add(multiply(found, x), p[place])
    return found


def _together(a: Any, b: Any) -> tuple[Any, Any]:
    """Two rows of equal length: zeros are put before the shorter one."""
    length = max(a.shape[0], b.shape[0])
    rows = (
        concatenate(full(0, shape=(length - x.shape[0],), dtype=x.dtype), x, axis=0)
        if x.shape[0] != length
        else x
        for x in (a, b)
    )
    first, second = rows
    return first, second


@function(public="np")
@beside_arrays
def polyadd(a1: Any, a2: Any) -> Array:
    """The sum of two polynomials.

    >>> np.polyadd([1, 2], [9, 5, 4])
    """
    return add(*_together(*_rows("polyadd", a1, a2)))


@function(public="np")
@beside_arrays
def polysub(a1: Any, a2: Any) -> Array:
    """The difference of two polynomials.

    >>> np.polysub([2, 10, -2], [3, 10, -4])
    """
    return subtract(*_together(*_rows("polysub", a1, a2)))


@function(public="np")
@beside_arrays
def polymul(a1: Any, a2: Any) -> Array:
    """The product of two polynomials. Waits for them, and leaves out their leading zeros.

    In a compiled function shapes depend on no values, so the zeros stay.

    >>> np.polymul([0, 1, 2], [1, -2])
    """
    return convolve(*map(_without_leading_zeros, _rows("polymul", a1, a2)))


def _without_leading_zeros(p: Any) -> Any:
    """The coefficients from the first that is not zero: at least one. In a trace all of them."""
    if p.shape[0] == 0:
        return full(0, shape=(1,), dtype=p.dtype)
    if current_trace() is not None:
        return p
    trimmed = trim_zeros(p, "f")
    return trimmed if trimmed.shape[0] else p[-1:]


@function(public="np")
@beside_arrays
def polydiv(u: Any, v: Any) -> tuple[Any, ...]:
    """The quotient and remainder of two polynomials. Waits for them.

    >>> np.polydiv([3, 5, 2], [2, 1])
    """
    rows = [floating(row) for row in _rows("polydiv", u, v)]
    dtype = promote_specs(*(Spec(row.shape, row.dtype) for row in rows))
    return _by_numpy("polydiv", *(cast(row, dtype=dtype) for row in rows))


@function(public="np")
@beside_arrays
def polyder(p: Any, m: int = 1) -> Array:
    """The derivative of a polynomial, m times.

    >>> np.polyder([1, 1, 1, 1])
    """
    m = counted("polyder", "m", m, 0)
    p = _coefficients("polyder", p)
    for _ in range(m):
        left = max(p.shape[0] - 1, 0)
        powers = left - iota(shape=(left,), axis=0, dtype="int64")
        p = multiply(p[:left], cast(powers, dtype=p.dtype))
    return p


@function(public="np")
@beside_arrays
def polyint(p: Any, m: int = 1, k: Any = None) -> Array:
    """The integral of a polynomial, m times; `k` are the constants, one or one for each time.

    >>> np.polyint([3.0, 2.0, 1.0])
    """
    m = counted("polyint", "m", m, 0)
    p = floating(_coefficients("polyint", p))
    constants = [0] * m if k is None else list(k) if isinstance(k, (list, tuple)) else [k] * m
    if len(constants) != m:
        raise ArgumentError(f"polyint: {len(constants)} constants for {m} integrals")
    for constant in constants:
        powers = p.shape[0] - iota(shape=(p.shape[0],), axis=0, dtype="int64")
        last = full(constant, shape=(1,), dtype=p.dtype)
        p = concatenate(divide(p, cast(powers, dtype=p.dtype)), last, axis=0)
    return p


@function(public="np")
@beside_arrays
def poly(seq_of_zeros: Any) -> Array:
    """The polynomial with these zeros and 1 before the highest power.

    Of a square matrix it is the characteristic polynomial, whose zeros are the eigenvalues; real
    if the matrix is. That of complex numbers is real if they are conjugate pairs, for which this
    waits; in a compiled function dtypes depend on no values, so there it is complex.

    >>> np.poly([1.0, 2.0])
    """
    given = floating(operand(seq_of_zeros))
    if given.ndim == 2:
        matrices("poly", given.spec, square=True)
    zeros = _coefficients("poly", eigvals(given) if given.ndim == 2 else given)
    found = full(1, shape=(1,), dtype=zeros.dtype)
    one = found
    for place in range(int(zeros.shape[0])):
        found = convolve(found, concatenate(one, -zeros[place : place + 1], axis=0))
    if not zeros.dtype.is_complex:
        return found
    return real(found) if not given.dtype.is_complex or _are_conjugate(zeros) else found


def _are_conjugate(zeros: Any) -> bool:
    """Whether complex numbers are real or conjugate pairs; in a trace that is not known."""
    if current_trace() is not None:
        return False
    np, values = numpy(), zeros.asnumpy()
    return bool((np.sort(values) == np.sort(values.conj())).all())


@function(public="np")
@beside_arrays
def roots(p: Any) -> Array:
    """The zeros of a polynomial: eigenvalues of its companion matrix. Waits for it.

    Raises `DTypeError` for complex ones where there is no dtype for them.

    >>> np.roots([1.0, -3.0, 2.0])
    """
    (found,) = _by_numpy("roots", floating(_coefficients("roots", p)))
    return found


@function(public="np")
@beside_arrays
def polyfit(
    x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """The polynomial of degree `deg` nearest to the points in least squares. Waits for them.

    Computed in float64. With `full` also residuals, rank, singular values and `rcond`; with `cov`
    the covariances.

    >>> np.polyfit([0.0, 1.0, 2.0], [1.0, 3.0, 5.0], 1).round(4)
    """
    points = operands((x, y))
    w = None if w is None else operand(w, points)
    options = {"w": w, "full": full, "cov": cov, "rcond": rcond}
    return computed(numpy().polyfit, (*points, deg), options)


def _by_numpy(name: str, *arrays: Any) -> tuple[Any, ...]:
    """The results of NumPy's function, real ones in the dtype of the arrays."""
    found = computed(getattr(numpy(), name), arrays, {})
    many = found if isinstance(found, tuple) else (found,)
    dtype = arrays[0].dtype
    made = (reshape(operand(value), shape=(-1,)) for value in many)
    return tuple(cast(x, dtype=dtype) if x.dtype.is_floating else x for x in made)


__all__ = [
    "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval",
    "roots",
]  # fmt: skip
