"""Methods of arrays and symbols whose signature is not that of an operation.

The others are declared where the operation is: see `gemel.ir.public`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from gemel.dtype import as_dtype, castable
from gemel.errors import DTypeError
from gemel.ir.element_methods import ElementMethods
from gemel.ir.late import load

#: All operations by name. Declaring one (`gemel.ir.op.Op`) adds it.
REGISTRY: dict[str, Any] = {}


def named(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: `call` finds the function by its name, as it finds operations."""
    REGISTRY[function.__name__] = function
    return function


def registered(name: str) -> Any:
    """What is declared as `name`; its family is imported if need be. Raises `KeyError`."""
    if name not in REGISTRY:
        load(lambda: name in REGISTRY)
    return REGISTRY[name]


def call(name: str, *inputs: Any, **parameters: Any) -> Any:
    """Apply the operation called `name`."""
    return registered(name)(*inputs, **parameters)


def operate(name: str, *inputs: Any, **parameters: Any) -> Any:
    """Apply the operation called `name` as Python's operator does (`Op.operated`)."""
    return registered(name).operated(*inputs, **parameters)


def face(name: str) -> Any:
    """The function that users call for the operation called `name`."""
    return registered(name).face


def given_shape(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape in the arguments of f(2, 3), f((2, 3)), f(range(2)) or f(an array of one axis)."""
    if len(arguments) != 1:
        return arguments
    given = arguments[0]
    if isinstance(given, (tuple, list, range)):
        return tuple(given)
    return tuple(given.tolist()) if getattr(given, "ndim", 0) == 1 else arguments


class LegacyMethod:
    """A descriptor for a method of MXNet 1 (`x.slice_axis(...)`), imported when it is used.

    One for each name, because a `__getattr__` would slow down every attribute of every array.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        return import_module("gemel.legacy.facade").method(instance, self.name)


class WrittenMethods(ElementMethods):
    """Methods that call operations by name, with the arguments NumPy's methods take."""

    __slots__ = ()

    # A class with __eq__ has no hash unless it defines one.
    __hash__: Any = object.__hash__

    def __pos__(self) -> Any:
        return self

    def __round__(self: Any, digits: int | None = None) -> Any:
        """`round(x)`: a Python integer of an array without dimensions, as of a number."""
        if digits is None and not self.ndim:
            return round(self.item())
        return operate("round", self, decimals=digits or 0)

    def __trunc__(self: Any) -> int:
        return int(self)

    def __divmod__(self, other: Any) -> Any:
        return operate("divmod", self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return operate("divmod", other, self)

    def __getitem__(self, key: Any) -> Any:
        return call("getitem", self, key)

    @property
    def T(self) -> Any:  # noqa: N802 -- NumPy's name
        """The array with its axes reversed."""
        return REGISTRY["transpose"](self)  # it is never imported lazily, so `call` is not needed

    @property
    def mT(self) -> Any:  # noqa: N802 -- the Array API's name
        """The array with its last two axes exchanged. Raises `AxisError` for fewer than two."""
        whole: Any = self
        return whole.swapaxes(-1, -2)

    @property
    def real(self) -> Any:
        """The real parts; of real numbers the array itself."""
        return face("real")(self)

    @real.setter
    def real(self, value: Any) -> None:
        call("set_part", self, value, "real")

    @property
    def imag(self) -> Any:
        """The imaginary parts; of real numbers zeros."""
        return face("imag")(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        call("set_part", self, value, "imag")

    def reshape(self, *shape: Any, order: str = "C", **options: Any) -> Any:
        """The same elements in another shape; one extent may be -1. As `np.reshape`."""
        if order == "C" and not options:
            return call("reshape", self, shape=given_shape(shape))
        chosen = (given_shape(shape),) if shape else ()
        return face("reshape")(self, *chosen, order=order, **options)

    def transpose(self, *axes: Any) -> Any:
        """The axes in another order, reversed by default."""
        order = given_shape(axes)
        return call("transpose", self, axes=order if order and order[0] is not None else None)

    def flatten(self, order: str = "C") -> Any:
        """All elements in one dimension."""
        return call("copy", self.ravel(order))

    def ravel(self, order: str = "C") -> Any:
        """All elements in one dimension, as a view where possible."""
        if order == "C":
            return call("reshape", self, shape=(-1,))
        return face("reshape")(self, -1, order=order)

    def sort(self, axis: int = -1, **options: Any) -> None:
        """Put each row along an axis in order, in place. `np.sort` leaves the array as it is."""
        whole: Any = self
        whole[...] = face("sort")(self, axis, **options)

    def compress(self, condition: Any, axis: int | None = None, out: Any = None) -> Any:
        """The slices along an axis where a condition holds: see `np.compress`."""
        return call("compress", condition, self, axis, out)

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
        whole: Any = self
        if casting != "unsafe" and not castable(whole.dtype, as_dtype(dtype), casting):
            raise DTypeError(f"astype: {whole.dtype} to {dtype} is not {casting!r} casting")
        return self if not copy and whole.dtype == dtype else call("cast", self, dtype=dtype)

    def detach(self) -> Any:
        """The same elements; gradients do not pass."""
        return call("detached", self)


#: Further methods of arrays in MXNet 1.
LEGACY = """
    arccos arccosh arcsin arcsinh arctan arctanh argmax_channel broadcast_axes broadcast_like cbrt
    cosh degrees depth_to_space diag fix flip log10 log2 log_softmax nanprod nansum norm one_hot
    ones_like pad pick radians rcbrt relu reshape_like rsqrt shape_array sigmoid sinh size_array
    slice slice_axis slice_like softmax softmin space_to_depth split split_v2 tan tile topk trunc
    zeros_like
"""

for _name in LEGACY.split():
    setattr(WrittenMethods, _name, LegacyMethod(_name))
