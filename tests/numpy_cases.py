"""What property tests draw: arrays, keys and calls that both NumPy and gemel are given.

`GEMEL_EXAMPLES` sets how many examples each property is tried on. Without it a few are tried, and
they are the same in every run.
"""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import gemel
from gemel import np
from gemel.dtype import DTYPES
from gemel.errors import GemelError

EXAMPLES = int(os.environ.get("GEMEL_EXAMPLES", "0"))
#: The dtypes that NumPy has too.
NAMES = [dtype.name for dtype in DTYPES if dtype.twin is dtype and dtype.kind in "buif"]
INTEGERS = [name for name in NAMES if "int" in name]
#: The errors, besides gemel's own, that a call may raise deliberately.
REFUSED = (IndexError, TypeError, ValueError, OverflowError, ZeroDivisionError, MemoryError)

Array = Any


def examples(count: int) -> settings:
    """Settings for `count` examples, or for as many as `GEMEL_EXAMPLES` says."""
    return settings(
        max_examples=EXAMPLES or count,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


# --- what came of a call --------------------------------------------------------------------


class Refused:
    """A call that raised."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __repr__(self) -> str:
        return f"{type(self.error).__name__}({self.error})"


def outcome(call: Callable[[], Any]) -> Any:
    """The result of a call, with its elements waited for, or `Refused`."""
    try:
        with warnings.catch_warnings(), numpy.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            # An error since NumPy 2.3, also where the result is empty.
            warnings.filterwarnings("error", "Out of bound index found")
            return on_numpy(call())
    except DeprecationWarning:
        return Refused(IndexError("out of bounds"))
    except (GemelError, *REFUSED) as error:
        assert deliberate(error), "".join(traceback.format_exception(error))
        return Refused(error)


def deliberate(error: BaseException) -> bool:
    """Whether an error was raised on purpose, and not by Python because of a bug in gemel's lines.

    An error raised in a library or in the core has its last frame outside gemel's files.
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}gemel{os.sep}" in frame.filename]
    if isinstance(error, GemelError) or not ours or frames[-1] is not ours[-1]:
        return True
    return "raise " in (ours[-1].line or "") or _ours(str(error))


#: How Python's own messages begin when an operation gets something unexpected.
INSIDES = (
    "unsupported operand", "bad operand", "argument of type", "list index", "tuple index",
    "index() ", "not all arguments", "cannot unpack", "can't multiply", "can only concatenate",
    "too many values", "not enough values", "unhashable", "string index", "must be str",
    "descriptor", "int() arg", "float() arg", "object of type", "expected str",
)  # fmt: skip


def _ours(message: str) -> bool:
    """Whether a message is ours: not one of Python's own about operands and lengths."""
    return not any(words in message for words in INSIDES) and "' object is not" not in message


def on_numpy(found: Any) -> Any:
    """Arrays converted to NumPy's, also in tuples and lists; everything else unchanged."""
    if isinstance(found, (tuple, list)):
        return [on_numpy(each) for each in found]
    return found.asnumpy() if isinstance(found, np.ndarray) else found


def on_gemel(value: Any) -> Any:
    """NumPy arrays converted to gemel's, also in tuples; everything else unchanged."""
    if isinstance(value, tuple):
        return tuple(on_gemel(each) for each in value)
    return np.array(value, dtype=value.dtype) if isinstance(value, numpy.ndarray) else value


