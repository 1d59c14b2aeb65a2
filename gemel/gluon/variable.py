"""Parameters: named arrays that training changes, created as soon as their shape is known.

A parameter is on one or several devices. On several, each has its own array, a replica, and its own
gradient. The replicas begin equal, and a `Trainer` keeps them equal.
"""

from __future__ import annotations

import os
import threading
from _weakref import ref
from typing import TYPE_CHECKING, Any

from gemel import autograd, np
from gemel import init as initializers  # `init` is also the name of an argument
from gemel.device import as_device, current_device
from gemel.dtype import DType, as_dtype
from gemel.errors import (
    DeferredInitializationError,
    DeviceError,
    GemelError,
    GradientError,
    ShapeError,
    UninitializedError,
    unknown_name,
)
from gemel.extent import WHOLE
from gemel.gluon.checked import Checked, check_initializer
from gemel.gluon.operand import HasArray
from gemel.gluon.places import places
from gemel.ir.current import current_trace, suspended
from gemel.ir.graph import placeholder
from gemel.ranges import check_number
from gemel.spec import Spec
from gemel.tracing import compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from gemel.device import Device
    from gemel.np import ndarray

__all__ = ["Parameter"]

_GRAD_REQUESTS = ("write", "add", "null")

#: Held while arrays are created: several threads may run a network for the first time at once.
_making = threading.RLock()
os.register_at_fork(after_in_child=_making._at_fork_reinit)  # type: ignore[attr-defined]


