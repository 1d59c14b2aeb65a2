"""NDArray: the arrays `gemel.nd` gives, with the methods and the look MXNet 1's have.

They are gemel's arrays by another class: NumPy-style functions and layers take them, too, and give
plain arrays. Results of their operators, of their methods and of the functions of `gemel.nd` on
them are NDArrays. What MXNet 1 gives one dimension for want of fewer has none here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel import np
from gemel.arrays.inspection import FLOATING
from gemel.errors import ArgumentError
from gemel.ir.methods import given_shape
from gemel.legacy.declare import wanted

_Plain: Any = np.ndarray


class _Kind(type(_Plain)):  # type: ignore[misc]
    """As in MXNet, every array is an NDArray."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, _Plain)


class NDArray(_Plain, metaclass=_Kind):  # type: ignore[misc]
    """An array with MXNet 1's manners: its methods' keywords, numbers for truths, its `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        lengths = "x".join(map(str, self.shape))
        return f"\n{self.asnumpy()}\n<{type(self).__name__} {lengths} @{self.ctx}>"

    __str__ = __repr__

    @property
    def stype(self) -> str:
        """How elements are stored: always all of them."""
        return "default"

    def tostype(self, stype: str) -> Any:
        """The array itself, for "default". Raises `ValueError` for sparse kinds."""
        if stype != "default":
            raise ArgumentError(f"tostype: {stype!r}: arrays are dense here; use 'default'")
        return self

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Make this a variable: `backward` will leave its gradient in `.grad`, zeros until then."""
        super().attach_grad(grad_req, stype)
        if self._grad is not None:
            self._grad.__class__ = NDArray

    def reshape(self, *shape: Any, **options: Any) -> Any:
        """The same elements in another shape; MXNet's codes 0, -2, -3 and -4 stand for extents."""
        if shape:
            options["shape"] = given_shape(shape)
        return _applied("Reshape", self, **options)

    def transpose(self, *axes: Any, **options: Any) -> Any:
        """The axes in another order, reversed by default."""
        if axes:
            options["axes"] = given_shape(axes)
        return _applied("transpose", self, **options)

    def as_np_ndarray(self) -> Any:
        """A plain array on the same memory."""
        return _Plain.__getitem__(self, ...)

    def as_nd_ndarray(self) -> Any:
        """The array itself."""
        return self


def as_nd(found: Any) -> Any:
    """Plain arrays among results as NDArrays."""
    if isinstance(found, (list, tuple)):
        return [as_nd(each) for each in found]
    if isinstance(found, dict):
        return {name: as_nd(each) for name, each in found.items()}
    if type(found) is _Plain:
        found.__class__ = NDArray
    return found


def giving(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose results are NDArrays if an argument is, or none is an array."""

    def call(*inputs: Any, **keywords: Any) -> Any:
        given = [*inputs, *keywords.values()]
        given += [each for held in given if isinstance(held, (list, tuple)) for each in held]
        kinds = {type(each) for each in given}
        found = function(*inputs, **keywords)
        if any(found is each for each in given) or (_Plain in kinds and NDArray not in kinds):
            return found
        return as_nd(found)

    call.__name__ = call.__qualname__ = getattr(function, "__name__", "call")
    call.__doc__ = function.__doc__
    return call


def _applied(name: str, *inputs: Any, **settings: Any) -> Any:
    operation: Any = wanted(name)
    return as_nd(operation(*inputs, **settings))


def _of_operation(name: str) -> Any:
    def applied(self: Any, *inputs: Any, **settings: Any) -> Any:
        return _applied(name, self, *inputs, **settings)

    applied.__name__ = name
    return applied


def _of_plain(name: str) -> Any:
    plain = getattr(_Plain, name)

    def applied(self: Any, *inputs: Any, **settings: Any) -> Any:
        found = plain(self, *inputs, **settings)
        return found if found is self else as_nd(found)

    applied.__name__ = name
    applied.__doc__ = plain.__doc__
    return applied


def _compared(name: str) -> Any:
    plain = getattr(_Plain, name)

    def applied(self: Any, other: Any) -> Any:
        found = plain(self, other)
        return found if found is NotImplemented else as_nd(found.astype(self.dtype))

    return applied


#: Methods that are MXNet 1's operations where NumPy's of the same name are others.
for _name in (
    *("sum", "mean", "max", "min", "prod", "argmax", "argmin", "sort", "argsort", "clip", "tile"),
    *("repeat", "squeeze", "flatten", "take", "round", "swapaxes", "dot"),
):
    setattr(NDArray, _name, _of_operation(_name))
_pairs = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
for _name in (
    *(f"__{side}{each}__" for each in _pairs for side in ("", "r")),
    *("__neg__", "__abs__", "__getitem__"),
    *(name for name in dir(_Plain) if not name.startswith("_") and name not in vars(NDArray)),
):
    if callable(getattr(_Plain, _name)):
        setattr(NDArray, _name, _of_plain(_name))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(NDArray, f"__{_name}__", _compared(f"__{_name}__"))
FLOATING.add(NDArray)
NDArray.T = property(NDArray.transpose, doc="The array with its axes reversed.")

__all__ = ["NDArray", "as_nd", "giving"]