def agree(found: Any, expected: Any, about: Any = "", tolerance: float = 0.0) -> None:
    """Check that both were refused, or that both have the same shape and elements.

    Only NumPy refuses positions out of range when no element is selected.
    """
    beyond = isinstance(expected, Refused) and "out of bounds" in repr(expected)
    if beyond and isinstance(found, numpy.ndarray) and not found.size:
        return
    if isinstance(expected, Refused) or isinstance(found, Refused):
        both = isinstance(expected, Refused) and isinstance(found, Refused)
        assert both, f"{about}\nfound {found!r}\nexpected {expected!r}"
        return
    if isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected), about
        for a, b in zip(found, expected, strict=True):
            agree(a, b, about, tolerance)
        return
    found, expected = numpy.asarray(found), numpy.asarray(expected)
    assert found.shape == expected.shape, f"{about}\n{found!r}\n{expected!r}"
    if tolerance and expected.dtype.kind in "fc":
        close = numpy.allclose(found, expected, tolerance, tolerance, equal_nan=True)
    else:
        close = numpy.array_equal(found, expected, equal_nan=expected.dtype.kind in "fc")
    assert close, f"{about}\nfound {found!r}\nexpected {expected!r}"


def compiled(function: Callable[..., Any]) -> Any:
    """The compiled function."""
    return gemel.compile(function)


# --- arrays ---------------------------------------------------------------------------------

EXTENTS = st.sampled_from([0, 1, 2, 3, 3, 4, 5])
SHAPES = st.lists(EXTENTS, max_size=4).map(tuple)


def numbered(shape: tuple[int, ...], dtype: str, start: int = 0) -> Array:
    """An array whose elements are their positions, as far as the dtype can hold them."""
    size = int(numpy.prod(shape))
    found = numpy.arange(start, start + size)
    return (found % 3 == 0 if dtype == "bool" else found % 100).astype(dtype).reshape(shape)


#: Floats at which functions have special cases.
ODD = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -7.25, 100.0, numpy.nan, numpy.inf, -numpy.inf]


@st.composite
def elements(draw: Any, shape: tuple[int, ...], dtype: str) -> Array:
    """An array of small numbers and of special ones."""
    chosen: list[Any] = [0, 1, 2, 3, 5, 7, 100]
    kind = numpy.dtype(dtype).kind
    if kind == "f":
        chosen = ODD
    elif kind != "b":
        bounds = numpy.iinfo(dtype)
        chosen = [*chosen, bounds.max, bounds.min, -1 if kind == "i" else 11]
    size = int(numpy.prod(shape))
    picked = draw(st.lists(st.sampled_from(chosen), min_size=size, max_size=size))
    return numpy.array(picked, dtype).reshape(shape)


@st.composite
def views(draw: Any, base: Array) -> list[Any]:
    """A few steps that lead to a view of an array: keys, or "T"."""
    steps: list[Any] = []
    for _ in range(draw(st.integers(0, 2))):
        step = draw(st.one_of(st.just("T"), basic_keys(base.shape)))
        try:
            base = view(base, [step])
        except IndexError:
            continue
        if isinstance(base, numpy.ndarray):
            steps.append(step)
    return steps


def view(array: Any, steps: list[Any]) -> Any:
    """The view that the steps select."""
    for step in steps:
        array = array.T if isinstance(step, str) else array[step]
    return array


# --- keys -----------------------------------------------------------------------------------


def positions(extent: int) -> Any:
    """A position in an axis; occasionally one just outside."""
    inside = st.integers(-extent, extent - 1) if extent else st.integers(-1, 0)
    outside = st.sampled_from([-extent - 1, extent])
    return st.integers(0, 19).flatmap(lambda dice: outside if not dice else inside)


def slices(extent: int) -> Any:
    """Any slice, with bounds up to two positions outside the axis."""
    bound = st.one_of(st.none(), st.integers(-extent - 2, extent + 2))
    step = st.sampled_from([None, None, 1, 2, 3, -1, -2, -3])
    return st.builds(slice, bound, bound, step)


