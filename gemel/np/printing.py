"""Arrays as text. The print options are NumPy's own and apply to the arrays of both."""

from __future__ import annotations

from typing import Any

from gemel.arrays.exchange import shown
from gemel.ir.public import function
from gemel.ir.reference import numpy
from gemel.np.creation import asarray


@function(public="np")
def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    suppress: bool | None = None,
    **options: Any,
) -> None:
    """Set how arrays of NumPy and gemel are printed. More than `threshold` elements are summarised
    to `edgeitems` at each end of an axis, `suppress` writes small numbers as 0; further options,
    such as `floatmode`, are those of `numpy.set_printoptions`. None leaves an option unchanged.

    >>> np.set_printoptions(precision=8)
    """
    numpy().set_printoptions(precision, threshold, edgeitems, linewidth, suppress, **options)


@function(public="np")
def get_printoptions() -> dict[str, Any]:
    """The current print options, by name.

    >>> np.get_printoptions()["precision"]
    """
    found: dict[str, Any] = numpy().get_printoptions()
    return found


@function(public="np")
def printoptions(*values: Any, **options: Any) -> Any:
    """Set print options inside a ``with`` block; they are those of `set_printoptions`.

    >>> with np.printoptions(precision=2): print(np.array([1.23456]))
    >>> np.get_printoptions()["precision"]
    """
    return numpy().printoptions(*values, **options)


@function(public="np")
def array2string(a: Any, *values: Any, **options: Any) -> str:
    """The elements as text; the options are those of `numpy.array2string`: `precision`,
    `separator`, `formatter`, `threshold`, ...

    >>> np.array2string(np.array([0.5, 1.25]), separator=",", precision=1)
    """
    text: str = numpy().array2string(asarray(a).asnumpy(), *values, **options)
    return text


@function(public="np")
def array_repr(
    arr: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """The result of `repr`, with other print options.

    >>> np.array_repr(np.array([0.123456]), precision=2)
    """
    return shown(asarray(arr), max_line_width, precision, suppress_small)


@function(public="np")
def array_str(
    a: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """The result of `str`, with other print options.

    >>> np.array_str(np.array([0.123456]), precision=2)
    """
    elements = asarray(a).asnumpy()
    text: str = numpy().array_str(elements, max_line_width, precision, suppress_small)
    return text


# --- text with four decimals ----------------------------------------------------------------


def fixed_text(values: Any, prefix: str) -> str:
    """A NumPy array's elements with four decimals, as PyTorch prints them, after `prefix`.

    Arrays of whole numbers have no decimals. Exponents are used if sizes differ by more than a
    factor of 1000, if a number exceeds 1e8, or if one would have only zeros in its four decimals.
    """
    import numpy

    write = _writer(values[values != 0]) if values.dtype.kind == "f" else str
    counted = values if write is str else values[values != 0]
    width = max((len(write(value)) for value in counted.flat), default=1) if values.ndim else 0
    form: Any = {"all": lambda value: write(value).rjust(width)}
    shown = numpy.array2string(values, 80, separator=", ", prefix=prefix, formatter=form)
    return shown.replace(", ..., ", ",  ..., ")


def _writer(values: Any) -> Any:
    """The function that formats one number, chosen by the nonzero numbers."""
    sizes = abs(values[abs(values) < float("inf")]).astype("float64")
    low, high = (sizes.min(), sizes.max()) if sizes.size else (1.0, 1.0)
    whole = bool((sizes % 1 == 0).all())
    if high / low > 1000 or high > 1e8 or (not whole and low < 1e-4):
        return "{:.4e}".format
    return lambda x: format(x, "#.0f" if whole and abs(x) < float("inf") else ".4f")
