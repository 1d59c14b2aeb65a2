"""Sequences of different lengths in one array (time, batch, ...), or (batch, time, ...)."""

from __future__ import annotations

from typing import Any

from gemel.errors import ShapeError
from gemel.ir.declare import composite
from gemel.ir.public import Array, function
from gemel.ops.elementwise import cast, full, iota, subtract, where
from gemel.ops.elementwise import copy as materialized
from gemel.ops.indexing import gather
from gemel.ops.shape import operand, reshape, swapaxes
from gemel.spec import Spec, same_shape


def check_axis(name: str, axis: Any) -> None:
    """Raises `ShapeError` for an axis that cannot be time, also where no lengths are used."""
    if axis not in (0, 1):
        raise ShapeError(f"{name}: axis {axis!r} must be 0 or 1")


def check_lengths(name: str, x: Any, lengths: Any, axis: int) -> None:
    """Raises `ShapeError` unless there is one length for each sequence."""
    given, known = Spec(x.shape, x.dtype), Spec(lengths.shape, lengths.dtype)
    check_axis(name, axis)
    if x.ndim < 2:
        raise ShapeError(f"{name}: {given}: the array must have at least two axes")
    if not same_shape(lengths.shape, (x.shape[1 - axis],)):
        raise ShapeError(
            f"{name}: lengths {known} must have one length for each sequence (axis {1 - axis}) "
            f"of {given}"
        )


@composite(public="npx", mxnet="_npx_sequence_mask")
def sequence_mask(x: Any, lengths: Any, *, value: float = 0.0, axis: int = 0) -> Any:
    """Set the elements after the end of each sequence to `value`."""
    ends = reshape(lengths, shape=(1, -1) if axis == 0 else (-1, 1))
    shape = (x.shape[0], 1) if axis == 0 else (1, x.shape[1])
    inside = iota(shape=shape, axis=axis, dtype="int64") < ends
    inside = reshape(inside, shape=(*x.shape[:2], *[1] * (x.ndim - 2)))
    return where(inside, x, full(value, shape=(), dtype=x.dtype))


@sequence_mask.spec
def _(x: Spec, lengths: Spec, *, value: float, axis: int) -> Spec:
    check_lengths("sequence_mask", x, lengths, axis)
    return x


@sequence_mask.facade
def _(
    data: Any,
    sequence_length: Any = None,
    use_sequence_length: bool = False,
    value: float = 0.0,
    axis: int = 0,
) -> Array:
    """data with `value` behind the end of each sequence; `axis` (0 or 1) is time, the other batch.

    Without `use_sequence_length` nothing is masked.

    >>> npx.sequence_mask(np.ones((2, 3)), np.array([1, 2]), True, value=-1.0, axis=1)
    """
    check_axis("sequence_mask", axis)
    if not use_sequence_length or sequence_length is None:
        return materialized(operand(data))
    return sequence_mask(data, sequence_length, value=value, axis=axis)


def steps_of(x: Any, places: Any, inside: Any) -> Any:
    """From x (time, batch, ...), the elements of each sequence at places (..., batch).

    Places that are not `inside` become out-of-range positions, which are an `IndexError`.
    """
    time, batch = x.shape[0], x.shape[1]
    flat = reshape(x, shape=(time * batch, *x.shape[2:]))
    number = iota(shape=(batch,), axis=0, dtype="int64")
    return gather(flat, where(inside, places * batch + number, -(2**40)), axis=0)


@function(public="npx")
def sequence_last(
    data: Any, sequence_length: Any = None, use_sequence_length: bool = False, axis: int = 0
) -> Array:
    """The last element of each sequence; `axis` (0 or 1) is time, the other batch.

    Without `use_sequence_length` all sequences are as long as the axis. A length of 0, or one
    longer than the axis, is an `IndexError`, raised when the result is waited for.

    >>> npx.sequence_last(np.arange(6).reshape(2, 3), np.array([1, 3]), True, axis=1)
    """
    check_axis("sequence_last", axis)
    data = operand(data)
    x = swapaxes(data, 0, 1) if axis == 1 else data
    if not use_sequence_length or sequence_length is None:
        return materialized(x[-1])
    sequence_length = operand(sequence_length)
    check_lengths("sequence_last", data, sequence_length, axis)
    lengths = cast(sequence_length, dtype="int64")
    inside = (lengths > 0) & (lengths <= x.shape[0])
    return steps_of(x, subtract(lengths, 1), inside)


@function(public="npx")
def sequence_reverse(
    data: Any, sequence_length: Any = None, use_sequence_length: bool = False, axis: int = 0
) -> Array:
    """Reverse each sequence, leaving elements after its end in place; `axis` 0 or 1 is time.

    Without `use_sequence_length` all sequences are as long as the axis.

    >>> npx.sequence_reverse(np.arange(6).reshape(2, 3), np.array([2, 3]), True, axis=1)
    """
    check_axis("sequence_reverse", axis)
    data = operand(data)
    x = swapaxes(data, 0, 1) if axis == 1 else data
    if not use_sequence_length or sequence_length is None:
        return materialized(data[::-1] if axis == 0 else data[:, ::-1])
    sequence_length = operand(sequence_length)
    check_lengths("sequence_reverse", data, sequence_length, axis)
    lengths = cast(sequence_length, dtype="int64")
    place = iota(shape=(x.shape[0], 1), axis=0, dtype="int64")
    turned = where(place < lengths, lengths - 1 - place, place)
    found = steps_of(x, turned, turned < x.shape[0])
    return swapaxes(found, 0, 1) if axis == 1 else found
