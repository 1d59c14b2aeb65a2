"""Functions of the Array API standard on drawn dtypes, shapes and arguments, against NumPy's.

The table has one line for each function, which draws its arguments. NumPy 2 is itself a namespace
of the standard.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemel import np

WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
REAL = (*WHOLE, "float32", "float64")
NUMERIC = (*REAL, "complex64", "complex128")
ANY = ("bool", *NUMERIC)
INEXACT = ("float32", "float64", "complex64", "complex128")
Call = tuple[list[Any], dict[str, Any]]


class Draw:
    """Draws arguments."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def of(self, *choices: Any) -> Any:
        return choices[self.random.randrange(len(choices))]

    def shape(self, low: int = 0, high: int = 4, least: int = 0) -> tuple[int, ...]:
        count = self.random.randint(low, high)
        return tuple(self.random.randint(least, 4) for _ in range(count))

    def array(self, shape: tuple[int, ...], dtypes: tuple[str, ...] = ANY) -> Any:
        dtype = numpy.dtype(self.of(*dtypes))
        drawn = numpy.random.default_rng(self.random.randrange(2**32))
        if dtype.kind in "biu":
            return numpy.asarray(drawn.integers(-5 * (dtype.kind == "i"), 6, shape)).astype(dtype)
        found = drawn.choice([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.25], shape)
        if dtype.kind == "c":
            found = found + 1j * drawn.choice([-2.0, 0.0, 1.0], shape)
        return numpy.asarray(found).astype(dtype)

    def axis(self, x: Any) -> Any:
        return self.random.randint(-x.ndim, x.ndim - 1) if x.ndim else None

    def axes(self, x: Any) -> Any:
        several = self.random.sample(range(x.ndim), self.random.randint(0, x.ndim))
        return self.of(None, self.axis(x), tuple(n - self.of(0, x.ndim) for n in several))

    def broadcast(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.of(n, n, 1) for n in shape[self.random.randint(0, len(shape)) :])

    def square(self, dtypes: tuple[str, ...] = INEXACT) -> Any:
        """Invertible matrices."""
        size = self.random.randint(0, 3)
        x = self.array((*self.of((), (2,), (0,), (2, 1)), size, size), dtypes)
        return x + numpy.eye(size, dtype=x.dtype) * 9


def reduced(dtypes: tuple[str, ...], **more: Any) -> Callable[[Draw], Call]:
    def call(d: Draw) -> Call:
        x = d.array(d.shape(), dtypes)
        return [x], {"axis": d.axes(x), "keepdims": d.of(True, False), **more}

    return call


def summed(d: Draw) -> Call:
    x = d.array(d.shape(), NUMERIC)
    dtype = d.of({}, {"dtype": d.of(*NUMERIC[-2:] if x.dtype.kind == "c" else NUMERIC)})
    return [x], {"axis": d.axes(x), "keepdims": d.of(True, False), **dtype}


def cumulated(d: Draw) -> Call:
    x = d.array(d.shape(1, 3), NUMERIC)
    axis = d.axis(x) if x.ndim > 1 else d.of(None, 0)
    return [x], {"axis": axis, "include_initial": d.of(True, False)}


def sorted_along(d: Draw) -> Call:
    x = d.array(d.shape(1, 3), REAL)
    return [x], {"axis": d.axis(x), "stable": True}


def taken(d: Draw) -> Call:
    x = d.array(d.shape(1, 3, least=1))
    axis = d.axis(x)
    count = x.shape[axis]
    places = [d.random.randint(-count, count - 1) for _ in range(d.of(0, 1, 3))]
    return [x, numpy.array(places, dtype=d.of("int8", "int32", "int64"))], {"axis": axis}


def taken_along(d: Draw) -> Call:
    x = d.array(d.shape(1, 3, least=1))
    axis = d.axis(x)
    shape = [*x.shape]
    shape[axis] = d.of(0, 1, 4)
    drawn = numpy.random.default_rng(d.random.randrange(2**32))
    return [x, drawn.integers(-x.shape[axis], x.shape[axis], shape)], {"axis": axis}


def joined(d: Draw) -> Call:
    x = d.array(d.shape(1, 3))
    axis = d.axis(x)
    parts = [x]
    for _ in range(d.of(0, 1, 2)):
        shape = [*x.shape]
        shape[axis] = d.of(0, 1, 2)
        parts.append(d.array(tuple(shape), (x.dtype.name,)))
    return [parts], {"axis": axis}


def chosen(d: Draw) -> Call:
    shape, dtype = d.shape(0, 3), (d.of(*ANY),)
    one, two = (d.array(d.broadcast(shape), dtype) for _ in range(2))
    return [d.array(d.broadcast(shape), ("bool",)), one, two], {}