@st.composite
def basic_keys(draw: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Positions, slices, None and one Ellipsis."""
    count = draw(st.integers(0, len(shape)))
    key = [draw(st.one_of(positions(n), slices(n), slices(n))) for n in shape[:count]]
    if draw(st.booleans()):
        key.insert(draw(st.integers(0, len(key))), None)
    if draw(st.booleans()):
        place = draw(st.integers(0, len(key)))
        rest = [draw(slices(n)) for n in shape[len(shape) - draw(st.integers(0, 1)) :]]
        used = sum(item is not None for item in key[:place])
        key = [*key[:place], Ellipsis, *rest[: max(len(shape) - used, 0)]]
    return tuple(key)


@st.composite
def arrays_of_positions(draw: Any, extent: int, shape: tuple[int, ...]) -> Any:
    """Positions in an axis as an array that broadcasts to a shape, or as a list."""
    kept = [n if draw(st.integers(0, 3)) else 1 for n in shape[draw(st.integers(0, len(shape))) :]]
    size = int(numpy.prod(kept))
    found = [draw(positions(extent)) for _ in range(size)]
    dtype = draw(st.sampled_from(["int64", "int64", "int32", "int8", "uint8"]))
    if dtype == "uint8":
        found = [n % extent if extent else 0 for n in found]
    array = numpy.array(found, dtype).reshape(kept)
    return array.tolist() if kept and size and draw(st.booleans()) else array


@st.composite
def masks(draw: Any, shape: tuple[int, ...]) -> Any:
    """A mask of a shape, as an array or a list; occasionally of a wrong shape."""
    if shape and not draw(st.integers(0, 19)):
        shape = (shape[0] + 1, *shape[1:])
    size = int(numpy.prod(shape))
    found = numpy.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool)
    array = found.reshape(shape)
    return array.tolist() if array.ndim and size and not draw(st.integers(0, 3)) else array


@st.composite
def keys(draw: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Any key: basic items, NumPy integers, arrays, lists, and masks of any rank."""
    together = tuple(draw(st.lists(st.sampled_from([1, 2, 2, 3, 0]), max_size=2)))
    key: list[Any] = []
    axis = 0
    while axis < len(shape):
        kind = draw(st.integers(0, 13))
        extent = shape[axis]
        if kind <= 1:
            key.append(draw(positions(extent)))
        elif kind == 2:
            key.append(numpy.int64(draw(positions(extent))))
        elif kind <= 5:
            key.append(draw(slices(extent)))
        elif kind <= 8:
            key.append(draw(arrays_of_positions(extent, together)))
        elif kind == 9:
            span = draw(st.integers(1, len(shape) - axis))
            key.append(draw(masks(shape[axis : axis + span])))
            axis += span - 1
        elif kind == 10 and not any(item is Ellipsis for item in key):
            key.append(Ellipsis)
            axis += draw(st.integers(0, len(shape) - axis)) - 1
        elif kind == 11:
            key.append(None)
            axis -= 1
        elif kind == 12:
            key.append(draw(st.sampled_from([True, False, numpy.True_, numpy.array(True)])))
            axis -= 1
        else:
            break
        axis += 1
    return tuple(key)


def is_given(item: Any) -> bool:
    """Whether an item of a key is an array, which can be an argument of a compiled function."""
    return isinstance(item, numpy.ndarray)


def promoted_as_ours(*operands: Any) -> bool:
    """Whether NumPy's result dtype is ours: with us, integers give way to any floating dtype."""
    dtypes = [operand.dtype for operand in operands if hasattr(operand, "dtype")]
    numbers = [operand for operand in operands if not hasattr(operand, "dtype")]
    kinds = {dtype.kind for dtype in dtypes}
    mixed = "f" in kinds and bool(kinds & set("iu"))
    return not mixed and not (kinds <= set("iub") and any(type(n) is float for n in numbers))


__all__ = [
    "INTEGERS",
    "NAMES",
    "SHAPES",
    "Refused",
    "agree",
    "basic_keys",
    "compiled",
    "elements",
    "examples",
    "is_given",
    "keys",
    "numbered",
    "on_gemel",
    "on_numpy",
    "outcome",
    "promoted_as_ours",
    "view",
    "views",
]
