"""Arrays from and to text and bytes, and histograms over several axes: done by NumPy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gemel.dtype import as_dtype, default_float
from gemel.ir.op import numpy
from gemel.ir.protocols import as_numpy, by_numpy
from gemel.ir.public import Array, function
from gemel.np.creation import array


def _named(dtype: Any) -> Any:
    """A dtype as NumPy takes it, the default one where there is none."""
    return (default_float() if dtype is None else as_dtype(dtype)).twin.name


@function(public="np")
def loadtxt(fname: Any, dtype: Any = None, *args: Any, device: Any = None, **kwargs: Any) -> Array:
    """The numbers in a text file, a row a line; the other arguments are those of NumPy's.

    >>> np.loadtxt(["1 2", "3 4"])
    """
    return array(numpy().loadtxt(fname, _named(dtype), *args, **kwargs), dtype, device)


@function(public="np")
def genfromtxt(
    fname: Any, dtype: Any = None, *args: Any, device: Any = None, **kwargs: Any
) -> Array:
    """`loadtxt` that has a number, NaN by default, for what is missing.

    >>> np.genfromtxt(["1,,3"], delimiter=",")
    """
    return array(numpy().genfromtxt(fname, _named(dtype), *args, **kwargs), dtype, device)


@function(public="np")
def savetxt(fname: Any, X: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N803
    """Write an array of one or two dimensions as text; the other arguments are those of NumPy's.

    >>> np.savetxt("numbers.txt", np.ones((2, 2)))
    >>> np.loadtxt("numbers.txt")
    """
    numpy().savetxt(fname, as_numpy(X), *args, **kwargs)


@function(public="np")
def fromiter(iter: Iterable[Any], dtype: Any, count: int = -1, device: Any = None) -> Array:
    """An array of what an iterable gives, `count` numbers or all.

    >>> np.fromiter((n * n for n in range(4)), "int32")
    """
    return array(numpy().fromiter(iter, _named(dtype), count), dtype, device)


@function(public="np")
def fromstring(
    string: str, dtype: Any = None, count: int = -1, *, sep: str, device: Any = None
) -> Array:
    """The numbers in a text, with `sep` between them.

    >>> np.fromstring("1 2 3", sep=" ")
    """
    return array(numpy().fromstring(string, _named(dtype), count, sep=sep), dtype, device)


@function(public="np")
def fromfile(
    file: Any,
    dtype: Any = None,
    count: int = -1,
    sep: str = "",
    offset: int = 0,
    device: Any = None,
) -> Array:
    """The numbers in a file of bytes, or of text with `sep` between them.

    >>> np.arange(3, dtype="int32").tofile("bytes")
    >>> np.fromfile("bytes", "int32")
    """
    return array(numpy().fromfile(file, _named(dtype), count, sep, offset), dtype, device)


@function(public="np")
def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, ...]:
    """How many points (x, y) fall into each cell of a grid, and its edges. Waits for them.

    >>> np.histogram2d(np.array([0.0, 1.0]), np.array([0.0, 1.0]), bins=2)[0]
    """
    options = {"bins": bins, "range": range, "density": density, "weights": weights}
    found: tuple[Any, ...] = by_numpy(numpy().histogram2d, (x, y), options)
    return found


@function(public="np")
def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, ...]:
    """How many points, one a row, fall into each cell of a grid, and its edges. Waits for them.

    >>> np.histogramdd(np.array([[0.0, 0.0], [1.0, 1.0]]), bins=2)[0]
    """
    options = {"bins": bins, "range": range, "density": density, "weights": weights}
    found: tuple[Any, ...] = by_numpy(numpy().histogramdd, (sample,), options)
    return found


@function(public="np")
def packbits(a: Any, /, axis: int | None = None, bitorder: str = "big") -> Array:
    """Eight bools (or whole numbers that are not 0) as the bits of a byte. Waits for them.

    >>> np.packbits(np.array([True, False, True]))
    """
    return by_numpy(numpy().packbits, (a,), {"axis": axis, "bitorder": bitorder})


@function(public="np")
def unpackbits(
    a: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Array:
    """The bits of bytes, each a number 0 or 1. Waits for them.

    >>> np.unpackbits(np.array([5], "uint8"))
    """
    options = {"axis": axis, "count": count, "bitorder": bitorder}
    return by_numpy(numpy().unpackbits, (a,), options)
