"""Discrete Fourier transforms, computed by NumPy (pocketfft).

The functions first cut or zero-pad an array to the requested size, so the transform operations keep
the lengths of their axes. float32 and integers give complex64. `norm` says which direction divides
by the number of elements: "backward", "forward", or ("ortho") both by its square root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemel.device import as_device
from gemel.dtype import as_dtype, default_float, float64
from gemel.errors import DTypeError, ShapeError, unknown_name
from gemel.extent import WHOLE
from gemel.ir.declare import op
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.arrange import roll
from gemel.ops.complexes import conj, conjugated
from gemel.ops.elementwise import iota, multiply, where
from gemel.ops.indexing import place
from gemel.ops.shape import listed, narrow, operand
from gemel.spec import Spec, normalize_axis, sequence

#: For each norm, the one that applies the same factor in the other direction.
OTHER = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


# --- declared operations --------------------------------------------------------------------


def _computed(x: Any) -> Any:
    """A NumPy array in gemel's complex dtype for it; NumPy might choose another precision."""
    return x.astype(as_dtype(x.dtype).complex.name, copy=False)


@op(complex=True)
def transform(x: Any, *, axes: Any, norm: str, inverse: bool) -> Any:
    """The Fourier transform along some axes, or its inverse."""
    fft = numpy().fft
    return (fft.ifftn if inverse else fft.fftn)(_computed(x), axes=axes, norm=norm)


@transform.spec
def _(x: Spec, *, axes: Any, norm: str, inverse: bool) -> Spec:
    return Spec(x.shape, x.dtype.complex)


@transform.gradient
def _(g: Any, y: Any, x: Any, *, axes: Any, norm: str, inverse: bool) -> Any:
    return (transform(g, axes=axes, norm=OTHER[norm], inverse=not inverse),)


@op()
def half_transform(x: Any, *, axis: int, norm: str) -> Any:
    """The transform of real numbers along an axis, without the half that the other half implies."""
    wide = x.astype(_computed(x).real.dtype, copy=False)
    return numpy().fft.rfft(wide, axis=axis, norm=norm)


