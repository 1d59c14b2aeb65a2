"""Tensor: an array, and whether and how gradients pass through it."""

from __future__ import annotations

from contextlib import ContextDecorator
from functools import partial
from threading import local
from typing import Any

from gemel import autograd, np, npx
from gemel.device import Device, as_device, cpu, gpu
from gemel.dtype import DType
from gemel.ops.loops import leaves

_mode = local()


class no_grad(ContextDecorator):  # noqa: N801 -- used as a function
    """A block, or a function, in which nothing is recorded for gradients."""

    def __enter__(self) -> None:
        self.before, _mode.off = getattr(_mode, "off", False), True

    def __exit__(self, *error: object) -> None:
        _mode.off = self.before


def device(type: Any = None, index: int = 0) -> Device:
    """The device "cpu", "cuda" or "cuda:1" means; gemel's are themselves, None is the current."""
    if not isinstance(type, str):
        return as_device(type)
    kind, _, number = type.partition(":")
    return {"cpu": cpu, "cuda": gpu}[kind](int(number or index))


def unwrapped(value: Any) -> Any:
    """The arrays of tensors in nested lists and tuples."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(unwrapped, value))
    return value.value() if isinstance(value, Tensor) else value


def wrapped(value: Any, grad_fn: str) -> Any:
    """Tensors of the arrays in nested lists and tuples, made by `grad_fn`."""
    if isinstance(value, (list, tuple)):
        return type(value)(wrapped(item, grad_fn) for item in value)
    return Tensor(value, grad_fn) if hasattr(value, "dtype") else value


def apply(function: Any, name: str, *arguments: Any, among: Any = (), **options: Any) -> Any:
    """Call a function of gemel on tensors, recorded when they, or those `among`, need gradients."""
    options = {{"dim": "axis", "keepdim": "keepdims"}.get(k, k): v for k, v in options.items()}
    given, needing = unwrapped(list(arguments)), leaves([*arguments, *among])
    off = getattr(_mode, "off", False)
    if off or not any(getattr(x, "requires_grad", False) is True for x in needing):
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
    function = None if name.startswith("_") else getattr(np, known, getattr(npx, known, None))
    if function is None:
        raise AttributeError(f"gemel.torch has no {name!r}: it offers what the book's chapter uses")
    if not callable(function) or isinstance(function, DType):
        return function
    if known in ("reshape", "transpose"):  # whose sizes may be given one by one
        function = lambda x, *sizes: getattr(x, known)(*sizes)  # noqa: E731
    call = partial(apply, function, label)
    call.__doc__ = function.__doc__
    return call


def text_of(array: Any, grad: str) -> str:
    """`tensor([...])` with what PyTorch adds where it is not the default, 4 decimals."""
    if not hasattr(array, "version"):  # a symbol
        return f"tensor({array!r})"
    import numpy  # when something is printed, not when the module is imported

    values, kind = array.asnumpy(), array.dtype.name
    notes = [f"device='cuda:{array.device.device_id}'"] if array.device.linked else []
    notes += [f"dtype=torch.{kind}"] if kind not in ("float32", "int64", "bool") else []
    write = _writer(values[values != 0]) if values.dtype.kind == "f" else str
    counted = values if write is str else values[values != 0]
    width = max((len(write(value)) for value in counted.flat), default=1) if array.ndim else 0
    format: Any = {"all": lambda value: write(value).rjust(width)}
    shown = numpy.array2string(values, 80, separator=", ", prefix="tensor(", formatter=format)
    text = "tensor(" + shown.replace(", ..., ", ",  ..., ")
    for note in [*notes, *([grad] if grad else [])]:
        wide = len(text) - text.rfind("\n") + len(note) > 78
        text += (",\n" + " " * 7 if wide else ", ") + note
    return text + ")"


def _writer(values: Any) -> Any:
    """What writes one of the numbers of which these are those that are not 0."""
    sizes = abs(values[abs(values) < float("inf")]).astype("float64")
    low, high = (sizes.min(), sizes.max()) if sizes.size else (1.0, 1.0)
    whole = bool((sizes % 1 == 0).all())
    if high / low > 1000 or high > 1e8 or (not whole and low < 1e-4):
        return "{:.4e}".format
    return lambda x: format(x, "#.0f" if whole and abs(x) < float("inf") else ".4f")


class Tensor:
    """An array of gemel's with PyTorch's face. Other methods than these are functions of arrays."""

    def __init__(self, array: Any, grad_fn: str = "") -> None:
        self._array, self._grad_fn = array, grad_fn
        self._unused: int | None = None  # the version of a gradient nothing was added to yet

    def value(self) -> Any:
        """The array it holds; in a trace the symbol of it."""
        return self._array

    shape = property(lambda self: tuple(self._array.shape))
    size = property(lambda self: lambda *dim: self.shape[dim[0]] if dim else self.shape)
    T = property(lambda self: lifted("t")(self))
    requires_grad = property(lambda self: bool(self._grad_fn) or self._unused is not None)

    def __getattr__(self, name: str) -> Any:
        if name in ("dtype", "device", "ndim", "item", "tolist", "numpy"):
            return getattr(self.value(), {"numpy": "asnumpy"}.get(name, name))
        return partial(lifted(name), self)

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
        self._array.backward(unwrapped(gradient), retain_graph=retain_graph)

    def detach(self) -> Tensor:
        """The same elements, cut off from what they were computed from."""
        return Tensor(self.value().detach())

    def to(self, place: Any) -> Any:
        """On another device (a name, or a device) or in another dtype."""
        if isinstance(place, DType):
            return apply(lambda x: x.astype(place), "ToCopy", self)
        return apply(lambda x: x.to_device(device(place)), "ToCopy", self)

    __flow__ = value

    def __flow_with__(self, entry: Any) -> Tensor:
        return Tensor(entry, self._grad_fn)

    def __repr__(self) -> str:
        grad = f"grad_fn=<{self._grad_fn}>" if self._grad_fn else "requires_grad=True"
        return text_of(self._array, grad if self.requires_grad else "")

    def __getitem__(self, key: Any) -> Any:
        return apply(lambda x: x[unwrapped(key)], "Slice", self)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.requires_grad and not getattr(_mode, "off", False):
            raise RuntimeError("in place on a tensor that requires grad: use torch.no_grad()")
        self.value()[unwrapped(key)] = unwrapped(value)

    __hash__ = object.__hash__


def _operator(name: str, function: str) -> None:
    """Python's operator, swapped and in place, too."""
    call = lifted(function)

    def in_place(self: Tensor, other: Any) -> Tensor:
        self[...] = call(self, other)
        return self

    setattr(Tensor, f"__{name}__", lambda self, *other: call(self, *other))
    setattr(Tensor, f"__r{name}__", lambda self, other: call(other, self))
    setattr(Tensor, f"__i{name}__", in_place)


for _name in ("add", "sub", "mul", "pow", "matmul", "neg", "eq", "ne", "lt", "le", "gt", "ge"):
    _operator(_name, _name)
_operator("truediv", "div")
for _name in ("bool", "int", "float", "len", "array", "format"):
    setattr(Tensor, f"__{_name}__",
            lambda self, *a, _of=f"__{_name}__": getattr(self.value(), _of)(*a))  # fmt: skip
