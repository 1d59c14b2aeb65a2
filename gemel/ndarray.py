"""ndarray: the array class of users. The core does the work; this module adds the methods."""

from __future__ import annotations

from typing import Any

from gemel import _core, autograd
from gemel.arrays.exchange import Exchange, from_dlpack
from gemel.arrays.inspection import Inspection
from gemel.arrays.making import array_like, as_array, from_buffer, from_numpy, index_item
from gemel.device import CPUS, GPUS, Device, as_device, present, try_gpu
from gemel.dtype import (
    BY_NAME,
    DTYPES,
    as_dtype,
    as_held,
    bool_,
    castable,
    is_large,
    keeps_kind,
)
from gemel.errors import ArgumentError, DTypeError, OperandError, ShapeError, own_errors
from gemel.extent import NUMBER, Dim
from gemel.ir.above import install
from gemel.ir.array_methods import ArrayMethods
from gemel.ir.current import current_trace
from gemel.ir.layout import Layout
from gemel.ir.numbers import beyond
from gemel.ir.op import Op
from gemel.ir.public import OPERATORS, function
from gemel.ops import assignment, elementwise, keys, subscripts
from gemel.passes.gradient import gradient as gradient_of
from gemel.runtime import callback as callbacks
from gemel.runtime import prepare
from gemel.runtime.prepare import as_entry, elementwise_kernel
from gemel.spec import Spec
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
        """With protocol 5 the elements are an out-of-band buffer, which need not be copied."""
        data: Any = _core.to_bytes(self)
        if protocol >= 5:
            from pickle import PickleBuffer

            data = PickleBuffer(data)
        place = self.device.device_type, self.device.device_id
        return _restored, (data, self.dtype.name, self.shape, place)

    # --- writing ----------------------------------------------------------------------------

    def _getitem(self, key: Any) -> Any:
        return subscripts.getitem(self, key)

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
        """Write a value that broadcasts to `target`, which is this array or a view of it."""
        if is_large(value):
            value = as_held("assign", value, target.dtype)
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
        """x[mask or positions] = value; NumPy does it when the operation's turn comes."""
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
        if value.device is not self.device:
            value = value.to_device(self.device)
        number = value.ndim == 0  # it fits whatever is selected
        if not number:
            assignment.check_assignment(self.shape, items, prepare.spec_of(value))
        if len(items) == 1 and self._placed(items[0], value):
            return
        if number:
            assignment.check_assignment(self.shape, items, prepare.spec_of(value))
        arrays = [item for item in items if isinstance(item, ndarray)]

        def assign(*found: Any) -> None:
            indices = map(assignment.as_positions, found[:-2])
            new, target = found[-2:]
            with own_errors("assign", ShapeError):
                target[tuple(next(indices) if isinstance(i, ndarray) else i for i in items)] = new

        callbacks.issue("assign", assign, [*arrays, value], (), (self,))

    def _placed(self, chosen: Any, value: Any) -> bool:
        """x[chosen] = value without NumPy, where that is possible; whether it was."""
        if not isinstance(chosen, ndarray) or chosen.device is not self.device:
            return False
        if value.ndim == 0 and chosen.dtype is bool_ and chosen.shape == self.shape:
            elementwise.where.into(self, chosen, value.astype(self.dtype, copy=False), self)
            return True
        return self._place(chosen, value)

    def _inplace(self, name: str, other: Any) -> Any:
        """x += y if the core cannot do it: on the tape, in a trace, or an error."""
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
        if trace is not None and trace.inputs.closed is not None:
            found = trace.inputs.captured(self, moves=True)
            return found if trace.notes is not None else found.to_device(device)  # files have none
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
            raise OperandError(f"copyto: {type(other)} is neither a device nor a gemel array")
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
        # The core recognizes names quickly.
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
    """Restore a pickled array on its device, or on the CPU if that GPU does not exist here."""
    kind, number = place
    device = try_gpu(number) if kind == "gpu" else CPUS[number]
    return from_buffer(data, as_dtype(dtype), shape, device)


class Layers:
    """What the operations need from the layers above: see `gemel.ir.above.Above`."""

    run = staticmethod(prepare.run)
    prepare = staticmethod(prepare.prepare)
    elementwise_kernel = staticmethod(elementwise_kernel)
    record = staticmethod(tape.record_call)
    as_array = staticmethod(as_array)
    as_entry = staticmethod(as_entry)
    from_numpy = staticmethod(from_numpy)
    index_item = staticmethod(index_item)
    gradient = staticmethod(gradient_of)


_core.set_array_class(ndarray)
_core.set_symbol_types((Dim,))
_core.set_dtypes(list(DTYPES))
_core.set_devices([*CPUS, *GPUS])
for _name, _op in OPERATORS.items():
    _core.set_operator(_name, _op)
install(Layers())

__all__ = ["from_dlpack", "from_numpy", "ndarray"]


def __getattr__(name: str) -> Any:
    # Like MXNet's module of this name, it has the operations, `np`, `npx` and `random`.
    if name.startswith("__"):  # attributes that Python looks up on modules
        raise AttributeError(f"module 'gemel.ndarray' has no attribute {name!r}")
    from importlib import import_module

    return import_module("gemel.legacy.facade").arrays(name, globals())


def __dir__() -> list[str]:
    from importlib import import_module

    facade = import_module("gemel.legacy.facade")
    own: list[str] = facade.directory(*__all__, *facade.OWN, "NDArray", "array")
    return own
