"""ndarray: the array users hold. The core does the work; here are its methods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gemel import _core, autograd, lists
from gemel.arrays.exchange import Exchange, from_dlpack
from gemel.arrays.inspection import FLOATING, Inspection
from gemel.device import CPUS, GPUS, Device, as_device, present, try_gpu
from gemel.dtype import (
    BY_NAME,
    DTYPES,
    MANNERS,
    DType,
    _constructor,
    as_dtype,
    as_number,
    bool_,
    castable,
    check_held,
    complex128,
    default_float,
    float64,
    int64,
    is_large,
    keeps_kind,
    uint64,
)
from gemel.errors import ArgumentError, DTypeError, ShapeError
from gemel.extent import NUMBER, WHOLE, Dim
from gemel.ir.above import install
from gemel.ir.array_methods import ArrayMethods
from gemel.ir.graph import Entry
from gemel.ir.layout import Layout
from gemel.ir.numbers import beyond, plain_number
from gemel.ir.op import Op
from gemel.ir.public import OPERATORS, function
from gemel.ir.trace import current_trace
from gemel.ops import assignment, elementwise, indexing, keys
from gemel.ops.shape import stack as _stack  # `nd.stack` is MXNet's
from gemel.passes.gradient import gradient
from gemel.runtime import callback, prepare
from gemel.runtime.prepare import as_entry, elementwise_kernel
from gemel.spec import Spec, product
from gemel.tape import recording as tape
from gemel.tape.function import Transfer


@function(public="np")
class ndarray(Inspection, _core.Array, Exchange, ArrayMethods):  # noqa: N801 -- NumPy's name
    """An n-dimensional array. Operations on it return at once; reading its elements waits.

    Made by `np.array`, `np.zeros`, ... and by operations, never by its class.
    """

    __slots__ = ()

    @property
    def spec(self) -> Spec:
        """Its shape and dtype."""
        return Spec(self.shape, self.dtype)

    # --- reading ----------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """With protocol 5 the elements are a buffer of their own, which need not be copied."""
        data: Any = _core.to_bytes(self)
        if protocol >= 5:
            from pickle import PickleBuffer

            data = PickleBuffer(data)
        place = self.device.device_type, self.device.device_id
        return _restored, (data, self.dtype.name, self.shape, place)

    # --- writing ----------------------------------------------------------------------------

    def _getitem(self, key: Any) -> Any:
        return indexing.getitem(self, key)

    def _setitem(self, key: Any, value: Any) -> None:
        if _core.capturing():
            assignment.setitem(as_entry(self), key, value)
            return
        if not keys.is_basic(key):
            items = key if isinstance(key, tuple) else (key,)
            key = tuple(index_item(item, self) for item in items)
        if not keys.is_basic(key):
            self._scattered(key, value)
            return
        self._write(self._view(keys.canonical(self.shape, key)), value)

    def _view(self, canonical: Any) -> Any:
        whole = Layout(self.shape, self._element_strides, self.offset)
        layout = keys.key_layout(whole, canonical)
        view = self._as_strided(layout.shape, layout.strides, layout.offset)
        if _core.recording():
            view._history = self._shared_history()
        return view

    def _write(self, target: Any, value: Any) -> None:
        if is_large(value):
            check_held("assign", value, target.dtype)
            value = float(value) if target.dtype.is_floating else value
        plain = isinstance(value, NUMBER) and not isinstance(value, complex)
        if plain and type(value) not in (bool, int, float):
            # The core does not know derived classes: NumPy's float64, enumerations, extents.
            value = float(value) if isinstance(value, float) else int(value)
        if not plain or beyond(value) or target.dtype.is_complex:
            value = array_like(value, target.dtype)
            assignment.check_assigned(prepare.spec_of(value), target.dtype)
            value = assignment.without_lead(value, target.ndim)
            lead = target.ndim - value.ndim
            pairs = zip(value.shape, target.shape[max(lead, 0) :], strict=False)
            if lead < 0 or not all(m in (1, n) for m, n in pairs):
                raise ShapeError(
                    f"assign: {prepare.spec_of(value)} does not broadcast to the selected "
                    f"{prepare.spec_of(target)}"
                )
            if value.device != target.device:
                value = value.to_device(target.device)
        tape.overwrite(target, value)

    def _scattered(self, key: Any, value: Any) -> None:
        """x[mask or positions] = value: done by NumPy when its turn has come."""
        items = key if isinstance(key, tuple) else (key,)
        value = array_like(value, self.dtype, self.device)
        assignment.check_assigned(prepare.spec_of(value), self.dtype)
        if tape.concerns(self, value):
            placed = [i.to_device(self.device) if isinstance(i, ndarray) else i for i in items]
            tape.write(self, assignment.written(self, placed, value.to_device(self.device)))
            return
        if self.device.linked:
            host = self.to_device(CPUS[0])
            host[key] = value.to_device(CPUS[0])
            self._write(self, host.to_device(self.device))
            return
        assignment.check_assignment(self.shape, items, prepare.spec_of(value))
        arrays = [item for item in items if isinstance(item, ndarray)]

        def assign(*found: Any) -> None:
            indices = map(assignment.as_positions, found[:-2])
            new, target = found[-2:]
            target[tuple(next(indices) if isinstance(i, ndarray) else i for i in items)] = new

        callback.issue("assign", assign, [*arrays, value], (), (self,))

    def _inplace(self, name: str, other: Any) -> Any:
        """x += y where the core does not do it itself: recorded, or an error."""
        op: Op = OPERATORS[name]
        new = op(self, other)
        if _core.capturing():
            assignment.overwrite(as_entry(self), new)
            return self
        if new.shape != self.shape:
            raise ShapeError(
                f"{op.name}: in place, {prepare.spec_of(self)} cannot hold {prepare.spec_of(new)}"
            )
        if not keeps_kind(new.dtype, self.dtype):
            raise DTypeError(
                f"{op.name}: in place, {self.dtype} cannot hold {new.dtype}; use x = x + y"
            )
        tape.overwrite(self, new)
        return self

    # --- places -----------------------------------------------------------------------------

    @property
    def ctx(self) -> Device:
        """Where the array lives."""
        device: Device = self.device
        return device

    context = ctx

    def to_device(self, device: Any, *, stream: Any = None) -> Any:
        """The array on a device; itself when it is there already. The engine orders the copy."""
        device = as_device(device)
        if device == self.device:
            return self
        trace = current_trace()
        if trace is not None and trace.closed is not None:
            return trace.captured(self, moves=True).to_device(device)
        return self.copyto(device)

    def as_in_ctx(self, ctx: Any) -> Any:
        """See `to_device`."""
        return self.to_device(ctx)

    def as_in_context(self, context: Any) -> Any:
        """See `to_device`."""
        return self.to_device(context)

    def copyto(self, other: Any) -> Any:
        """A copy on a device, or the elements written into another array, which is returned."""
        if _core.capturing():
            return as_entry(self).copyto(other)
        if isinstance(other, Device):
            if _core.recording() and tape.tracked(self):
                return Transfer(other)(self)
            return _core.copy_to_device(self, present(other).code)
        if not isinstance(other, ndarray):
            raise TypeError(f"copyto: {type(other)} is neither a device nor a gemel array")
        if other.shape != self.shape:
            raise ShapeError(
                f"copyto: {prepare.spec_of(self)} does not fit {prepare.spec_of(other)}"
            )
        recorded = tape.concerns(other, self)
        dense = other.dtype is self.dtype and other._is_contiguous
        if other.device != self.device and dense and not recorded:
            _core.copy_across(self, other)
        else:
            other._write(other, self)
        return other

    # --- gradients --------------------------------------------------------------------------

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Make this a variable: `backward` will leave its gradient in `.grad`, zeros until then."""
        if stype not in (None, "default"):
            raise ArgumentError(f"attach_grad: stype {stype!r}: gemel's gradients are dense")
        autograd.mark_variables([self], grad_reqs=grad_req)

    @property
    def grad(self) -> Any:
        """The gradient `backward` left, or None without `attach_grad`."""
        return self._grad

    def detach(self) -> Any:
        """The same elements, cut off from what they were computed from."""
        if _core.capturing():
            return as_entry(self).detach()
        return self._detached()

    def backward(
        self, out_grad: Any = None, retain_graph: bool = False, train_mode: bool = True
    ) -> None:
        """Gradients of this array for all variables it was computed from."""
        heads = None if out_grad is None else [out_grad]
        autograd.backward([self], heads, retain_graph, train_mode)

    def astype(
        self,
        dtype: Any,
        copy: bool = True,
        *,
        order: str = "K",
        casting: str = "unsafe",
        subok: bool = True,
    ) -> Any:
        """The elements in another dtype; without `copy`, the array itself when it has it.

        Raises `DTypeError` where `casting` ("safe", "same_kind") does not allow it.
        """
        # The core knows names at once.
        name = dtype if type(dtype) is str and dtype in BY_NAME else as_dtype(dtype).name
        if casting != "unsafe" and not castable(self.dtype, BY_NAME[name], casting):
            raise DTypeError(f"astype: {self.dtype} to {name} is not {casting!r} casting")
        if not copy and self.dtype.name == name:
            return self
        return elementwise.cast(self, dtype=name)

    def zero_grad(self) -> None:
        """Set the gradient to zeros."""
        if self._grad is not None:
            self._grad[...] = 0


