"""NDArray: the arrays of `gemel.nd`, with the methods and the `repr` of MXNet 1's.

They are gemel's arrays with another class. NumPy-style functions accept them, too, and return plain
arrays. Their operators and methods, the functions of `gemel.nd`, and blocks and compiled functions
called with them return NDArrays; `NDEntry` stands for one in a trace. Where MXNet 1 returns an
array of shape (1,) because it has no 0-d arrays, the result here is 0-d.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel import np
from gemel.arrays.inspection import FLOATING
from gemel.errors import ArgumentError
from gemel.ir.graph import Entry
from gemel.ir.methods import given_shape
from gemel.legacy.declare import wanted

_Plain: Any = np.ndarray


class Manners:
    """MXNet 1's behaviour: the keywords of its methods, and comparisons that give numbers."""

    __slots__ = ()

    _is_nd = True

    @property
    def stype(self) -> str:
        """The kind of storage: always dense."""
        return "default"

    def tostype(self, stype: str) -> Any:
        """The array itself, for "default". Raises `ValueError` for sparse kinds."""
        if stype != "default":
            raise ArgumentError(f"tostype: {stype!r}: gemel arrays are dense; use 'default'")
        return self

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

    @property
    def T(self) -> Any:  # noqa: N802 -- MXNet's name
        """The array with its axes reversed."""
        return self.transpose()

    def as_nd_ndarray(self) -> Any:
        """The array itself."""
        return self


class _Kind(type(_Plain)):  # type: ignore[misc]
    """As in MXNet, every array is an NDArray."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, _Plain)


class NDArray(Manners, _Plain, metaclass=_Kind):  # type: ignore[misc]
    """An array that behaves as in MXNet 1: keywords of methods, comparisons as numbers, `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        lengths = "x".join(map(str, self.shape))
        return f"\n{self.asnumpy()}\n<{type(self).__name__} {lengths} @{self.ctx}>"

    __str__ = __repr__

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Make this a variable: `backward` will leave its gradient in `.grad`, zeros until then."""
        super().attach_grad(grad_req, stype)
        if self._grad is not None:
            self._grad.__class__ = NDArray

    def as_np_ndarray(self) -> Any:
        """A plain array on the same memory."""
        return _Plain.__getitem__(self, ...)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle it like other arrays, but load it as an NDArray."""
        return _pickled, super().__reduce_ex__(protocol)


class NDEntry(Manners, Entry):
    """Stands for an NDArray in a trace: an alias of an entry with MXNet 1's behaviour.

    Operations use the entry itself, so graphs, gradients and passes never see an `NDEntry`.
    """

    __slots__ = ()

    def as_np_ndarray(self) -> Any:
        """The entry itself."""
        return self.node.entries[self.index]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.as_np_ndarray()[key] = value


def shown_as_nd(value: Any) -> Any:
    """The same elements as an NDArray or an `NDEntry`. Numbers stay numbers."""
    if isinstance(value, Entry):
        return NDEntry(value.node, value.index) if _stands_for_array(value) else value
    found = _Plain.__getitem__(value, ...)
    return as_nd(found)


def _pickled(make: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """The NDArray that was pickled as a call of `make`."""
    return as_nd(make(*given))


def _stands_for_array(value: Any) -> bool:
    return type(value) is Entry and not value.spec.weak


def as_nd(found: Any) -> Any:
    """Results with plain arrays turned into NDArrays, in place: nobody else may hold them yet."""
    if isinstance(found, (list, tuple)):
        return [as_nd(each) for each in found]
    if isinstance(found, dict):
        return {name: as_nd(each) for name, each in found.items()}
    if type(found) is _Plain:
        found.__class__ = NDArray
    return found.as_nd_ndarray() if isinstance(found, Entry) else found


def giving(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose results are NDArrays if an argument is one, or none is an array."""

    def call(*inputs: Any, **keywords: Any) -> Any:
        given = [*inputs, *keywords.values()]
        given += [each for held in given if isinstance(held, (list, tuple)) for each in held]
        kinds = {each._is_nd for each in given if isinstance(each, (_Plain, Entry))}
        found = function(*inputs, **keywords)
        if any(found is each for each in given) or kinds == {False}:
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


def _of_plain(plain: Any, name: str) -> Any:
    def applied(self: Any, *inputs: Any, **settings: Any) -> Any:
        found = plain(self, *inputs, **settings)
        return found if found is self else as_nd(found)

    applied.__name__ = name
    applied.__doc__ = plain.__doc__
    return applied


def _compared(plain: Any) -> Any:
    def applied(self: Any, other: Any) -> Any:
        found = plain(self, other)
        return found if found is NotImplemented else as_nd(found.astype(self.dtype))

    return applied


def _in_place(plain: Any, name: str) -> Any:
    """`x += y` in a trace: the entry behind `x` holds the result."""

    def applied(self: Any, other: Any) -> Any:
        plain(self.as_np_ndarray(), other)
        return self

    applied.__name__ = name
    return applied


#: Methods that are MXNet 1's operations, because NumPy's methods of these names differ.
_OPERATIONS = (
    *("sum", "mean", "max", "min", "prod", "argmax", "argmin", "sort", "argsort", "clip", "tile"),
    *("repeat", "squeeze", "flatten", "take", "round", "swapaxes", "dot"),
)
_PAIRS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")


def _mannered(kind: Any, plain: Any) -> None:
    """Give a class the methods and operators of another one, with MXNet 1's behaviour."""
    for name in _OPERATIONS:
        setattr(kind, name, _of_operation(name))
    own = {*vars(kind), *vars(Manners)}
    for name in (
        *(f"__{side}{each}__" for each in _PAIRS for side in ("", "r")),
        *("__neg__", "__abs__", "__getitem__"),
        *(name for name in dir(plain) if not name.startswith("_") and name not in own),
    ):
        if callable(getattr(plain, name)):
            setattr(kind, name, _of_plain(getattr(plain, name), name))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(kind, f"__{name}__", _compared(getattr(plain, f"__{name}__")))


_mannered(NDArray, _Plain)
_mannered(NDEntry, Entry)
for _name in (f"__i{each}__" for each in _PAIRS):
    setattr(NDEntry, _name, _in_place(getattr(Entry, _name), _name))
NDEntry.__hash__ = Entry.__hash__  # type: ignore[method-assign]
FLOATING.add(NDArray)

__all__ = ["NDArray", "NDEntry", "as_nd", "giving", "shown_as_nd"]
