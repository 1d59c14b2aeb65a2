"""Tensor: an array, and whether and how gradients pass through it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, partialmethod
from threading import local
from typing import Any

from gemel import autograd, np, npx
from gemel.device import Device, as_device, cpu, gpu
from gemel.dtype import DType
from gemel.np.printing import fixed_text
from gemel.ops.loops import leaves

_mode = local()


@contextmanager
def no_grad() -> Iterator[None]:
    """A block, or a decorated function, in which nothing is recorded for gradients."""
    before, _mode.off = getattr(_mode, "off", False), True
    try:
        yield
    finally:
        _mode.off = before


def device(type: Any = None, index: int = 0) -> Device:
    """The device for "cpu", "cuda" or "cuda:1", or a gemel device; None is the current one."""
    if not isinstance(type, str):
        return as_device(type)
    kind, _, number = type.partition(":")
    return {"cpu": cpu, "cuda": gpu}[kind](int(number or index))


def unwrapped(value: Any) -> Any:
    """Replace tensors by their arrays in nested lists and tuples."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(unwrapped, value))
    return value.value() if isinstance(value, Tensor) else value


def wrapped(value: Any, grad_fn: str) -> Any:
    """Replace arrays by tensors, with this `grad_fn`, in nested lists and tuples."""
    if isinstance(value, (list, tuple)):
        return type(value)(wrapped(item, grad_fn) for item in value)
    return Tensor(value, grad_fn) if hasattr(value, "dtype") else value


def apply(function: Any, name: str, *arguments: Any, among: Any = (), **options: Any) -> Any:
    """Call a gemel function on tensors; it is recorded if they, or those in `among`, need
    gradients."""
    options = {{"dim": "axis", "keepdim": "keepdims"}.get(k, k): v for k, v in options.items()}
    given, needing = unwrapped(list(arguments)), leaves([*arguments, *among])
    off = getattr(_mode, "off", False)
    if off or not any(getattr(x, "requires_grad", False) is True for x in needing):
        return wrapped(function(*given, **options), "")
    with autograd.record(autograd.is_training()):
        return wrapped(function(*given, **options), f"{name}Backward0")


#: gemel's functions by PyTorch's names, where these differ, and PyTorch's names of gradients.
RENAMED = """mm:matmul t:transpose cat:concatenate div:divide sub:subtract mul:multiply ne:not_equal
clone:copy view:reshape pow:power unsqueeze:expand_dims neg:negative transpose:swapaxes eq:equal
permute:transpose lt:less gt:greater le:less_equal ge:greater_equal"""
NAMES = dict(pair.split(":") for pair in RENAMED.split())
LABELS = {"matmul": "Mm", "reshape": "View"}


def lifted(name: str) -> Any:
    """The function of tensors, or dtype, of that name in `np` or `npx`. Raises `AttributeError`."""
    known, label = NAMES.get(name, name), LABELS.get(name, name.title())
    function = None if name.startswith("_") else getattr(np, known, getattr(npx, known, None))
    if function is None:
        raise AttributeError(f"gemel.torch has no {name!r}, only what the book's chapter uses")
    if not callable(function) or isinstance(function, DType):
        return function
    if known in ("reshape", "transpose"):  # their sizes may be separate arguments
        function = lambda x, *sizes: getattr(x, known)(*sizes)  # noqa: E731
    call = partial(apply, function, label)
    call.__doc__ = function.__doc__
    return call


class Tensor:
    """A gemel array with PyTorch's interface. Other methods than these are functions of arrays."""

    def __init__(self, array: Any, grad_fn: str = "") -> None:
        self._array, self._grad_fn = array, grad_fn
        self._unused: int | None = None  # the version of a gradient to which nothing was added yet

    def value(self) -> Any:
        """The array; in a trace, its symbol."""
        return self._array

    shape = property(lambda self: tuple(self._array.shape))
    size = property(lambda self: lambda *dim: self.shape[dim[0]] if dim else self.shape)
    T = property(lambda self: self.t())
    requires_grad = property(lambda self: bool(self._grad_fn) or self._unused is not None)

    def __getattr__(self, name: str) -> Any:
        if name in ("dtype", "device", "ndim", "item", "tolist", "numpy"):
            return getattr(self.value(), {"numpy": "asnumpy"}.get(name, name))
        return partial(lifted(name), self)

    def requires_grad_(self) -> Tensor:
        """Make this a leaf, to whose gradient `backward` adds."""
        self._array.attach_grad("add")
        self._unused = self._array.grad.version
        return self

    @property
    def grad(self) -> Any:
        """The gradient that `backward` has accumulated; None before the first call."""
        found = self._array.grad
        return None if found is None or found.version == self._unused else Tensor(found)

    def backward(self, gradient: Any = None, retain_graph: bool = False) -> None:
        """Add the gradients of this tensor to those of the leaves it was computed from."""
        self._array.backward(unwrapped(gradient), retain_graph=retain_graph)

    def detach(self) -> Tensor:
        """The same elements, without the history of how they were computed."""
        return Tensor(self.value().detach())

    def to(self, place: Any) -> Any:
        """Copy to another device (by name or object), or convert to another dtype."""
        if isinstance(place, DType):
            return apply(lambda x: x.astype(place), "ToCopy", self)
        return apply(lambda x: x.to_device(device(place)), "ToCopy", self)

    __flow__ = value

    def __flow_with__(self, entry: Any) -> Tensor:
        return Tensor(entry, self._grad_fn)

    def __repr__(self) -> str:
        array, kind = self._array, self._array.dtype.name
        grad = f"grad_fn=<{self._grad_fn}>" if self._grad_fn else "requires_grad=True"
        known = hasattr(array, "version")  # a symbol has none
        text = "tensor(" + (fixed_text(array.asnumpy(), "tensor(") if known else repr(array))
        notes = [f"device='cuda:{array.device.device_id}'"] if array.device.linked else []
        notes += [f"dtype=torch.{kind}"] if kind not in ("float32", "int64", "bool") else []
        for note in [*notes, *([grad] if self.requires_grad else [])]:
            wide = len(text) - text.rfind("\n") + len(note) > 78
            text += (",\n" + " " * 7 if wide else ", ") + note
        return text + ")"

    def __getitem__(self, key: Any) -> Any:
        return apply(lambda x: x[unwrapped(key)], "Slice", self)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.requires_grad and not getattr(_mode, "off", False):
            raise RuntimeError("in place on a tensor that requires grad: use torch.no_grad()")
        self.value()[unwrapped(key)] = unwrapped(value)

    def _hold(self, other: Tensor) -> Tensor:
        self[...] = other
        return self

    __hash__ = object.__hash__


OPERATORS = "add sub mul pow matmul neg eq ne lt le gt ge div"
for _name in OPERATORS.split():
    _call, _of = lifted(_name), {"div": "truediv"}.get(_name, _name)
    setattr(Tensor, f"__{_of}__", partialmethod(_call))
    setattr(Tensor, f"__r{_of}__", lambda self, other, _call=_call: _call(other, self))
    setattr(Tensor, f"__i{_of}__", lambda self, other, _call=_call: self._hold(_call(self, other)))
for _of in ("__bool__", "__int__", "__float__", "__len__", "__array__", "__format__"):
    setattr(Tensor, _of, lambda self, *a, _of=_of: getattr(self.value(), _of)(*a))