def _restored(data: Any, dtype: str, shape: tuple[int, ...], place: tuple[str, int]) -> Any:
    """What was pickled, where it was; on the CPU when that GPU is not there."""
    kind, number = place
    device = try_gpu(number) if kind == "gpu" else CPUS[number]
    return from_buffer(data, as_dtype(dtype), shape, device)


# --- making arrays --------------------------------------------------------------------------


def from_buffer(
    data: Any, dtype: DType, shape: tuple[int, ...], device: Device | None = None
) -> Any:
    """An array with a copy of a C-contiguous buffer; to a GPU it goes over the link."""
    place = as_device(device)
    found = _core.from_buffer(data, dtype.code, shape, 0 if place.linked else place.code)
    return _made(_core.copy_to_device(found, place.code) if place.linked else found)


def _made(array: Any) -> Any:
    """An array of elements from elsewhere: in a trace a constant of the program."""
    if (trace := current_trace()) is not None and trace.closed is not None:
        trace.closed.made(array)
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
    """An array of nested lists of numbers, without NumPy."""
    if dtype.real.name not in lists.LETTERS:  # no array of Python's holds it
        return from_list(value, float64, device).astype(dtype)
    data, shape = lists.packed(value, dtype)
    return from_buffer(data, dtype, shape, device)


