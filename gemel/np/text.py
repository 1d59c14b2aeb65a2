"""Arrays from and to text and bytes, and histograms over several axes, all by NumPy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gemel.dtype import as_dtype, default_float
from gemel.errors import DataFileError, MissingFileError
from gemel.ir.protocols import as_numpy, computed
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.np.creation import array


def _named(dtype: Any) -> Any:
    """NumPy's name for a dtype, or for the default one if it is None."""
    return (default_float() if dtype is None else as_dtype(dtype)).twin.name


def _read(name: str, file: Any, dtype: Any, *args: Any, **kwargs: Any) -> Any:
    """What NumPy's function of this name reads. Raises `MissingFileError`, and `DataFileError` for
    what it does not understand."""
    try:
        return getattr(numpy(), name)(file, _named(dtype), *args, **kwargs)
    except FileNotFoundError:
        raise MissingFileError(f"{name}: {file} does not exist") from None
    except ValueError as error:
        raise DataFileError(f"{name}: {error}") from None


@function(public="np")
def loadtxt(fname: Any, dtype: Any = None, *args: Any, device: Any = None, **kwargs: Any) -> Array:
    """Read the numbers of a text file, one row per line; the other arguments are NumPy's.

    Raises `MissingFileError`, and `DataFileError` for what are no rows of numbers.

    >>> np.loadtxt(["1 2", "3 4"])
    """
    return array(_read("loadtxt", fname, dtype, *args, **kwargs), dtype, device)


@function(public="np")
def genfromtxt(
    fname: Any, dtype: Any = None, *args: Any, device: Any = None, **kwargs: Any
) -> Array:
    """`loadtxt` that fills missing values with a number, by default NaN.

    >>> np.genfromtxt(["1,,3"], delimiter=",")
    """
    return array(_read("genfromtxt", fname, dtype, *args, **kwargs), dtype, device)


@function(public="np")
def savetxt(fname: Any, X: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N803
    """Write an array of one or two dimensions as text; the other arguments are NumPy's.

    >>> np.savetxt("numbers.txt", np.ones((2, 2)))
    >>> np.loadtxt("numbers.txt")
    """
    numpy().savetxt(fname, as_numpy(X), *args, **kwargs)


@function(public="np")
def fromiter(iter: Iterable[Any], dtype: Any, count: int = -1, device: Any = None) -> Array:
    """An array of the elements of an iterable: all of them, or the first `count`.

    >>> np.fromiter((n * n for n in range(4)), "int32")
    """
    return array(numpy().fromiter(iter, _named(dtype), count), dtype, device)


@function(public="np")
def fromstring(
    string: str, dtype: Any = None, count: int = -1, *, sep: str, device: Any = None
) -> Array:
    """The numbers in a string, separated by `sep`.

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
    """The numbers in a binary file, or in a text file separated by `sep`. Raises
    `MissingFileError`.

    >>> np.arange(3, dtype="int32").tofile("bytes")
    >>> np.fromfile("bytes", "int32")
    """
    return array(_read("fromfile", file, dtype, count, sep, offset), dtype, device)


@function(public="np")
def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, ...]:
    """The number of points (x, y) in each cell of a grid, and the grid's edges. Waits for the
    points.

    >>> np.histogram2d(np.array([0.0, 1.0]), np.array([0.0, 1.0]), bins=2)[0]
    """
    options = {"bins": bins, "range": range, "density": density, "weights": weights}
    found: tuple[Any, ...] = computed(numpy().histogram2d, (x, y), options)
    return found


@function(public="np")
def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, ...]:
    """The number of points, one per row, in each cell of a grid, and its edges. Waits for the
    points.

    >>> np.histogramdd(np.array([[0.0, 0.0], [1.0, 1.0]]), bins=2)[0]
    """
    options = {"bins": bins, "range": range, "density": density, "weights": weights}
    found: tuple[Any, ...] = computed(numpy().histogramdd, (sample,), options)
    return found


@function(public="np")
def packbits(a: Any, /, axis: int | None = None, bitorder: str = "big") -> Array:
    """Pack each eight elements (nonzero is 1) into the bits of a byte. Waits for the elements.

    >>> np.packbits(np.array([True, False, True]))
    """
    return computed(numpy().packbits, (a,), {"axis": axis, "bitorder": bitorder})


@function(public="np")
def unpackbits(
    a: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Array:
    """Unpack the bits of bytes, each into a number 0 or 1. Waits for the bytes.

    >>> np.unpackbits(np.array([5], "uint8"))
    """
    options = {"axis": axis, "count": count, "bitorder": bitorder}
    return computed(numpy().unpackbits, (a,), options)