@half_transform.spec
def _(x: Spec, *, axis: int, norm: str) -> Spec:
    shape = (*x.shape[:axis], x.shape[axis] // 2 + 1, *x.shape[axis + 1 :])
    return Spec(shape, x.dtype.complex)


@half_transform.gradient
def _(g: Any, y: Any, x: Any, *, axis: int, norm: str) -> Any:
    length = x.shape[axis]
    halves = multiply(g, _weights(g, axis, length, 0.5))
    return (whole_transform(halves, axis=axis, length=length, norm=OTHER[norm]),)


@op(complex=True)
def whole_transform(x: Any, *, axis: int, length: int, norm: str) -> Any:
    """The `length` real numbers along an axis whose half transform is x."""
    return numpy().fft.irfft(_computed(x), length, axis, norm)


@whole_transform.spec
def _(x: Spec, *, axis: int, length: int, norm: str) -> Spec:
    return Spec((*x.shape[:axis], length, *x.shape[axis + 1 :]), x.dtype.complex.real)


@whole_transform.gradient
def _(g: Any, y: Any, x: Any, *, axis: int, length: int, norm: str) -> Any:
    found = half_transform(g, axis=axis, norm=OTHER[norm])
    return (multiply(found, _weights(found, axis, length, 2.0)),)


def _weights(x: Any, axis: int, length: int, weight: float) -> Any:
    """1 for elements of a half transform without a conjugate in the other half, else `weight`."""
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    at = iota(shape=tuple(shape), axis=axis, dtype="int64")
    alone = (at == 0) | (at * 2 == length)
    return where(alone, 1.0, weight)


# --- public functions -----------------------------------------------------------------------


def _norm(name: str, norm: str | None) -> str:
    if norm is not None and not (isinstance(norm, str) and norm in OTHER):
        raise unknown_name(f"norm of {name}", norm, OTHER)
    return norm or "backward"


def _fitted(name: str, x: Any, axis: int, length: Any) -> Any:
    """x with `length` elements along an axis: cut off, or with zeros added at the end."""
    if not isinstance(length, WHOLE) or length < 1:
        raise ShapeError(f"{name}: {length!r} elements along axis {axis} cannot be transformed")
    extent = x.shape[axis]
    if length == extent:
        return x
    if length < extent:
        return narrow(x, axis=axis, start=0, length=length)
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    key = tuple(("slice", 0, n, 1) for n in x.shape)
    return place(x, key=key, shape=shape)


def _placed(name: str, x: Any, s: Any, axes: Any) -> list[tuple[int, int | None]]:
    """The axes of a transform, each once, and the requested lengths. Raises `ShapeError`."""
    lengths = None if s is None else list(sequence(name, "s", s))
    if axes is None:
        axes = range(x.ndim) if lengths is None else range(-len(lengths), 0)
    found = [normalize_axis(name, axis, x.ndim) for axis in sequence(name, "axes", axes)]
    if len({*found}) != len(found):
        raise ShapeError(f"{name}: axes {tuple(axes)} name an axis twice")
    if lengths is not None and len(lengths) != len(found):
        raise ShapeError(f"{name}: {len(lengths)} lengths do not fit {len(found)} axes")
    given = [None if n == -1 else n for n in lengths] if lengths else [None] * len(found)
    return list(zip(found, given, strict=True))


def _several(
    name: str, x: Any, places: list[tuple[int, int | None]], norm: str | None, inverse: bool
) -> Any:
    """A transform along some axes, after their lengths were fitted."""
    norm = _norm(name, norm)
    for axis, length in places:
        x = _fitted(name, x, axis, x.shape[axis] if length is None else length)
    if not places:
        return x if x.dtype.is_complex else x.astype(x.dtype.complex)
    return transform(x, axes=tuple(axis for axis, _ in places), norm=norm, inverse=inverse)


def _from_real(name: str, x: Any, places: list[tuple[int, int | None]], norm: str | None) -> Any:
    """The half transform along the last of some axes, then the full one along the others."""
    if x.dtype.is_complex:
        raise DTypeError(f"{name}: {Spec(x.shape, x.dtype)} is complex; use fft, or real(x)")
    if not places:
        raise ShapeError(f"{name}: the array must have at least one axis")
    *others, (axis, length) = places
    x = _fitted(name, x, axis, x.shape[axis] if length is None else length)
    found = half_transform(x, axis=axis, norm=_norm(name, norm))
    return _several(name, found, others, norm, False) if others else found


def _to_real(name: str, x: Any, places: list[tuple[int, int | None]], norm: str | None) -> Any:
    """The inverse of `_from_real`: along all but the last axis, then that of the half transform."""
    if not places:
        raise ShapeError(f"{name}: the array must have at least one axis")
    *others, (axis, length) = places
    x = _several(name, x, others, norm, True) if others else x
    length = 2 * (x.shape[axis] - 1) if length is None else length
    if not isinstance(length, WHOLE) or length < 1:
        raise ShapeError(f"{name}: {length!r} elements along axis {axis} cannot be transformed")
    x = _fitted(name, x, axis, length // 2 + 1)
    return whole_transform(x, axis=axis, length=length, norm=_norm(name, norm))


def _one(name: str, x: Any, n: Any, axis: int) -> list[tuple[int, int | None]]:
    if n is not None and (not isinstance(n, WHOLE) or n < 1):
        raise ShapeError(f"{name}: {n!r} elements cannot be transformed")
    return [(normalize_axis(name, axis, x.ndim), n)]


@function(public="np.fft")
def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The Fourier transform along an axis, truncated or padded with zeros to n elements.

    >>> np.fft.fft(np.array([1.0, 0.0, 0.0, 0.0]))
    """
    a = operand(a)
    return _several("fft", a, _one("fft", a, n, axis), norm, False)


@function(public="np.fft")
def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The inverse of `fft`.

    >>> np.fft.ifft(np.array([4.0, 0.0, 0.0, 0.0]))
    """
    a = operand(a)
    return _several("ifft", a, _one("ifft", a, n, axis), norm, True)


@function(public="np.fft")
def fftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = "backward") -> Array:
    """The discrete Fourier transform along several axes, or all, of the lengths `s`."""
    a = operand(a)
    return _several("fftn", a, _placed("fftn", a, s, axes), norm, False)


@function(public="np.fft")
def ifftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = "backward") -> Array:
    """The inverse of `fftn`."""
    a = operand(a)
    return _several("ifftn", a, _placed("ifftn", a, s, axes), norm, True)


@function(public="np.fft")
def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = "backward") -> Array:
    """The discrete Fourier transform of matrices.

    >>> np.fft.fft2(np.array([[1.0, 0.0], [0.0, 1.0]]))
    """
    a = operand(a)
    return _several("fft2", a, _placed("fft2", a, s, axes), norm, False)


@function(public="np.fft")
def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = "backward") -> Array:
    """The inverse of `fft2`.

    >>> np.fft.ifft2(np.array([[1.0, 0.0], [0.0, 1.0]]))
    """
    a = operand(a)
    return _several("ifft2", a, _placed("ifft2", a, s, axes), norm, True)


