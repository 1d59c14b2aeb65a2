"""Specs: what is known of an array before it is computed -- its shape and dtype.

An extent may be a `Dim`: a whole number with a name, a free size of a traced function.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

from gemel.dtype import DType, as_dtype, promote, promote_weak
from gemel.errors import AxisError, ShapeError
from gemel.extent import WHOLE, same_for_all, seen

Shape = tuple[int, ...]


class Spec:
    """Shape and dtype of an array. `weak` marks a Python scalar, whose dtype gives way."""

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
    """The shape of a result, given by the caller. Raises `ShapeError` for one no array can have."""
    whole_numbers(name, "shape", shape)
    known = [n for n in shape if type(n) is int]
    if any(n < 0 for n in known):
        raise ShapeError(f"{name}: shape {list(shape)} has a negative extent")
    if product(n for n in known if n) > MOST_ELEMENTS:
        raise ShapeError(f"{name}: shape {list(shape)} has more elements than memory can address")
    return tuple(shape)


def whole_numbers(name: str, kind: str, values: Any) -> None:
    """Raises `ShapeError` for what is no whole number, such as 2.0."""
    if not is_several(values) or not all(hasattr(n, "__index__") for n in values):
        given = list(values) if is_several(values) else values
        raise ShapeError(f"{name}: {kind} {given!r} must be whole numbers")


def plain(value: Any) -> Any:
    """Settings: NumPy's whole numbers, and rows of them, as Python's; everything else as it is."""
    if type(value) in (list, tuple):
        return tuple(map(plain, value))
    dtype = getattr(value, "dtype", None) if type(value).__module__ == "numpy" else None
    whole = dtype is not None and dtype.kind in "iub" and value.ndim < 2
    return plain(value.tolist()) if whole else value


def is_several(values: Any) -> bool:
    """Whether there is something to go through, in order: not a number or an array of no axes."""
    if isinstance(values, (list, tuple)):
        return True
    if isinstance(values, (str, bytes, set, frozenset, dict)):
        return False
    return hasattr(values, "__iter__") and getattr(values, "ndim", 1) != 0


def sequence(name: str, kind: str, values: Any) -> tuple[Any, ...]:
    """Several arguments in one, as a tuple. Raises `TypeError` for what is no list of them."""
    if not is_several(values):
        raise TypeError(f"{name}: {kind} must be a list, not {type(values).__name__} {values!r}")
    return tuple(values)


def whole(name: str, kind: str, value: Any) -> Any:
    """A whole number, NumPy's as Python's. Raises `TypeError` for anything else, as 2.0."""
    if isinstance(value, WHOLE):
        return value
    if hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0:
        return value.__index__()
    raise TypeError(f"{name}: {kind} {value!r} must be a whole number")


def wholes(name: str, kind: str, values: Any) -> tuple[Any, ...]:
    """Whole numbers of which one may come alone. Raises `TypeError`."""
    several = values if is_several(values) else (values,)
    return tuple(whole(name, kind, value) for value in several)


#: So many of the widest dtype have addresses: sizes in bytes stay within 63 bits.
MOST_ELEMENTS = 2**60 - 1


def same_shape(a: Shape, b: Shape) -> bool:
    """Whether two shapes are equal, for every value of their free extents or by guard."""
    return len(a) == len(b) and all(m == n for m, n in zip(a, b, strict=True))


def same_shape_for_all(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes are equal for every value of their free extents; asks nothing."""
    return len(a) == len(b) and all(map(same_for_all, a, b))


def broadcast(name: str, *specs: Spec) -> Shape:
    """The shape these broadcast to. Raises `ShapeError` naming the operation and both specs."""
    if len(specs) == 1:
        return specs[0].shape
    result = list(specs[0].shape) if specs else []
    for spec in specs[1:]:
        lead = len(result) - len(spec.shape)
        if lead < 0:
            result, lead = [1] * -lead + result, 0
        for axis, extent in enumerate(spec.shape, start=lead):
            if result[axis] == 1:
                result[axis] = extent
            elif not extent == 1 and not result[axis] == extent:
                raise ShapeError(
                    f"{name}: {' and '.join(map(str, specs))} do not broadcast: axis "
                    f"{axis - len(result)} has {result[axis]} and {extent}; they must be equal, or "
                    "one of them 1"
                )
    return tuple(result)


def promote_specs(*specs: Spec) -> DType:
    """The dtype of an operation over these: arrays decide, Python scalars give way."""
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
    """A possibly negative axis as 0 <= axis < ndim. Raises `AxisError`."""
    if not isinstance(axis, WHOLE) and hasattr(axis, "__index__") and not is_several(axis):
        axis = axis.__index__()
    if not isinstance(axis, WHOLE) or isinstance(axis, bool) or not -ndim <= axis < ndim:
        raise AxisError(f"{name}: axis {axis!r} is out of range for an array of {ndim} dimensions")
    place: int = axis % ndim if axis < 0 else axis
    return place


def normalize_axes(name: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """None (all), one axis, or several, as sorted axes without repetition. Raises `ShapeError`.

    Of an array without dimensions the first and the last axis are none: NumPy combines the one
    element there is.
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
