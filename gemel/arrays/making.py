"""Making arrays from buffers, NumPy arrays, numbers, nested lists, and stand-ins for these.

The arguments of front-end functions become arrays here::

    array_like([[1, 2], [3, 4]])        # an array, from anything
    as_array(2.5)                       # an operand: a number stays a (weakly typed) number
    index_item([0, 2], x)               # an item of an index of x: positions on x's device
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Any

from gemel import _core, lists
from gemel.arrays.exchange import from_dlpack
from gemel.arrays.inspection import FLOATING
from gemel.device import Device, as_device
from gemel.dtype import (
    MANNERS,
    DType,
    any_exact,
    as_dtype,
    as_number,
    bool_,
    default_float,
    float64,
    int64,
    is_large,
    set_constructor,
    uint64,
)
from gemel.errors import DTypeError, OperandError
from gemel.extent import NUMBER, WHOLE
from gemel.ir.current import current_trace
from gemel.ir.graph import Entry, is_number
from gemel.ir.numbers import beyond, plain_number
from gemel.ir.public import function
from gemel.ops import keys
from gemel.ops.shape import stack


def from_buffer(
    data: Any, dtype: DType, shape: tuple[int, ...], device: Device | None = None
) -> Any:
    """An array with a copy of a C-contiguous buffer; for a GPU it is sent over the link."""
    place = as_device(device)
    found = _core.from_buffer(data, dtype.code, shape, 0 if place.linked else place.code)
    return _made(_core.copy_to_device(found, place.code) if place.linked else found)


def _made(array: Any) -> Any:
    """A newly created array; a trace records it as a constant of the program."""
    trace = current_trace()
    if trace is not None and trace.inputs.closed is not None:
        trace.inputs.closed.made(array)
    return array


@function(public="np")
def from_numpy(
    value: Any, device: Device | None = None, zero_copy: bool = False, dtype: Any = None
) -> Any:
    """An array with a copy of a NumPy array's elements; long floats become float64.

    Objects become what `dtype` says. With `zero_copy` it is over the same memory, see
    `npx.from_numpy`. Raises `DTypeError` for dtypes gemel has no arrays of.
    """
    import numpy

    device = None if device is None else as_device(device)
    if zero_copy:
        return from_dlpack(value, device=device)
    value = numpy.asarray(value)
    if value.dtype.kind == "O":
        if dtype is None:
            raise DTypeError("array: of objects; give the dtype, for example array(x, 'float32')")
        try:
            value = value.astype(as_dtype(dtype).twin.name)
        except (TypeError, ValueError) as error:
            raise DTypeError(f"array: not all objects can become {as_dtype(dtype)}") from error
    long = value.dtype.kind == "f" and value.dtype.itemsize > float64.itemsize
    found = float64 if long else as_dtype(value.dtype)
    if long or not value.dtype.isnative or not value.flags.c_contiguous:
        value = numpy.asarray(value, found.name, order="C")
    return from_buffer(value, found, value.shape, device)


def from_list(value: Any, dtype: DType, device: Device | None = None) -> Any:
    """An array from nested lists of numbers, without NumPy."""
    if dtype.real.name not in lists.LETTERS:  # Python's `array` module lacks this dtype
        return from_list(value, float64, device).astype(dtype)
    data, shape = lists.packed(value, dtype)
    return from_buffer(data, dtype, shape, device)


def array_like(value: Any, dtype: Any = None, device: Any = None) -> Any:
    """An array from anything that can become one: arrays of any library, numbers, nested lists."""
    if isinstance(value, (_core.Array, Entry)):
        return value
    if isinstance(value, NUMBER):
        wanted = as_dtype(dtype) if dtype is not None else default_dtype(value)
        return from_list(value, wanted, device)
    value = list(value) if isinstance(value, range) else value
    if isinstance(value, (list, tuple)):
        row = lists.is_row(value)  # that needs no search for what else it may hold
        leaves = list(value if row else lists.leaves(value))
        if row or all(isinstance(leaf, NUMBER) for leaf in leaves):
            if dtype is not None:
                return from_list(value, as_dtype(dtype), device)
            return _from_numbers(value, _list_dtype(leaves), device)
        if any(isinstance(leaf, (_core.Array, Entry)) for leaf in leaves):
            found = _stacked(value, dtype)
            return found if dtype is None else found.astype(dtype)
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__"):
        return from_dlpack(value, device=device, copy=True)  # its dtype may be missing in NumPy
    return from_numpy(value, device, dtype=dtype)


def _stacked(value: Any, dtype: Any) -> Any:
    """Nested lists of arrays, symbols and numbers as one array, without waiting for them.

    Numbers get the `dtype`, unless it is None.
    """
    if isinstance(value, (list, tuple)):
        return stack([_stacked(each, dtype) for each in value])
    if dtype is None or not is_number(value):
        return value
    return value.astype(dtype) if isinstance(value, Entry) else array_like(value, dtype)


def default_dtype(value: Any) -> DType:
    """The dtype of an array made of Python numbers like this one."""
    if isinstance(value, bool):
        return bool_
    if beyond(value):
        return uint64
    if isinstance(value, complex):
        return default_float().complex
    found: DType = MANNERS["floats" if isinstance(value, float) else "integers"]
    return found


def _list_dtype(leaves: list[Any]) -> DType:
    inexact = [leaf for leaf in leaves if isinstance(leaf, (float, complex))]
    if inexact or not leaves:
        found = map(default_dtype, inexact)
        return max(found, key=lambda dtype: dtype.itemsize, default=default_float())
    return bool_ if all(isinstance(leaf, bool) for leaf in leaves) else default_dtype(0)


def _exact_dtype(leaves: Iterable[Any]) -> DType | None:
    """The dtype with 64 bits a number of those leaves of a list that are no arrays and not whole;
    None if there are none."""
    numbers = [x for x in leaves if is_number(x)]
    dtypes = [x.dtype if isinstance(x, Entry) else default_dtype(x) for x in numbers]
    found = [as_number(dtype) for dtype in dtypes if dtype.is_inexact]
    return max(found, key=lambda dtype: dtype.itemsize, default=None)


def _from_numbers(value: Any, dtype: DType, device: Any) -> Any:
    """An array from nested lists; of uint64 if no other dtype holds the numbers."""
    try:
        return from_list(value, dtype, device)
    except OverflowError:
        return from_list(value, uint64, device)


def as_array(value: Any, beside: Iterable[Any] = ()) -> Any:
    """The operand for this argument: an array, or a Python number as it is.

    Lists and arrays of other libraries go to the device of the arrays `beside` them; Python floats
    in a list get the precision of those. Raises `OperandError` for anything else.
    """
    if isinstance(value, (_core.Array, *NUMBER, Entry)):
        if is_large(value):
            return _large_number(value, beside)
        return plain_number(value)
    if (
        hasattr(value, "dtype")
        and getattr(value, "ndim", 1) == 0
        and not hasattr(value, "__dlpack__")
    ):
        number = value.item()  # a NumPy scalar is as weakly typed as a Python number
        if isinstance(number, NUMBER):
            return number
    device = next((other.device for other in beside if isinstance(other, _core.Array)), None)
    if isinstance(value, (list, tuple, range)):
        wide = _exact_dtype(lists.leaves(value)) if any_exact(beside) else None
        return array_like(value, wide, device)
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        return array_like(value, None, device)
    raise OperandError(
        f"{type(value).__name__} {reprlib.repr(value)} is not an array, number or list of numbers"
    )


def _large_number(value: int, beside: Iterable[Any]) -> Any:
    """A whole number that int64 cannot hold: a float beside floats, else an array of uint64.

    A number that no integer dtype holds becomes an infinity, which gives the right result in
    comparisons. `Elementwise.check_numbers` refuses it in other operations.
    """
    if any(getattr(other, "dtype", bool_).kind in "fc" for other in beside):
        return float(value)
    if 0 < value < 2**64:
        return array_like(value)
    return float("inf") if value > 0 else -float("inf")


def index_item(item: Any, x: Any) -> Any:
    """One item of an index of x: lists and bools become arrays, NumPy's ints become Python's."""
    if item is None or item is Ellipsis or type(item) is slice:
        return item
    if isinstance(item, (_core.Array, Entry)):
        return _position(item, x)
    if isinstance(item, (str, bytes)):
        raise keys.no_index(item)
    device = getattr(x, "device", None)
    if isinstance(item, bool) or getattr(item, "dtype", None) == "bool":
        return array_like(item, None, device)
    if isinstance(item, WHOLE):
        return item
    if hasattr(item, "__index__") and not hasattr(item, "__len__"):
        return item.__index__()
    whole = isinstance(item, (list, tuple)) and all(type(n) is int for n in lists.leaves(item))
    try:
        found = array_like(item, int64 if whole else None, device)
    except DTypeError:
        raise keys.no_index(item) from None
    return _position(found, x)


def _position(item: Any, x: Any) -> Any:
    """An array in an index of x. MXNet also accepts floats there and truncates them."""
    if not item.dtype.is_floating:
        return item
    taken = MANNERS["floating positions"] or FLOATING & {type(x), type(item)}
    return item.astype(int64) if taken else item


def _constructed(value: Any, dtype: DType) -> Any:
    """The result of calling a dtype with a value; text is parsed as Python parses numbers."""
    if isinstance(value, (str, bytes)):
        value = (float if dtype.is_floating else int)(value)
    return array_like(value, dtype).astype(dtype)


set_constructor(_constructed)

__all__ = [
    "array_like",
    "as_array",
    "default_dtype",
    "from_buffer",
    "from_list",
    "from_numpy",
    "index_item",
]