@function(public="np.fft")
def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The Fourier transform of real numbers: its first half, which determines the other half.

    Raises `DTypeError` for complex numbers.

    >>> np.fft.rfft(np.array([1.0, 0.0, 0.0, 0.0]))
    """
    a = operand(a)
    return _from_real("rfft", a, _one("rfft", a, n, axis), norm)


@function(public="np.fft")
def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The inverse of `rfft`: n real numbers, by default an even number of them.

    >>> np.fft.irfft(np.array([1.0, 1.0, 1.0]))
    """
    a = operand(a)
    return _to_real("irfft", a, _one("irfft", a, n, axis), norm)


@function(public="np.fft")
def rfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = "backward") -> Array:
    """The Fourier transform of real numbers along several axes, or all; half of it along the last
    axis."""
    a = operand(a)
    return _from_real("rfftn", a, _placed("rfftn", a, s, axes), norm)


@function(public="np.fft")
def irfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = "backward") -> Array:
    """The inverse of `rfftn`."""
    a = operand(a)
    return _to_real("irfftn", a, _placed("irfftn", a, s, axes), norm)


@function(public="np.fft")
def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = "backward") -> Array:
    """The Fourier transform of real matrices; half of it along the rows.

    >>> np.fft.rfft2(np.array([[1.0, 0.0], [0.0, 1.0]]))
    """
    a = operand(a)
    return _from_real("rfft2", a, _placed("rfft2", a, s, axes), norm)


@function(public="np.fft")
def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = "backward") -> Array:
    """The inverse of `rfft2`.

    >>> np.fft.irfft2(np.array([[1.0, 0.0], [0.0, 1.0]]))
    """
    a = operand(a)
    return _to_real("irfft2", a, _placed("irfft2", a, s, axes), norm)


@function(public="np.fft")
def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The real Fourier transform of a Hermitian-symmetric signal, of which the first half is given.

    >>> np.fft.hfft(np.array([1.0, 2.0, 3.0]))
    """
    a = conjugated(operand(a))
    return _to_real("hfft", a, _one("hfft", a, n, axis), OTHER[_norm("hfft", norm)])


@function(public="np.fft")
def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The inverse of `hfft`.

    >>> np.fft.ihfft(np.array([1.0, 2.0, 3.0, 2.0]))
    """
    a = operand(a)
    found = _from_real("ihfft", a, _one("ihfft", a, n, axis), OTHER[_norm("ihfft", norm)])
    return conj(found)


# --- frequencies ----------------------------------------------------------------------------


def _frequencies(name: str, n: Any, d: float, half: bool, dtype: Any, device: Any) -> Any:
    if not isinstance(n, WHOLE) or n < 1:
        raise ShapeError(f"{name}: {n!r} elements have no frequencies; it must be at least 1")
    with as_device(device):
        at = iota(shape=(n // 2 + 1 if half else n,), axis=0, dtype=float64)
    at = at if half else where(at < (n + 1) // 2, at, at - n)
    return (at / (n * d)).astype(as_dtype(dtype or default_float()))


@function(public="np.fft")
def fftfreq(
    n: int, d: float = 1.0, dtype: Any = None, device: Any = None, ctx: Any = None
) -> Array:
    """The frequencies the elements of `fft` belong to, for samples `d` apart.

    >>> np.fft.fftfreq(4)
    """
    return _frequencies("fftfreq", n, d, False, dtype, device or ctx)


@function(public="np.fft")
def rfftfreq(
    n: int, d: float = 1.0, dtype: Any = None, device: Any = None, ctx: Any = None
) -> Array:
    """The frequencies the elements of `rfft` belong to, for samples `d` apart.

    >>> np.fft.rfftfreq(4)
    """
    return _frequencies("rfftfreq", n, d, True, dtype, device or ctx)


def _shifted(x: Any, axes: Any, sign: int) -> Any:
    x = operand(x)
    chosen: Sequence[int] = range(x.ndim) if axes is None else listed(axes)
    chosen = [normalize_axis("fftshift", axis, x.ndim) for axis in chosen]
    return roll(x, tuple(sign * (x.shape[a] // 2) for a in chosen), tuple(chosen)) if chosen else x


@function(public="np.fft")
def fftshift(x: Any, axes: Any = None) -> Array:
    """Move the frequency 0 to the middle of the given axes, or of all.

    >>> np.fft.fftshift(np.array([0.0, 1.0, -2.0, -1.0]))
    """
    return _shifted(x, axes, 1)


@function(public="np.fft")
def ifftshift(x: Any, axes: Any = None) -> Array:
    """The inverse of `fftshift`.

    >>> np.fft.ifftshift(np.array([-2.0, -1.0, 0.0, 1.0]))
    """
    return _shifted(x, axes, -1)
