"""Parameters: named arrays that training changes, made as soon as their shape is known."""

from __future__ import annotations

from _weakref import ref
from typing import TYPE_CHECKING, Any

from gemel import autograd, compiled, init, np
from gemel.device import Device, as_device
from gemel.dtype import DType, as_dtype
from gemel.errors import (
    DeferredInitializationError,
    DeviceError,
    GradientError,
    ShapeError,
    UninitializedError,
    unknown_name,
)
from gemel.extent import WHOLE
from gemel.ir import trace
from gemel.ir.trace import current_trace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gemel.np import ndarray

__all__ = ["Constant", "DeferredInitializationError", "Parameter", "ParameterDict"]

_GRAD_REQUESTS = ("write", "add", "null")


class Parameter:
    """A named array that training changes, and its gradient.

    `shape` may have unknown sizes (0, -1 or None; None alone: nothing is known); the array is then
    made at the first forward. `init` is an initializer or its name; without one, the one given
    to `initialize` is. `grad_req` is ``"write"`` (each backward
    overwrites the gradient), ``"add"`` or ``"null"``. `lr_mult` and `wd_mult` multiply the
    trainer's learning rate and weight decay for this parameter. `allow_deferred_init` is accepted
    for old code: an unknown shape may always wait for the first forward.
    """

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
    ) -> None:
        self.name = name
        self.lr_mult = lr_mult
        self.wd_mult = wd_mult
        self.init = init
        self._differentiable = differentiable
        self._dtype = as_dtype(dtype)
        self._shape = _normalized(shape)
        self._grad_req = _checked_request(grad_req if differentiable else "null")
        self._array: ndarray | None = None
        #: What `initialize` was told, until the array can be made: initializer, device.
        self._waiting: tuple[init_module.Initializer, Device] | None = None
        self._owners: list[Any] = []
        #: The gradient as the last step left it: the array and its version.
        self._used: tuple[Any, int] = (None, 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.name} (shape={self.shape}, dtype={self.dtype})"

    # ---- what it is

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Its shape; unknown sizes are -1. None: not even the number of dimensions is known."""
        return self._shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        new = _normalized(shape)
        old = self._shape
        if old is not None and (new is None or not _fits(old, new)):
            raise ShapeError(
                f"parameter {self.name}: shape {new} does not fit the shape {old} it already has"
            )
        if old is not None and new is not None:
            new = tuple(a if b == -1 else b for a, b in zip(old, new, strict=True))
        self._shape = new

    @property
    def is_shape_known(self) -> bool:
        """Whether every size is known, so that the array can be made."""
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
        if request != "null" and not self._differentiable:
            raise GradientError(f"parameter {self.name} is not differentiable: grad_req stays null")
        if request == self._grad_req:
            return
        self._grad_req = request
        if self._array is not None:
            self._array.attach_grad(request)
            self._mark_used()
        self._changed()

    # ---- making the array

    def initialize(
        self,
        init: Any = None,
        device: Any = None,
        default_init: Any = None,
        force_reinit: bool = False,
        ctx: Any = None,
    ) -> None:
        """Fill the array, or have it made and filled as soon as the shape is known.

        The parameter's own initializer comes first, then `init`, then `default_init` (Uniform(0.07)
        by default). A parameter that has an array keeps it unless `force_reinit`.
        """
        if self._array is not None and not force_reinit:
            return
        self._waiting = (self._initializer(init, default_init), _one_device(device, ctx))
        if self.is_shape_known:
            self._make()

    def _initializer(self, given: Any, default: Any) -> init_module.Initializer:
        choices = (self.init, given, default, "uniform")
        return init_module.create(next(c for c in choices if c is not None))

    def _make(self) -> ndarray:
        """Make the array (or take the one there is) and fill it as `initialize` was told."""
        assert self._waiting is not None
        initializer, device = self._waiting
        array = self._array
        with _Aside():
            if array is None or array.device != device:
                array = np.zeros(self._shape, dtype=self._dtype, device=device)
            with np.random.initialization():
                # In a network names decide nothing: all are filled as weights.
                initializer(init_module.InitDesc(self.name, {"__init__": initializer}), array)
        self._waiting = None
        return self._adopt(array)

    def _adopt(self, array: ndarray) -> ndarray:
        if array is not self._array:
            first, self._array = self._array is None, array
            if self._grad_req != "null":
                array.attach_grad(self._grad_req)
                self._mark_used()
            # No program has a parameter without an array, but the one that asks for it now.
            if not first:
                compiled.parameters_replaced()
                self._changed()
        return array

    def _shape_found(self) -> None:
        """The shape became known in a forward: make the array if that was waited for."""
        if self._waiting is not None and self.is_shape_known:
            self._make()

    def array(self) -> ndarray:
        """The array itself, also during a trace; made now if that can be done.

        Raises `UninitializedError` before `initialize`, `DeferredInitializationError` before the
        shape is known.
        """
        if self._array is not None:
            return self._array
        if self._waiting is None:
            raise UninitializedError(
                f"parameter {self.name} has no value yet: call initialize() on the network (or on "
                "this parameter) before using it"
            )
        if not self.is_shape_known:
            raise DeferredInitializationError(
                f"parameter {self.name} has shape {self._shape}, which is not known before the "
                "first forward: pass a batch through the network, or give the layer's input size "
                "(in_units=...)"
            )
        return self._make()

    # ---- using it

    def data(self, device: Any = None, ctx: Any = None) -> Any:
        """Its array; in a trace, the symbol that stands for it.

        Raises `DeviceError` when `device` is given and the parameter does not live there.
        """
        tracing = current_trace()
        if tracing is not None:
            return tracing.parameter(self)
        array = self._array
        if array is None:
            array = self.array()
        if device is not None or ctx is not None:
            self._check_device(_one_device(device, ctx))
        return array

    def grad(self, device: Any = None, ctx: Any = None) -> ndarray:
        """Its gradient, zeros before the first backward. Raises `GradientError` if it has none."""
        array = self.array()
        if device is not None or ctx is not None:
            self._check_device(_one_device(device, ctx))
        if self._grad_req == "null":
            raise GradientError(
                f"parameter {self.name} has no gradient: its grad_req is 'null'; set it to 'write'"
            )
        gradient: ndarray = array.grad
        return gradient

    def set_data(self, value: Any) -> None:
        """Write `value` (an array of its shape, or a nested list) into the array, in place.

        In a trace, this is what the compiled program does each time it runs.
        """
        tracing = current_trace()
        if tracing is not None:
            tracing.update(self, value)
            return
        if not hasattr(value, "shape"):
            value = np.array(value, dtype=self._dtype)
        shape = tuple(value.shape)
        if self._shape is not None and not _fits(self._shape, shape):
            raise ShapeError(
                f"set_data: parameter {self.name} has shape {self._shape}; it cannot take data "
                f"of shape {shape}"
            )
        self._shape = shape
        array = self.array()
        with _Aside():
            array[...] = value

    def zero_grad(self) -> None:
        """Set the gradient to zero."""
        if self._grad_req == "null" or self._array is None:
            return
        fresh = self.has_fresh_grad
        with _Aside():
            self._array.grad[...] = 0
        if not fresh:
            self._mark_used()

    @property
    def has_fresh_grad(self) -> bool:
        """Whether backward has written the gradient since the last step used it."""
        if self._array is None or self._grad_req == "null":
            return False
        grad = self._array.grad
        used, version = self._used
        return grad is not used or grad.version != version

    def _mark_used(self) -> None:
        """A step has used the gradient as it is now."""
        grad = None if self._array is None or self._grad_req == "null" else self._array.grad
        self._used = (grad, 0 if grad is None else grad.version)

    def cast(self, dtype: Any) -> None:
        """Change the dtype; the gradient starts again from zero."""
        new = as_dtype(dtype)
        if new is self._dtype:
            return
        self._dtype = new
        if self._array is not None:
            with _Aside():
                array = self._array.astype(new)
            self._adopt(array)

    def reset_device(self, device: Any) -> None:
        """Move it to another device; the gradient starts again from zero."""
        target = _one_device(device, None)
        if self._waiting is not None:
            self._waiting = (self._waiting[0], target)
        if self._array is not None and self._array.device != target:
            with _Aside():
                array = self._array.copy().as_in_ctx(target)
            self._adopt(array)

    reset_ctx = reset_device

    def list_data(self) -> list[ndarray]:
        """Its array on each device it lives on."""
        return [self.array()]

    def list_grad(self) -> list[ndarray]:
        """Its gradient on each device it lives on."""
        return [self.grad()]

    def list_ctx(self) -> list[Device]:
        """The devices it lives on."""
        if self._array is None and self._waiting is not None:
            return [self._waiting[1]]
        return [self.array().device]

    list_device = list_ctx

    def _check_device(self, device: Device) -> None:
        if self.array().device != device:
            raise DeviceError(
                f"parameter {self.name} lives on {self.array().device}, not on {device}; "
                f"initialize it there or call reset_device({device})"
            )

    # ---- copies

    def __getstate__(self) -> dict[str, Any]:
        # Blocks make themselves owners of the copies; the gradient starts again from zero.
        return {**self.__dict__, "_owners": [], "_used": (None, 0)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._array is not None and self._grad_req != "null":
            self._array.attach_grad(self._grad_req)
            self._mark_used()

    # ---- who must hear of changes

    def _add_owner(self, block: Any) -> None:
        if all(owner() is not block for owner in self._owners):
            self._owners.append(ref(block))

    def _changed(self) -> None:
        """Programs compiled over this parameter no longer hold."""
        for owner in self._owners:
            block = owner()
            if block is not None:
                block._changed()


class Constant(Parameter):
    """A parameter that training does not change: part of the model, saved with it."""

    def __init__(self, value: Any, name: str = "") -> None:
        if not hasattr(value, "shape"):
            value = np.array(value)
        self.value = value
        super().__init__(
            name,
            grad_req="null",
            shape=value.shape,
            dtype=value.dtype,
            init=init_module.Constant(value),
            differentiable=False,
        )


class ParameterDict(dict[str, Parameter]):
    """Parameters by their place in the network (``0.weight``), or full name (``dense0_weight``)."""

    def __missing__(self, name: str) -> Parameter:
        for parameter in self.values():
            if parameter.name == name:
                return parameter
        raise unknown_name("parameter", name, self)

    def __repr__(self) -> str:
        lines = "".join(f"\n  {key}: {parameter!r}" for key, parameter in self.items())
        return f"{type(self).__name__} ({lines}\n)"

    def initialize(
        self,
        init: Any = None,
        device: Any = None,
        verbose: bool = False,
        force_reinit: bool = False,
        ctx: Any = None,
    ) -> None:
        """Initialize every parameter; see `Parameter.initialize`."""
        place = _one_device(device, ctx)
        kept = []
        visited = set()
        for key, parameter in self.items():
            if id(parameter) in visited:  # shared by several layers
                continue
            visited.add(id(parameter))
            if parameter._array is not None and not force_reinit:
                kept.append(key)
                continue
            parameter.initialize(None, place, init, force_reinit)
            if verbose:
                print(f"{key}: {parameter!r}")
        if kept:
            _warn(
                f"initialize: {', '.join(kept)} already hold values and keep them; "
                "pass force_reinit=True to start again"
            )

    def zero_grad(self) -> None:
        """Set every gradient to zero."""
        for parameter in self.values():
            parameter.zero_grad()

    def setattr(self, name: str, value: Any) -> None:
        """Set one attribute of every parameter, e.g. ``setattr("grad_req", "null")``."""
        for parameter in self.values():
            setattr(parameter, name, value)

    def reset_device(self, device: Any) -> None:
        """Move every parameter to another device."""
        for parameter in self.values():
            parameter.reset_device(device)

    reset_ctx = reset_device

    def list_ctx(self) -> list[Device]:
        """The devices the parameters live on, each once."""
        devices: list[Device] = []
        for parameter in self.values():
            devices.extend(device for device in parameter.list_ctx() if device not in devices)
        return devices

    list_device = list_ctx


class _Aside:
    """Work on a parameter that is no part of what is being recorded or traced around it."""

    def __enter__(self) -> None:
        self._trace = trace.suspended()
        self._trace.__enter__()
        self._pause = autograd.pause()
        self._pause.__enter__()

    def __exit__(self, *error: object) -> None:
        self._pause.__exit__(None, None, None)
        self._trace.__exit__(None, None, None)


# `init` is a parameter's name above, as users write it; this is the module.
init_module = init


def _normalized(shape: Any) -> tuple[int, ...] | None:
    if shape is None:
        return None
    sizes: Iterable[Any] = (shape,) if isinstance(shape, WHOLE) else shape
    return tuple(-1 if size is None or int(size) <= 0 else int(size) for size in sizes)


def _fits(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    if len(old) != len(new):
        return False
    return all(a in (-1, b) or b == -1 for a, b in zip(old, new, strict=True))


def _checked_request(request: str) -> str:
    if request not in _GRAD_REQUESTS:
        raise unknown_name("grad_req", request, _GRAD_REQUESTS)
    return request


def _one_device(device: Any, ctx: Any) -> Device:
    """The device meant by either keyword: a device, or a list of one."""
    given = device if device is not None else ctx
    if isinstance(given, (list, tuple)):
        if len(given) != 1:
            raise DeviceError(f"parameters live on one device; {list(given)} names {len(given)}")
        given = given[0]
    return as_device(given)


def _warn(message: str) -> None:
    import warnings

    warnings.warn(message, stacklevel=4)
