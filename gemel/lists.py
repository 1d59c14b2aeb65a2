"""Python's lists and tuples: nested lists of numbers become the bytes of an array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gemel.dtype import DType, bool_
from gemel.errors import ArgumentError, DTypeError, ShapeError
from gemel.spec import MOST_DIMENSIONS

#: The type codes of Python's own arrays for gemel's dtypes.
LETTERS = {
    "bool": "b",
    "uint8": "B",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}


#: Python's own numbers without an imaginary part.
REAL = {bool, int, float}


def is_row(value: Any) -> bool:
    """Whether it is a list of such numbers only, as most lists are."""
    return isinstance(value, (list, tuple)) and {*map(type, value)} <= REAL


def packed(value: Any, dtype: DType) -> tuple[Any, tuple[int, ...]]:
    """The numbers in C order in that dtype, and the shape.

    Raises `ShapeError` for ragged lists, `OverflowError` for a number that the dtype cannot hold,
    `DTypeError` for complex numbers if the dtype is not complex, and `ArgumentError` for NaN if it
    is one of integers.
    """
    from array import array  # only programs that make arrays from lists import it

    shape, flat = _flat(value)
    if not dtype.is_complex and flat is not value and any(isinstance(n, complex) for n in flat):
        raise DTypeError(f"array: {dtype} cannot hold complex numbers; use their real parts")
    letter = LETTERS[dtype.real.name]
    if dtype.is_complex:  # the real part of each, then its imaginary part
        flat = [part for number in map(complex, flat) for part in (number.real, number.imag)]
    try:
        if dtype is bool_:
            return array(letter, map(bool, flat)), shape
        try:
            return array(letter, flat), shape
        except TypeError:  # floats lose their fraction in integer dtypes
            return array(letter, map(int, flat)), shape
    except OverflowError:
        raise OverflowError(f"array: {dtype} cannot hold all of these numbers") from None
    except ValueError:
        raise ArgumentError(f"array: {dtype} cannot hold NaN; use a floating dtype") from None


def as_list(value: Any) -> list[Any]:
    """The items of a list or tuple; anything else becomes a list of one."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def listed(given: Any) -> list[Any]:
    """One object, several or None, as a list."""
    return [] if given is None else as_list(given)


def leaves(value: Any, outside: int = 0) -> Iterator[Any]:
    """All items of nested lists that are not lists themselves.

    Raises `ShapeError` if the lists are nested deeper than arrays can be, as one in itself is.
    """
    if isinstance(value, (list, tuple)):
        if outside == MOST_DIMENSIONS:
            raise ShapeError(
                f"array: the lists are nested more than {MOST_DIMENSIONS} deep, or one contains "
                f"itself; an array has at most {MOST_DIMENSIONS} dimensions"
            )
        for item in value:
            yield from leaves(item, outside + 1)
    else:
        yield value


def _shape(value: Any) -> tuple[int, ...]:
    shape = []
    while isinstance(value, (list, tuple)):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _flat(value: Any) -> tuple[tuple[int, ...], Sequence[Any]]:
    """The shape of nested lists, and their numbers; a list of real ones itself."""
    if is_row(value):
        return (len(value),), value
    shape = _shape(value)
    flat: list[Any] = []
    _flatten(value, shape, 0, flat)
    return shape, flat


def _flatten(value: Any, shape: tuple[int, ...], depth: int, out: list[Any]) -> None:
    listed = isinstance(value, (list, tuple))
    if listed != (depth < len(shape)) or (listed and len(value) != shape[depth]):
        raise ShapeError("array: nested lists of different depths or lengths cannot form an array")
    if not listed:
        out.append(value)
        return
    for item in value:
        _flatten(item, shape, depth + 1, out)
