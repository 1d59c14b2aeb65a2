"""Specs: what is known about an array before it is computed: its shape and dtype.

An extent may be a `Dim`: an integer with a name, a free size of a traced function.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from math import prod
from typing import Any

from gemel.dtype import DType, as_dtype, promote, promote_weak
from gemel.errors import AxisError, OperandError, ShapeError
from gemel.extent import WHOLE, same_for_all, seen

Shape = tuple[int, ...]


class Spec:
    """Shape and dtype of an array. `weak` marks a Python scalar, which takes the other's dtype."""

    __slots__ = ("dtype", "shape", "weak")

    def __init__(self, shape: Iterable[int], dtype: Any, weak: bool = False) -> None:
        self.shape: Shape = tuple(shape)
        self.dtype: DType = dtype if type(dtype) is DType else as_dtype(dtype)
        self.weak = weak

    @property
    def ndim(self) -> int:
        """How many dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements."""
        return product(self.shape)

    @property
    def is_empty(self) -> bool:
        """Whether it is known to have no elements."""
        return any(type(n) is int and n == 0 for n in self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes the elements take."""
        return self.size * self.dtype.itemsize

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Spec)
            and self.dtype is other.dtype
            and self.weak == other.weak
            and same_shape(self.shape, other.shape)
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype.code, self.weak))

    def __str__(self) -> str:
        extents = ", ".join(str(seen(n)) for n in self.shape)
        return f"{self.dtype}[{extents}]" + ("~" if self.weak else "")

    __repr__ = __str__


def product(extents: Iterable[int]) -> int:
    """The number of elements of a shape."""
    result = 1
    for extent in extents:
        result = result * extent
    return result


def extents(name: str, shape: Any) -> tuple[int, ...]:
    """A shape given by the caller. Raises `ShapeError` if no array can have it."""
    if is_plain(shape) and prod(shape) <= MOST_ELEMENTS and min(shape, default=1) > 0:
        return shape  # type: ignore[no-any-return]
    whole_numbers(name, "shape", shape)
    known = [n for n in shape if type(n) is int]
    if any(n < 0 for n in known):
        raise ShapeError(f"{name}: shape {list(shape)} has a negative extent")
    if product(n for n in known if n) > MOST_ELEMENTS:
        raise ShapeError(f"{name}: shape {list(shape)} has more elements than memory can address")
    return tuple(shape)


def is_plain(shape: Any) -> bool:
    """Whether it is a tuple of Python's integers, as most shapes are."""
    return type(shape) is tuple and {*map(type, shape)} <= PLAIN


#: The types of what a plain shape consists of.
PLAIN = {int}


def whole_numbers(name: str, kind: str, values: Any) -> None:
    """Raise `ShapeError` for anything but integers, such as 2.0."""
    if not is_several(values) or not all(hasattr(type(n), "__index__") for n in values):
        given = list(values) if is_several(values) else values
        raise ShapeError(f"{name}: {kind} {given!r} must be whole numbers")


def plain(value: Any) -> Any:
    """NumPy's integers, and lists of them, as Python's; everything else unchanged."""
    if type(value) in (list, tuple):
        return tuple(map(plain, value))
    dtype = getattr(value, "dtype", None) if type(value).__module__ == "numpy" else None
    whole = dtype is not None and dtype.kind in "iub" and value.ndim < 2
    return plain(value.tolist()) if whole else value


def is_several(values: Any) -> bool:
    """Whether it can be iterated over in order: not a number or an array without axes."""
    if isinstance(values, (list, tuple)):
        return True
    if isinstance(values, (str, bytes, set, frozenset, dict)):
        return False
    return hasattr(values, "__iter__") and getattr(values, "ndim", 1) != 0


def sequence(name: str, kind: str, values: Any) -> tuple[Any, ...]:
    """Several values in one argument, as a tuple. Raises `OperandError` if it is not a list
    of them."""
    if not is_several(values):
        raise OperandError(f"{name}: {kind} must be a list, not {type(values).__name__} {values!r}")
    return tuple(values)


def whole(name: str, kind: str, value: Any) -> Any:
    """An integer; NumPy's become Python's. Raises `OperandError` for anything else, such as
    2.0."""
    if isinstance(value, WHOLE):
        return value
    if hasattr(type(value), "__index__") and getattr(value, "ndim", 0) == 0:
        return value.__index__()
    if getattr(value, "ndim", 0):
        raise OperandError(
            f"{name}: {kind} must be one whole number, not an array of shape {list(value.shape)}"
        )
    raise OperandError(f"{name}: {kind} {value!r} must be a whole number")


def wholes(name: str, kind: str, values: Any) -> tuple[Any, ...]:
    """Several integers, or a single one, as a tuple. Raises `OperandError`."""
    several = values if is_several(values) else (values,)
    return tuple(whole(name, kind, value) for value in several)


def check_axes(name: str, kind: str, x: Any, axes: str) -> None:
    """Raise `ShapeError` unless x has as many axes as are listed ("N, C, height, width").

    "..." stands for any number of axes.
    """
    listed = axes.split(", ")
    least = len(listed) - ("..." in listed)
    ndim = len(x.shape)
    if ndim < least or (ndim > least and "..." not in listed):
        raise ShapeError(f"{name}: {kind} {Spec(x.shape, x.dtype)} must have the axes ({axes})")


#: The most elements of the widest dtype that can be addressed: sizes in bytes stay within 63 bits.
MOST_ELEMENTS = 2**60 - 1

#: The most dimensions of an array (`kMaxRank` of the core).
MOST_DIMENSIONS = 32


def same_shape(a: Shape, b: Shape) -> bool:
    """Whether two shapes are equal, for all values of their free extents or by a guard."""
    return len(a) == len(b) and all(m == n for m, n in zip(a, b, strict=True))


def same_shape_for_all(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes are equal for all values of their free extents; leaves no guard."""
    return len(a) == len(b) and all(map(same_for_all, a, b))


def broadcast(name: str, *specs: Spec) -> Shape:
    """The shape that these broadcast to. Raises `ShapeError` naming the operation and all specs."""
    if len(specs) == 1:
        return specs[0].shape
    result = list(specs[0].shape) if specs else []
    for spec in specs[1:]:
        lead = len(result) - len(spec.shape)
        if lead < 0:
            result, lead = [1] * -lead + result, 0
        for axis, extent in enumerate(spec.shape, start=lead):
            if stays(result[axis], extent):
                continue
            if result[axis] == 1:
                result[axis] = extent
            elif not extent == 1 and not result[axis] == extent:
                raise ShapeError(
                    f"{name}: {' and '.join(map(str, specs))} do not broadcast: axis "
                    f"{axis - len(result)} has {result[axis]} and {extent}; they must be equal, or "
                    "one of them 1"
                )
    return tuple(result)


def stays(known: int, extent: int) -> bool:
    """Whether a known extent stays as it is beside another one, whatever the numbers are."""
    return (type(extent) is int and extent == 1) or same_for_all(known, extent)


def promote_specs(*specs: Spec) -> DType:
    """The dtype of an operation over these: arrays decide, Python scalars adapt."""
    result = None
    scalars = []
    for spec in specs:
        if spec.weak:
            scalars.append(spec.dtype)
        elif result is not spec.dtype:
            result = spec.dtype if result is None else promote(result, spec.dtype)
    if result is None:
        return reduce(promote, scalars)
    return reduce(promote_weak, scalars, result) if scalars else result


def normalize_axis(name: str, axis: Any, ndim: int) -> int:
    """A possibly negative axis as 0 <= axis < ndim. Raises `AxisError`, and `TypeError` for what is
    no whole number."""
    axis = whole(name, "axis", axis)
    if not -ndim <= axis < ndim:
        raise AxisError(f"{name}: axis {axis!r} is out of range for an array of {ndim} dimensions")
    place: int = axis % ndim if axis < 0 else axis
    return place


def normalize_axes(name: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """None (all), one axis, or several, as sorted axes without repetition. Raises `ShapeError`.

    For an array without dimensions, axis 0 or -1 means no axes: NumPy then combines the array's
    only element.
    """
    if axis is None:
        return tuple(range(ndim))
    if ndim == 0 and isinstance(axis, WHOLE) and not isinstance(axis, bool) and axis in (0, -1):
        return ()
    axes = list(axis) if is_several(axis) else [axis]
    found = sorted({normalize_axis(name, a, ndim) for a in axes})
    if len(found) != len(axes):
        raise ShapeError(f"{name}: axis {axis!r} names an axis twice")
    return tuple(found)
