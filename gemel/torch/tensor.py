"""Tensor: an array, and whether and how gradients pass through it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from math import prod
from threading import local
from typing import Any

from gemel import autograd, np, npx
from gemel.device import Device, as_device, cpu, gpu
from gemel.dtype import DType
from gemel.ops.loops import leaves
from gemel.torch.text import text_of

_mode = local()


class no_grad(ContextDecorator):  # noqa: N801 -- used as a function
    """A block, or a function, in which nothing is recorded for gradients."""

    def __enter__(self) -> None:
        self.before, _mode.off = is_grad_enabled(), True

    def __exit__(self, *error: object) -> None:
        _mode.off = not self.before


def is_grad_enabled() -> bool:
    """Whether calls are recorded for gradients on this thread."""
    return not getattr(_mode, "off", False)


def device(type: Any = None, index: int = 0) -> Device:
    """The device "cpu", "cuda" or "cuda:1" means; gemel's are themselves, None is the current."""
    if not isinstance(type, str):
        return as_device(type)
    kind, _, number = type.partition(":")
    return (cpu if kind == "cpu" else gpu)(int(number or index))


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Nested lists and tuples with their values changed."""
    if not isinstance(value, (list, tuple)):
        return change(value)
    return type(value)(mapped(change, item) for item in value)


def unwrapped(value: Any) -> Any:
    """The arrays of tensors in nested lists and tuples."""
    return mapped(lambda x: x.value() if isinstance(x, Tensor) else x, value)


def wrapped(value: Any, grad_fn: str) -> Any:
    """Tensors of the arrays in nested lists and tuples, made by `grad_fn`."""
    return mapped(lambda x: Tensor(x, grad_fn) if hasattr(x, "dtype") else x, value)


def apply(function: Any, name: str, *arguments: Any, among: Any = (), **options: Any) -> Any:
    """Call a function of gemel on tensors, recorded when they, or those `among`, need gradients."""
    options = {{"dim": "axis", "keepdim": "keepdims"}.get(k, k): v for k, v in options.items()}
    given, needing = unwrapped(list(arguments)), leaves([*arguments, *among])
    if not is_grad_enabled() or not any(getattr(x, "requires_grad", False) for x in needing):
        return wrapped(function(*given, **options), "")
    with autograd.record(autograd.is_training()):
        return wrapped(function(*given, **options), f"{name}Backward0")


#: gemel's functions by PyTorch's names, where both differ, and what it calls their gradients.
RENAMED = """mm:matmul t:transpose cat:concatenate div:divide sub:subtract mul:multiply ne:not_equal
clone:copy view:reshape pow:power unsqueeze:expand_dims neg:negative transpose:swapaxes eq:equal
permute:transpose lt:less gt:greater le:less_equal ge:greater_equal"""
NAMES = dict(pair.split(":") for pair in RENAMED.split())
LABELS = {"matmul": "Mm", "reshape": "View"}


def lifted(name: str) -> Any:
    """The function of tensors, or dtype, with that name in `np` or `npx`, or `AttributeError`."""
    known, label = NAMES.get(name, name), LABELS.get(name, name.title())
    function = None if name.startswith("__") else getattr(np, known, getattr(npx, known, None))
    if function is None:
        raise AttributeError(f"gemel.torch has no {name!r}: it offers what the book's chapter uses")
    if not callable(function) or isinstance(function, DType):
        return function
    if known in ("reshape", "transpose"):  # whose sizes may be given one by one
        function = lambda x, *sizes: getattr(x, known)(*sizes)  # noqa: E731
    return lambda *given, **options: apply(function, label, *given, **options)


class Tensor:
    """An array of gemel's with PyTorch's face. Other methods than these are functions of arrays."""

    def __init__(self, array: Any, grad_fn: str = "") -> None:
        self._array, self._grad_fn = array, grad_fn
        self._unused: int | None = None  # the version of a gradient nothing was added to yet

    def value(self) -> Any:
        """The array it holds; in a trace the symbol of it."""
        return self._array

    shape = property(lambda self: tuple(self._array.shape))
    dtype = property(lambda self: self._array.dtype)
    device = property(lambda self: self._array.device)
    ndim = property(lambda self: self._array.ndim)
    T = property(lambda self: lifted("t")(self))
    requires_grad = property(lambda self: bool(self._grad_fn) or self._unused is not None)

    def __getattr__(self, name: str) -> Any:
        function = lifted(name)
        return lambda *given, **options: function(self, *given, **options)

    def requires_grad_(self) -> Tensor:
        """Make this a leaf whose gradient `backward` adds to."""
        self._array.attach_grad("add")
        self._unused = self._array.grad.version
        return self

    @property
    def grad(self) -> Any:
        """What `backward` has added up, or None before it has."""
        found = self._array.grad
        return None if found is None or found.version == self._unused else Tensor(found)

    def backward(self, gradient: Any = None, retain_graph: bool = False) -> None:
        """Add the gradients of this tensor to those of the leaves it was computed from."""
        if gradient is None and prod(self.shape) != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        self._array.backward(unwrapped(gradient), retain_graph=retain_graph)

    def detach(self) -> Tensor:
        """The same elements, cut off from what they were computed from."""
        return Tensor(self.value().detach())

    def size(self, *dim: int) -> Any:
        """Its shape, or the length of an axis."""
        return self.shape[dim[0]] if dim else self.shape

    def numpy(self) -> Any:
        """A NumPy array with a copy of the elements. `RuntimeError` where gradients pass."""
        if self.requires_grad:
            raise RuntimeError("numpy() of a tensor that requires grad: use tensor.detach()")
        return self.value().asnumpy()

    def to(self, place: Any) -> Any:
        """On another device (a name, or a device) or in another dtype."""
        if isinstance(place, DType):
            return apply(lambda x: x.astype(place), "ToCopy", self)
        return apply(lambda x: x.to_device(device(place)), "ToCopy", self)

    def __repr__(self) -> str:
        if not hasattr(self._array, "version"):
            return f"tensor({self._array!r})"
        grad = f"grad_fn=<{self._grad_fn}>" if self._grad_fn else "requires_grad=True"
        return text_of(self._array, grad if self.requires_grad else "")

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __getitem__(self, key: Any) -> Any:
        return apply(lambda x: x[unwrapped(key)], "Slice", self)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.value()[unwrapped(key)] = unwrapped(value)

    __hash__ = object.__hash__


def _operator(name: str, function: str) -> None:
    """Python's operator, swapped and in place, too."""
    call = lifted(function)

    def in_place(self: Tensor, other: Any) -> Tensor:
        if self.requires_grad and is_grad_enabled():
            raise RuntimeError("in place on a tensor that requires grad: use torch.no_grad()")
        self[...] = call(self, other)
        return self

    setattr(Tensor, f"__{name}__", lambda self, *other: call(self, *other))
    setattr(Tensor, f"__r{name}__", lambda self, other: call(other, self))
    setattr(Tensor, f"__i{name}__", in_place)


for _name in ("add", "sub", "mul", "pow", "matmul", "neg", "eq", "ne", "lt", "le", "gt", "ge"):
    _operator(_name, _name)
_operator("truediv", "div")
for _name in ("__bool__", "__int__", "__float__", "__len__", "__array__", "item", "tolist"):
    setattr(Tensor, _name, lambda self, *a, _of=_name: getattr(self.value(), _of)(*a))