def array_like(value: Any, dtype: Any = None, device: Any = None) -> Any:
    """An array of anything that can be one: arrays, also of others, numbers, nested lists."""
    if isinstance(value, (ndarray, Entry)):
        return value
    if isinstance(value, NUMBER):
        wanted = as_dtype(dtype) if dtype is not None else default_dtype(value)
        return from_list(value, wanted, device)
    value = list(value) if isinstance(value, range) else value
    if isinstance(value, (list, tuple)):
        leaves = list(lists.leaves(value))
        if all(isinstance(leaf, NUMBER) for leaf in leaves):
            if dtype is not None:
                return from_list(value, as_dtype(dtype), device)
            return _from_numbers(value, _list_dtype(leaves), device)
        if any(isinstance(leaf, (ndarray, Entry)) for leaf in leaves):
            found = _stacked(value)
            return found if dtype is None else found.astype(dtype)
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__"):
        return from_dlpack(value, device=device, copy=True)  # it may have dtypes NumPy lacks
    return from_numpy(value, device, dtype=dtype)


def _stacked(value: Any) -> Any:
    """Nested lists of arrays, symbols and numbers as one array, without waiting for them."""
    return _stack([_stacked(v) if isinstance(v, (list, tuple)) else v for v in value])


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


def _from_numbers(value: Any, dtype: DType, device: Any) -> Any:
    """An array of nested lists; of uint64 where only that holds the whole numbers."""
    try:
        return from_list(value, dtype, device)
    except OverflowError:
        return from_list(value, uint64, device)