def searched(d: Draw) -> Call:
    x = d.array((d.of(0, 1, 5),), REAL)
    order = numpy.argsort(x, kind="stable")
    rest = {} if d.of(True, False) else {"sorter": order}
    values = d.array(d.shape(0, 2), (x.dtype.name,))
    return [x if rest else x[order], values], {"side": d.of("left", "right"), **rest}


def differences(d: Draw) -> Call:
    x = d.array(d.shape(1, 3), NUMERIC)
    axis, ends = d.axis(x), {}
    for name in ("prepend", "append"):
        shape = [*x.shape]
        shape[axis] = d.of(0, 1, 2)
        ends.update(d.of({}, {name: d.array(tuple(shape), (x.dtype.name,))}))
    return [x], {"axis": axis, "n": d.of(0, 1, 2, 3), **ends}


def repeated(d: Draw) -> Call:
    x = d.array(d.shape(1, 3))
    axis = d.of(None, d.axis(x))
    count = x.size if axis is None else x.shape[axis]
    each = numpy.array([d.of(0, 1, 3) for _ in range(count)], dtype="int64")
    return [x, d.of(2, 0, each)], {"axis": axis}


def rolled(d: Draw) -> Call:
    x = d.array(d.shape(0, 3))
    axis = d.axes(x) or None
    shift = d.random.randint(-9, 9)
    if isinstance(axis, tuple):
        shift = d.of(shift, tuple(d.random.randint(-5, 5) for _ in axis))
    return [x, shift], {"axis": axis}


def moved(d: Draw) -> Call:
    x = d.array(d.shape(1, 4))
    count = d.random.randint(1, x.ndim)
    ends = (tuple(d.random.sample(range(-x.ndim, 0), count)) for _ in range(2))
    return [x, *ends], {}


def clipped(d: Draw) -> Call:
    x = d.array(d.shape(0, 3), REAL)
    shapes = [d.broadcast(x.shape) for _ in range(2)]
    low, high = (d.of(None, 1, d.array(shape, (x.dtype.name,))) for shape in shapes)
    return [x], {"min": low, "max": high}


def multiplied(d: Draw) -> Call:
    inner, rows, columns = d.of(0, 1, 3), d.of(0, 1, 2), d.of(0, 1, 3)
    shapes = d.of(
        ((inner,), (inner,)), ((rows, inner), (inner, columns)), ((inner,), (2, inner, columns)),
        ((2, 1, rows, inner), (3, inner, columns)), ((3, rows, inner), (inner,)),
    )  # fmt: skip
    dtype = (d.of(*NUMERIC),)
    return [d.array(shape, dtype) for shape in shapes], {}


def dotted(d: Draw) -> Call:
    shape, dtype = d.shape(1, 3, least=1), (d.of(*NUMERIC),)
    axis = -d.random.randint(1, len(shape))
    shapes = ([*shape], [*shape])
    for each in shapes:
        place = d.random.randrange(len(shape))
        each[place] = each[place] if place == len(shape) + axis else d.of(each[place], 1)
    return [d.array(tuple(each), dtype) for each in shapes], {"axis": axis}


def contracted(d: Draw) -> Call:
    count, dtype = d.of(0, 1, 2), (d.of(*NUMERIC),)
    common, first, second = d.shape(count, count), d.shape(0, 2), d.shape(0, 2)
    if d.of(True, False):
        return [d.array(first + common, dtype), d.array(common + second, dtype)], {"axes": count}
    last = tuple(range(-count, 0))
    axes = (last, tuple(n + len(second) + count for n in last))
    return [d.array(first + common, dtype), d.array(second + common, dtype)], {"axes": axes}


def normed(d: Draw) -> Call:
    x = d.array(d.shape(0, 3, least=1), INEXACT)
    order = d.of(0, 1, 2, 3, -1, 2.5, numpy.inf, -numpy.inf)
    return [x], {"axis": d.axes(x), "keepdims": d.of(True, False), "ord": order}


def matrix_normed(d: Draw) -> Call:
    order = d.of(1, -1, 2, -2, numpy.inf, -numpy.inf, "fro", "nuc")
    return [d.array(d.shape(2, 4, least=1), INEXACT)], {"keepdims": d.of(True, False), "ord": order}


def solved(d: Draw) -> Call:
    a = d.square((d.of(*INEXACT),))
    shape = d.of((a.shape[-1],), (*a.shape[:-1], 2))
    return [a, d.array(shape, (a.dtype.name,))], {}


