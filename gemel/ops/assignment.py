"""x[key] = value as a function of the old contents of x, as traces and the tape need it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemel.dtype import DType, check_held, keeps_kind
from gemel.errors import ArrayIndexError, DTypeError, ShapeError, own_errors
from gemel.ir.above import above
from gemel.ir.current import current_trace
from gemel.ir.declare import composite, op
from gemel.ir.methods import named
from gemel.ir.reference import numpy
from gemel.lists import leaves
from gemel.ops.elementwise import cast, full, maximum, where
from gemel.ops.indexing import assign, gather, integer_indices
from gemel.ops.keys import (
    canonical,
    check_masks,
    is_array,
    is_basic,
    is_mask,
    key_shape,
    parted,
)
from gemel.ops.shape import operand, reshape
from gemel.spec import Spec, broadcast, product, same_shape


@named
def overwrite(x: Any, value: Any) -> Any:
    """In a trace: x holds `value` from now on. If x is only a number, return `value` instead."""
    trace = current_trace()
    if x.spec.weak or trace is None:
        return value
    if not same_shape(value.shape, x.shape):
        raise ShapeError(f"in place, {x.spec} cannot hold {value.spec}")
    if not keeps_kind(value.dtype, x.dtype):
        raise DTypeError(f"in place, {x.dtype} cannot hold {value.dtype}; use x = x + y")
    trace.state.write(x, value if value.dtype is x.dtype else cast(value, dtype=x.dtype))
    return x


@composite(complex=True)
def overwritten(value: Any, before: Any) -> Any:
    """The value, written in place of another one while recording was off (`ir.state`).

    Gradients arrive at what was there before, as on the tape.
    """
    return value


@overwritten.spec
def _(value: Spec, before: Spec) -> Spec:
    return value


@overwritten.gradient
def _(g: Any, y: Any, value: Any, before: Any) -> Any:
    return None, g


def contents(name: str, value: Any, x: Any) -> Any:
    """A value to be written into x or placed beside its elements, in x's dtype.

    Raises `OverflowError` for a whole number that the dtype cannot hold; arrays are converted.
    """
    for number in leaves(value):
        check_held(name, number, x.dtype)
    return cast(operand(value, (x,)), dtype=x.dtype)


def without_lead(value: Any, ndim: int) -> Any:
    """The value without its leading axes in excess of `ndim`, if all of these have length 1."""
    lead = value.ndim - ndim
    if lead <= 0 or not all(type(n) is int and n == 1 for n in value.shape[:lead]):
        return value
    return reshape(value, shape=value.shape[lead:])


@named
def setitem(x: Any, key: Any, value: Any) -> None:
    """x[key] = value in a trace: x holds the result from now on."""
    items = key if isinstance(key, tuple) else (key,)
    if not is_basic(key):
        items = tuple(above.index_item(item, x) for item in items)
    for number in leaves(value):
        check_held("assign", number, x.dtype)
    value = above.as_entry(value, (x,))
    check_assigned(value.spec, x.dtype)
    if value.dtype is not x.dtype:
        value = cast(value, dtype=x.dtype)
    if is_basic(items):
        place = canonical(x.shape, items)
        value = without_lead(value, len(key_shape(place)))
        overwrite(x, assign(x, value, key=place))
        return
    if len(items) == 1 and is_mask(items[0]) and not value.ndim:
        check_masks(x.shape, items)
        mask = reshape(items[0], shape=(*items[0].shape, *[1] * (x.ndim - items[0].ndim)))
        if not any(type(n) is int and n == 0 for n in mask.shape):  # an empty mask selects nothing
            overwrite(x, where(mask, value, x))
        return
    overwrite(x, written(x, items, value))


def check_assigned(value: Spec, dtype: DType) -> None:
    """Raises `DTypeError` if complex numbers are to be written into a real array."""
    if value.dtype.is_complex and not dtype.is_complex:
        raise DTypeError(f"assign: {dtype} cannot hold {value}; use its real part: real(value)")


def written(x: Any, items: Sequence[Any], value: Any) -> Any:
    """x after x[items] = value, as a function of both; the items include masks or positions.

    Raises `ShapeError` unless the value broadcasts to what is selected.
    """
    check_assignment(x.shape, items, Spec(value.shape, value.dtype))
    check_assigned(Spec(value.shape, value.dtype), x.dtype)
    value = value if value.dtype is x.dtype else cast(value, dtype=x.dtype)
    arrays = [item for item in items if is_array(item)]
    key = tuple(map(plain, items))
    chosen = choice(*arrays, shape=x.shape, given=value.shape, key=key)
    if 0 in value.shape:  # whether it fits what the masks select is only known at run time
        value = full(0, shape=(1,), dtype=x.dtype)
    return taken_from(x, value, chosen)


def taken_from(x: Any, value: Any, chosen: Any) -> Any:
    """x with the elements of `value` at the positions `chosen` says; -1 leaves x as it is."""
    chosen = reshape(chosen, shape=x.shape)
    found = gather(reshape(value, shape=(-1,)), maximum(chosen, 0), axis=0)
    return where(chosen >= 0, found, x)


def plain(item: Any) -> tuple[Any, ...]:
    """An item of an index in the form of a static parameter; arrays become inputs instead."""
    if is_array(item):
        return ("array",)
    if isinstance(item, slice):
        return ("slice", item.start, item.stop, item.step)
    return ("new",) if item is None else ("rest",) if item is Ellipsis else ("int", item)


#: Makes an item of an index from its form as a parameter and an iterator over the arrays.
ITEMS: dict[str, Any] = {
    "array": lambda arrays: next(arrays),
    "slice": lambda arrays, *bounds: slice(*bounds),
    "new": lambda arrays: None,
    "rest": lambda arrays: Ellipsis,
    "int": lambda arrays, position: position,
}


def as_positions(indices: Any) -> Any:
    """An array of positions, or a mask, for NumPy.

    Raises for large unsigned positions, which NumPy would take as negative.
    """
    if indices.dtype == "uint64" and indices.size and indices.max() >= 2**63:
        raise ArrayIndexError(f"index {indices.max()} is out of bounds")
    return indices


@op(fails=True)
def choice(*indices: Any, shape: Any, given: Any, key: Any) -> Any:
    """For each element of x, the position in `value` of what x[key] = value writes there, or -1.

    `shape` and `given` are the shapes of x and value; the arrays of the key are inputs.
    """
    np, arrays = numpy(), map(as_positions, indices)
    chosen = np.full(shape, -1, "int64")
    numbers = np.arange(product(given)).reshape(given)
    with own_errors("assign", ShapeError):
        chosen[tuple(ITEMS[kind](arrays, *rest) for kind, *rest in key)] = numbers
    return chosen


@choice.spec
def _(*indices: Spec, shape: Any, given: Any, key: Any) -> Spec:
    return Spec(shape, "int64")


def check_assignment(shape: tuple[int, ...], items: Sequence[Any], value: Spec) -> None:
    """Raises `ShapeError` unless value broadcasts to x[items], for x of that shape, and
    `ArrayIndexError` if there are no such items.

    How many elements a mask selects is only known when the assignment runs, and checked then.
    """
    check_masks(shape, items)
    for item in items:
        if is_array(item) and not is_mask(item):
            integer_indices("assign", Spec(item.shape, item.dtype))
    if any(is_mask(item) for item in items) or 0 in shape:
        return
    selected = _selected(shape, items)
    lead = max(value.ndim - len(selected), 0)
    pairs = zip(reversed(value.shape[lead:]), reversed(selected), strict=False)
    # A free size is compared with what is selected first: so it need not be told from 1.
    fits = all((type(m) is int and m == 1) or m in (n, 1) for m, n in pairs)
    if any(n != 1 for n in value.shape[:lead]) or not fits:
        raise ShapeError(f"assign: {value} does not broadcast to the selected shape {selected}")


def _selected(shape: tuple[int, ...], items: Sequence[Any]) -> tuple[int, ...]:
    """The shape of x[items] for an x of that shape, and items that include arrays of positions.

    It may have free sizes, so that a program is for all of them.
    """
    _, basic, axes, lead = parted(items, len(shape))
    given = [Spec(item.shape, item.dtype) for item in items if is_array(item)]
    try:
        kept = key_shape(canonical(shape, basic))
        common = broadcast("positions", *given)
    except (ArrayIndexError, ShapeError) as error:
        raise ArrayIndexError(f"assign: {error}") from None
    others = [n for axis, n in enumerate(kept) if axis not in axes]
    return (*others[:lead], *common, *others[lead:])


__all__ = [
    "check_assigned",
    "check_assignment",
    "choice",
    "overwrite",
    "setitem",
    "taken_from",
    "without_lead",
    "written",
]
