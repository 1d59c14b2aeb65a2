"""Complex numbers and their parts. NumPy computes with them: kernels only move them about.

The gradient of a loss for a complex number is dL/dRe + i dL/dIm, the direction of steepest ascent.
"""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel.dtype import DType, as_dtype
from gemel.errors import DTypeError
from gemel.ir.declare import elementwise, op
from gemel.ir.methods import named
from gemel.ir.op import Op
from gemel.ir.public import Array, function, make_method
from gemel.ir.reference import numpy
from gemel.ops.elementwise import cast, where
from gemel.ops.logic import equal, not_equal
from gemel.ops.shape import broadcast_to, operand
from gemel.ops.trigonometry import arctan2
from gemel.spec import Spec, broadcast


def _part_types(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    (x,) = specs
    if not x.dtype.is_complex:
        raise DTypeError(f"{op.name}: {x} is not complex")
    return (x.dtype,), x.dtype.real


def _part(operation: Op, x: Any, place: int) -> Any:
    """The real (0) or imaginary (1) parts: a view, unless the array is traced or on the tape."""
    if not isinstance(x, _core.Array) or x._is_tracked:
        return operation(x)
    strides = tuple(2 * stride for stride in x._element_strides)
    return x._as_strided(x.shape, strides, 2 * x.offset + place, x.dtype.real.code)


@elementwise(dtype=_part_types, complex=True, public="np", mxnet="_npi_real")
def real(xp: Any, x: Any) -> Any:
    """The real part of each element."""
    return xp.real(x)


@real.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (cast(g, dtype=x.dtype),)


@real.put
def _(x: Any, value: Any, index: int) -> Any:
    return of_parts(cast(value, dtype=x.dtype.real), imag(x))


@real.facade
def _(val: Any) -> Array:
    """The real part of each element, as a view; of real numbers the array itself.

    Of what has a gradient recorded it is a copy.

    >>> np.real(np.array([1 + 2j, 3j]))
    """
    val = operand(val)
    return _part(real, val, 0) if val.dtype.is_complex else val


@elementwise(dtype=_part_types, complex=True, public="np", mxnet="_npi_imag")
def imag(xp: Any, x: Any) -> Any:
    """The imaginary part of each element."""
    return xp.imag(x)


@imag.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * 1j,)


@imag.put
def _(x: Any, value: Any, index: int) -> Any:
    return of_parts(real(x), cast(value, dtype=x.dtype.real))


@imag.facade
def _(val: Any) -> Array:
    """The imaginary part of each element, as a view; zeros for real numbers.

    Of what has a gradient recorded it is a copy.

    >>> np.imag(np.array([1 + 2j, 3j]))
    """
    val = operand(val)
    return _part(imag, val, 1) if val.dtype.is_complex else where(False, val, False)


@op(complex=True)
def of_parts(real: Any, imag: Any) -> Any:
    """Complex numbers from their parts; real + 1j * imag would give NaN for infinite parts."""
    found = numpy().empty(real.shape, as_dtype(real.dtype).complex.name)
    found.real, found.imag = real, imag
    return found


@of_parts.spec
def _(real: Spec, imag: Spec) -> Spec:
    return Spec(broadcast("of_parts", real, imag), real.dtype.complex)


@of_parts.gradient
def _(g: Any, y: Any, first: Any, second: Any) -> Any:
    return real(g), imag(g)


@named
def set_part(x: Any, value: Any, name: str) -> None:
    """x.real = value, x.imag = value."""
    if not x.dtype.is_complex:
        if name == "imag":
            raise DTypeError(f"imag: numbers of {x.dtype} have no imaginary part that could be set")
        x[...] = value
        return
    value = broadcast_to(cast(operand(value), dtype=x.dtype.real), shape=tuple(x.shape))
    x[...] = of_parts(value, imag(x)) if name == "real" else of_parts(real(x), value)


@elementwise(complex=True, public="np", aliases=("conjugate",), method=True, mxnet="_npi_conj")
def conj(xp: Any, x: Any) -> Any:
    """The complex conjugate of each element."""
    return xp.conj(x) if x.dtype.kind == "c" else x


make_method(conj, "conjugate")


@conj.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (conjugated(g),)


def conjugated(x: Any) -> Any:
    """`conj` of a complex array; any other array unchanged."""
    return conj(x) if x.dtype.is_complex else x


@function(public="np")
def angle(z: Any, deg: bool = False) -> Array:
    """The angle of each element from the positive real axis, in radians or degrees.

    >>> np.angle(np.array([1.0, 1j, -1.0]))
    """
    z = operand(z)
    found = arctan2(imag.face(z), real.face(z))
    return found * 57.29577951308232 if deg else found


@function(public="np")
def iscomplex(x: Any) -> Array:
    """Where the imaginary part is not zero.

    >>> np.iscomplex(np.array([1 + 1j, 1]))
    """
    return not_equal(imag.face(x), 0)


@function(public="np")
def isreal(x: Any) -> Array:
    """Where the imaginary part is zero.

    >>> np.isreal(np.array([1 + 1j, 1]))
    """
    return equal(imag.face(x), 0)


@function(public="np")
def iscomplexobj(x: Any) -> bool:
    """Whether an array has a complex dtype, or a number is complex."""
    return bool(operand(x).dtype.is_complex)


@function(public="np")
def isrealobj(x: Any) -> bool:
    """Whether an array has no complex dtype."""
    return not iscomplexobj(x)


@function(public="np")
def real_if_close(a: Any, tol: float = 100) -> Array:
    """The real parts if all imaginary parts are nearly zero, else the array. Waits for it.

    Nearly zero means below `tol` times the dtype's epsilon, or below `tol` if `tol` is 1 or less.

    >>> np.real_if_close(np.array([2 + 1e-9j, 3])).dtype
    """
    a = operand(a)
    if not a.dtype.is_complex:
        return a
    least = tol * float(numpy().finfo(a.dtype.name).eps) if tol > 1 else tol
    return real.face(a) if bool((abs(imag.face(a)) < least).all()) else a