def transformed(dtypes: tuple[str, ...]) -> Callable[[Draw], Call]:
    def call(d: Draw) -> Call:
        x = d.array(d.shape(1, 3, least=1), dtypes)
        norm = d.of("backward", "ortho", "forward")
        return [x], {"axis": d.axis(x), "n": d.of(None, 2, 5), "norm": norm}

    return call


TABLE: dict[str, Callable[[Draw], Call]] = {
    **dict.fromkeys(("sum", "prod"), summed),
    **dict.fromkeys(("max", "min"), reduced(REAL)),
    **dict.fromkeys(("all", "any", "count_nonzero"), reduced(ANY)),
    "mean": reduced(INEXACT),
    **dict.fromkeys(("std", "var"), reduced(INEXACT[:2], correction=0.5)),
    **dict.fromkeys(("cumulative_sum", "cumulative_prod"), cumulated),
    **dict.fromkeys(("sort", "argsort"), sorted_along),
    "take": taken,
    "take_along_axis": taken_along,
    "concat": joined,
    "where": chosen,
    "searchsorted": searched,
    "diff": differences,
    "repeat": repeated,
    "roll": rolled,
    "moveaxis": moved,
    "clip": clipped,
    "matmul": multiplied,
    "vecdot": dotted,
    "tensordot": contracted,
    "nonzero": lambda d: ([d.array(d.shape(1, 3))], {}),
    "unstack": lambda d: (lambda x: ([x], {"axis": d.axis(x)}))(d.array(d.shape(1, 3))),
    "flip": lambda d: (lambda x: ([x], {"axis": d.axes(x)}))(d.array(d.shape(0, 3))),
    "tile": lambda d: ([d.array(d.shape(0, 3)), d.shape(0, 3)], {}),
    "tril": lambda d: ([d.array(d.shape(2, 4))], {"k": d.random.randint(-4, 4)}),
    "triu": lambda d: ([d.array(d.shape(2, 4))], {"k": d.random.randint(-4, 4)}),
    "unique_counts": lambda d: ([d.array(d.shape(0, 3))], {}),
    "unique_inverse": lambda d: ([d.array(d.shape(0, 3))], {}),
    "linalg.vector_norm": normed,
    "linalg.matrix_norm": matrix_normed,
    "linalg.solve": solved,
    "linalg.inv": lambda d: ([d.square()], {}),
    "linalg.det": lambda d: ([d.square()], {}),
    "linalg.slogdet": lambda d: ([d.square()], {}),
    "linalg.matrix_power": lambda d: ([d.square(), d.random.randint(-2, 3)], {}),
    "linalg.diagonal": lambda d: ([d.array(d.shape(2, 4))], {"offset": d.random.randint(-4, 4)}),
    "linalg.trace": lambda d: ([d.array(d.shape(2, 4))], {"offset": d.random.randint(-4, 4)}),
    "linalg.svdvals": lambda d: ([d.array(d.shape(2, 3, least=1), INEXACT)], {}),
    **dict.fromkeys(("fft.fft", "fft.ifft", "fft.hfft", "fft.irfft"), transformed(INEXACT[2:])),
    **dict.fromkeys(("fft.rfft", "fft.ihfft"), transformed(INEXACT[:2])),
}  # fmt: skip


def named(namespace: Any, name: str) -> Any:
    for part in name.split("."):
        namespace = getattr(namespace, part)
    return namespace


def ours(value: Any) -> Any:
    if isinstance(value, list):
        return [*map(ours, value)]
    return np.asarray(value) if isinstance(value, numpy.ndarray) else value


def outcome(function: Any, positional: list[Any], keywords: dict[str, Any]) -> Any:
    """The results of a call as a list of NumPy arrays; None if it raises an error."""
    try:
        with numpy.errstate(all="ignore"):
            found = function(*positional, **keywords)
        several = found if isinstance(found, (tuple, list)) else [found]
        return [numpy.asarray(each) for each in several]
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TABLE)
@settings(max_examples=15, deadline=None)
@given(random=st.randoms(use_true_random=True))
def test_as_numpy(name: str, random: Random) -> None:
    positional, keywords = TABLE[name](Draw(random))
    want = outcome(named(numpy, name), positional, keywords)
    arrays = [*map(ours, positional)]
    found = outcome(named(np, name), arrays, {key: ours(each) for key, each in keywords.items()})
    assert (found is None) == (want is None)
    for one, other in zip(found or [], want or [], strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        close = 1e-3 if one.dtype.name in ("float32", "complex64") else 1e-9
        numpy.testing.assert_allclose(one, other, rtol=close, atol=close)