def as_array(value: Any, beside: Iterable[Any] = ()) -> Any:
    """What an operation takes for this argument: an array, or a Python number as it is.

    Lists and others' arrays go where the arrays `beside` them are; Python floats in a list are as
    exact as those.
    """
    if isinstance(value, (ndarray, *NUMBER, Entry)):
        if is_large(value):
            return _large_number(value, beside)
        return plain_number(value)
    if (
        hasattr(value, "dtype")
        and getattr(value, "ndim", 1) == 0
        and not hasattr(value, "__dlpack__")
    ):
        number = value.item()  # a NumPy scalar: as weak as a Python number
        if isinstance(number, NUMBER):
            return number
    device = next((other.device for other in beside if isinstance(other, ndarray)), None)
    if isinstance(value, (list, tuple, range)):
        exact = any(getattr(other, "dtype", None) in (float64, complex128) for other in beside)
        leaves = [n for n in lists.leaves(value) if isinstance(n, (float, complex))]
        wide = as_number(_list_dtype(leaves)) if exact and leaves else None
        return array_like(value, wide, device)
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        return array_like(value, None, device)
    raise TypeError(f"{type(value).__name__} {value!r} is not an array, number or list of numbers")


def _large_number(value: int, beside: Iterable[Any]) -> Any:
    """A whole number int64 cannot hold: a float beside floats, else an array of uint64.

    One no integer dtype holds is larger or smaller than all they hold, as infinity is: so it is
    compared. `Elementwise.check_numbers` refuses the rest.
    """
    if any(getattr(other, "dtype", bool_).kind in "fc" for other in beside):
        return float(value)
    if 0 < value < 2**64:
        return array_like(value)
    return float("inf") if value > 0 else -float("inf")


def index_item(item: Any, x: Any) -> Any:
    """One item of an index of x: lists and bools become arrays beside it, NumPy's ints Python's."""
    if item is None or item is Ellipsis or type(item) is slice:
        return item
    if isinstance(item, (ndarray, Entry)):
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
    """An array among the items of an index of x: MXNet takes floats, too, and cuts them off."""
    if not item.dtype.is_floating:
        return item
    taken = MANNERS["floating positions"] or FLOATING & {type(x), type(item)}
    return item.astype(int64) if taken else item


def _constructed(value: Any, dtype: DType) -> Any:
    """What a dtype called with a value gives: text is read as Python reads numbers."""
    if isinstance(value, (str, bytes)):
        value = (float if dtype.is_floating else int)(value)
    return array_like(value, dtype).astype(dtype)


class Layers:
    """What operations ask of the layers above theirs: see `gemel.ir.above.Above`."""

    run = staticmethod(prepare.run)
    prepare = staticmethod(prepare.prepare)
    elementwise_kernel = staticmethod(elementwise_kernel)
    record = staticmethod(tape.record_call)
    as_array = staticmethod(as_array)
    as_entry = staticmethod(as_entry)
    from_numpy = staticmethod(from_numpy)
    index_item = staticmethod(index_item)
    gradient = staticmethod(gradient)


_core.set_array_class(ndarray)
_core.set_symbol_types((Dim,))
_core.set_dtypes(list(DTYPES))
_core.set_devices([*CPUS, *GPUS])
for _name, _op in OPERATORS.items():
    _core.set_operator(_name, _op)
_constructor.append(_constructed)
install(Layers())

__all__ = ["array_like", "from_buffer", "from_dlpack", "from_numpy", "ndarray", "product"]


def __getattr__(name: str) -> Any:
    # As MXNet's module of this name: its operations, and `np`, `npx`, `random`.
    if name.startswith("__"):  # what Python asks of modules
        raise AttributeError(f"module 'gemel.ndarray' has no attribute {name!r}")
    from importlib import import_module

    return import_module("gemel.legacy.facade").arrays(name, globals())