class Parameter(HasArray):
    """A named array that is trained, with its gradient.

    `shape` may have unknown sizes (0, -1 or None; None as the shape: nothing is known); the array
    is then created at the first forward. `init` is an initializer or its name, by default the one
    given to `initialize`. `grad_req` is ``"write"`` (each backward overwrites the gradient),
    ``"add"``, or ``"null"``, which is fixed for a parameter that is not differentiable. `lr_mult`
    and `wd_mult` multiply the trainer's learning rate and weight decay for this parameter. Two
    arguments are accepted for old code and ignored: `allow_deferred_init` (initialization may
    always be deferred) and `grad_stype` (gradients are dense). The array is dense too: another
    `stype` raises `GemelError`.
    """

    #: The axis along which it is split over its devices (`gluon.parallel`); None: replicated.
    cut_axis: int | None = None

    lr_mult, wd_mult = Checked(check_number), Checked(check_number)
    init = Checked(check_initializer)

    def __init__(
        self,
        name: str = "",
        grad_req: str = "write",
        shape: Any = None,
        dtype: Any = "float32",
        lr_mult: float = 1.0,
        wd_mult: float = 1.0,
        init: Any = None,
        allow_deferred_init: bool = True,
        differentiable: bool = True,
        stype: str = "default",
        grad_stype: str = "default",
    ) -> None:
        if stype != "default":
            raise GemelError(f"parameter {name}: stype={stype!r}; parameters are dense ('default')")
        self.name = name
        self.lr_mult, self.wd_mult, self.init = lr_mult, wd_mult, init
        self._differentiable = differentiable
        self._dtype = as_dtype(dtype)
        self._shape = _normalized(shape)
        self._grad_req = _checked_request(grad_req if differentiable else "null")
        #: Its arrays, one per device; empty until they can be created.
        self._arrays: tuple[ndarray, ...] = ()
        #: The arguments of `initialize` until the array is created: initializer, devices.
        self._waiting: tuple[initializers.Initializer, list[Device]] | None = None
        self._owners: list[Any] = []
        #: Callbacks to run after it has been filled.
        self._followers: list[Callable[[Parameter], None]] = []

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.name} (shape={self.shape}, dtype={self.dtype})"

    def __getattr__(self, name: str) -> Any:
        known = not name.startswith("_") and hasattr(np.ndarray, name)
        hint = f"; its array has: parameter.data().{name}" if known else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    # ---- properties

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape; unknown sizes are -1. None if not even the number of dimensions is known."""
        return self._shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        new = _normalized(shape)
        old = self._shape
        if old is not None and (new is None or not fits(old, new)):
            raise ShapeError(
                f"parameter {self.name}: shape {new} does not match its known shape {old}"
            )
        if old is not None and new is not None:
            new = tuple(a if b == -1 else b for a, b in zip(old, new, strict=True))
        self._shape = new

    @property
    def is_shape_known(self) -> bool:
        """Whether every size is known, so that the array can be created."""
        return self._shape is not None and -1 not in self._shape

    @property
    def dtype(self) -> DType:
        """The dtype of its array. To change it, call `cast`."""
        return self._dtype

    @property
    def grad_req(self) -> str:
        """What backward does with the gradient: "write", "add" or "null"."""
        return self._grad_req

    @grad_req.setter
    def grad_req(self, request: str) -> None:
        request = _checked_request(request)
        # As in MXNet: a request for a whole network also reaches its running statistics.
        request = request if self._differentiable else "null"
        if request == self._grad_req:
            return
        self._grad_req = request
        for array in self._arrays:
            array.attach_grad(request)
        self._changed()

    # ---- initialization

    def initialize(
        self,
        init: Any = None,
        device: Any = None,
        default_init: Any = None,
        force_reinit: bool = False,
        ctx: Any = None,
    ) -> None:
        """Create and fill the array, now or as soon as the shape is known.

        `device` is one or several devices; all get the same values. The initializer is the
        parameter's own, else `init`, else `default_init` (by default Uniform(0.07)). A parameter
        that has an array keeps it unless `force_reinit`.
        """
        if self._arrays and not force_reinit:
            return
        self._waiting = (self._initializer(init, default_init), places(device, ctx))
        if self.is_shape_known:
            self._make()

    def _initializer(self, given: Any, default: Any) -> initializers.Initializer:
        choices = (self.init, given, default, "uniform")
        return initializers.create(next(c for c in choices if c is not None))

    def _make(self) -> tuple[ndarray, ...]:
        """Create the arrays, or reuse existing ones, and fill them as `initialize` was asked to.

        If several threads run a network for the first time, one of them does this for all.
        """
        with _making:
            waiting = self._waiting
            if waiting is not None:
                self._fill(*waiting)
        # Without the lock: these may wait for other workers, which may be threads doing the same.
        with Aside():
            for follower in self._followers if waiting is not None else ():
                follower(self)
        return self._arrays

    def _fill(self, initializer: initializers.Initializer, devices: list[Device]) -> None:
        arrays = self._arrays
        with Aside():
            if [array.device for array in arrays] != devices:
                arrays = tuple(np.zeros(self._shape, self._dtype, device=d) for d in devices)
            with np.random.initialization(), devices[0]:
                # In a network the name does not matter: all parameters are filled as weights.
                initializer(initializers.InitDesc(self.name, {"__init__": initializer}), arrays[0])
            for other in arrays[1:]:
                arrays[0].copyto(other)
        self._adopt(arrays)
        self._waiting = None

    def _adopt(self, arrays: tuple[ndarray, ...]) -> None:
        if arrays is self._arrays:
            return
        first = not self._arrays
        if self._grad_req != "null":
            for array in arrays:
                array.attach_grad(self._grad_req)
        self._arrays = arrays
        # No program has a parameter without arrays, except the one that requests it now.
        if not first:
            compiled.parameters_replaced()
            self._changed()

    def _shape_found(self) -> None:
        """Called after a forward has found the shape: create the array if `initialize` was
        called."""
        if self._waiting is not None and self.is_shape_known:
            self._make()

    def arrays(self) -> tuple[ndarray, ...]:
        """The array on each device, also during a trace; created now if possible.

        Raises `UninitializedError` before `initialize`, `DeferredInitializationError` before the
        shape is known.
        """
        waiting = self._waiting  # before the arrays: another thread may be creating them
        if self._arrays:
            return self._arrays
        if waiting is None:
            raise UninitializedError(
                f"parameter {self.name} has no value yet: call initialize() on the network (or on "
                "this parameter) before using it"
            )
        if not self.is_shape_known:
            raise DeferredInitializationError(
                f"parameter {self.name} has shape {self._shape}, which is unknown before the "
                "first forward; pass a batch through the network, or give the layer's input "
                "size (in_units=...)"
            )
        return self._make()

    def array(self, device: Device | None = None) -> ndarray:
        """The array on `device`, or the first one, also during a trace.

        Raises the errors of `arrays`, and `DeviceError` if it is not on `device`.
        """
        arrays = self._arrays or self.arrays()
        if device is None or arrays[0].device is device:
            return arrays[0]
        return arrays[self._place(device)]

    def _place(self, device: Device) -> int:
        for position, array in enumerate(self.arrays()):
            if array.device is device:
                return position
        homes = [str(array.device) for array in self._arrays]
        raise DeviceError(
            f"parameter {self.name} is on {', '.join(homes)}, not on {device}; initialize it "
            f"there or call reset_device([{', '.join([*homes, str(device)])}])"
        )

    def _chosen(self, device: Any, ctx: Any) -> int:
        """The position of the replica on `device`; by default the one on the current device."""
        given = device if device is not None else ctx
        if given is None and len(self.arrays()) == 1:
            return 0
        return self._place(current_device() if given is None else as_device(given))

    def gathered(self) -> ndarray:
        """The value for a file or another device: that of the replicas, or their mean if they
        differ.

        Replicas that a `Trainer` updates are equal; running statistics are averaged over the
        devices, as in MXNet's files.
        """
        first, *others = self.arrays()
        if not others or self._grad_req != "null":
            return first
        with Aside():
            values = [first, *(other.as_in_ctx(first.device) for other in others)]
            same = sum(value == first for value in values) == len(values)
            mean = sum(values[1:], first) / len(values)
            return np.where(same, first, mean.astype(self._dtype))

    # ---- values and gradients

    def data(self, device: Any = None, ctx: Any = None) -> Any:
        """The array on `device`; in a trace, the symbol that stands for it.

        Without `device` it is the only array or, of several, the one on the current device; inside
        a block's forward that is the device of the input. Raises `DeviceError` if the parameter is
        not there.
        """
        tracing = current_trace()
        if tracing is not None:
            return tracing.state.parameter(self)
        arrays = self._arrays
        if len(arrays) == 1 and device is None and ctx is None:
            return arrays[0]
        return self.arrays()[self._chosen(device, ctx)]

    def grad(self, device: Any = None, ctx: Any = None) -> ndarray:
        """The gradient on a device (like `data`); zeros before the first backward.

        Raises `GradientError` if it has none.
        """
        return self.list_grad()[self._chosen(device, ctx)]

    def row_sparse_data(self, row_id: Any) -> ndarray:
        """Not supported: parameters are dense; `data()` has all rows."""
        raise GemelError(
            f"parameter {self.name} is dense: call data() instead of row_sparse_data()"
        )

    list_row_sparse_data = row_sparse_data

    def var(self) -> Any:
        """A symbol that stands for it; in a trace, the one of the program being traced."""
        tracing = current_trace()
        if tracing is not None:
            return tracing.state.parameter(self)
        if not self.is_shape_known:
            self.arrays()  # raises an error with advice
        return placeholder(Spec(self._shape or (), self._dtype), self.name)

    def set_data(self, data: Any) -> None:
        """Write `data` (an array of its shape, or a nested list) into the arrays, in place.

        In a trace, the compiled program does so each time it runs.
        """
        tracing = current_trace()
        if tracing is not None:
            tracing.state.update(self, data)
            return
        if not hasattr(data, "shape"):
            data = np.array(data, dtype=self._dtype)
        shape = tuple(data.shape)
        if self._shape is not None and not fits(self._shape, shape):
            raise ShapeError(
                f"set_data: parameter {self.name} has shape {self._shape}; it cannot take data "
                f"of shape {shape}"
            )
        if self._waiting is None:
            self.arrays()  # raises an error with advice if there are none
        self._shape = shape
        arrays = self.arrays()
        with Aside():
            for array in arrays:
                array[...] = data

    def load(self, value: ndarray, devices: list[Device] | None = None) -> None:
        """Take a value from a file: on `devices`, or where that is, if it lives nowhere yet."""
        if not self._arrays:
            self.shape = value.shape
            self.initialize("zeros", self.homes or devices or value.device)
        self.set_data(value)

    def zero_grad(self) -> None:
        """Set the gradients to zero."""
        if self._grad_req == "null":
            return
        with Aside():
            for array in self._arrays:
                array._grad[...] = 0

    def fresh_grads(self) -> tuple[list[Any], list[bool]]:
        """The gradients, and which of them backward has written since the last step."""
        grads, fresh = [], []  # no comprehensions, for speed in every step
        for array in self._arrays:
            grads.append(array._grad)
            fresh.append(autograd.deposit_of(array).fresh)
        return grads, fresh

    def _mark_used(self, used: bool = True) -> None:
        """Record that a step has used the gradients: they are stale until the next backward. If not
        `used`, that all have been written for the next step."""
        for array in self._arrays:
            autograd.deposit_of(array).fresh = not used

    def cast(self, dtype: Any) -> None:
        """Change the dtype; gradients are reset to zero."""
        new = as_dtype(dtype)
        if new is self._dtype:
            return
        if self._arrays:
            with Aside():
                arrays = tuple([array.astype(new) for array in self._arrays])
            self._adopt(arrays)
        self._dtype = new

    def reset_device(self, device: Any = None, ctx: Any = None) -> None:
        """Move the parameter to one or several devices; gradients are reset to zero."""
        devices = places(device, ctx)
        if self._waiting is not None:
            self._waiting = (self._waiting[0], devices)
        if self._arrays and [array.device for array in self._arrays] != devices:
            value = self.gathered()
            with Aside():
                arrays = tuple([value.copyto(device) for device in devices])
            self._adopt(arrays)

    reset_ctx = reset_device

    def list_data(self) -> list[ndarray]:
        """The array on each of its devices."""
        return list(self.arrays())

    def list_grad(self) -> list[ndarray]:
        """The gradient on each of its devices. Raises `GradientError` if it has none."""
        arrays = self.arrays()
        if self._grad_req == "null":
            raise GradientError(
                f"parameter {self.name} has no gradient: its grad_req is 'null'; set it to 'write'"
            )
        return [array.grad for array in arrays]

    @property
    def homes(self) -> list[Device]:
        """The devices it lives on, or will; none before `initialize`."""
        if not self._arrays and self._waiting is not None:
            return list(self._waiting[1])
        return [array.device for array in self._arrays]

    def list_ctx(self) -> list[Device]:
        """Its devices. Raises `UninitializedError` before `initialize`."""
        return self.homes or [array.device for array in self.arrays()]

    list_device = list_ctx

    # ---- copies and pickles: without the blocks it belongs to

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_owners": [], "_followers": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self._grad_req != "null":
            for array in self._arrays:
                array.attach_grad(self._grad_req)

    # ---- blocks that are told of changes

    def _add_owner(self, block: Any) -> None:
        if all(owner() is not block for owner in self._owners):
            self._owners.append(ref(block))

    def _changed(self) -> None:
        """Invalidate the programs compiled over this parameter."""
        for owner in self._owners:
            block = owner()
            if block is not None:
                block._changed()


class Aside:
    """A `with` block whose work on a parameter is neither recorded nor traced."""

    def __enter__(self) -> None:
        self._trace = suspended()
        self._trace.__enter__()
        self._pause = autograd.pause()
        self._pause.__enter__()

    def __exit__(self, *error: object) -> None:
        self._pause.__exit__(None, None, None)
        self._trace.__exit__(None, None, None)


def _normalized(shape: Any) -> tuple[int, ...] | None:
    if shape is None:
        return None
    sizes = (shape,) if isinstance(shape, WHOLE) else tuple(shape)
    if not all(size is None or (hasattr(size, "__index__") and size >= -1) for size in sizes):
        raise ShapeError(
            f"a parameter's shape must be whole numbers, and 0, -1 or None for unknown sizes, not "
            f"{shape!r}"
        )
    return tuple(-1 if size is None or int(size) <= 0 else int(size) for size in sizes)


def fits(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    if len(old) != len(new):
        return False
    return all(a in (-1, b) or b == -1 for a, b in zip(old, new, strict=True))


def _checked_request(request: str) -> str:
    if request not in _GRAD_REQUESTS:
        raise unknown_name("grad_req", request, _GRAD_REQUESTS)
    return request
