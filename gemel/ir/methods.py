"""What arrays and symbols have in common: each method is one call of the operation of its name."""

from __future__ import annotations

from typing import Any

#: The operations by name; `gemel.ir.op` fills it as `gemel.ops` declares them.
REGISTRY: dict[str, Any] = {}


def call(name: str, *inputs: Any, **parameters: Any) -> Any:
    """Apply the operation called `name`."""
    return REGISTRY[name](*inputs, **parameters)


def _shape(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """f(2, 3) and f((2, 3)) mean the same."""
    if len(arguments) == 1 and isinstance(arguments[0], (tuple, list)):
        return tuple(arguments[0])
    return arguments


class ArrayMethods:
    """The methods and operators of an array, for arrays and symbols alike."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return call("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return call("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return call("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return call("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return call("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return call("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return call("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return call("divide", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return call("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return call("floor_divide", other, self)

    def __mod__(self, other: Any) -> Any:
        return call("remainder", self, other)

    def __rmod__(self, other: Any) -> Any:
        return call("remainder", other, self)

    def __pow__(self, other: Any) -> Any:
        return call("power", self, other)

    def __rpow__(self, other: Any) -> Any:
        return call("power", other, self)

    def __matmul__(self, other: Any) -> Any:
        return call("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return call("matmul", other, self)

    def __and__(self, other: Any) -> Any:
        return call("bitwise_and", self, other)

    def __or__(self, other: Any) -> Any:
        return call("bitwise_or", self, other)

    def __xor__(self, other: Any) -> Any:
        return call("bitwise_xor", self, other)

    def __invert__(self) -> Any:
        return call("invert", self)

    def __neg__(self) -> Any:
        return call("negative", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return call("absolute", self)

    def __eq__(self, other: object) -> Any:
        return call("equal", self, other)

    def __ne__(self, other: object) -> Any:
        return call("not_equal", self, other)

    def __lt__(self, other: Any) -> Any:
        return call("less", self, other)

    def __le__(self, other: Any) -> Any:
        return call("less_equal", self, other)

    def __gt__(self, other: Any) -> Any:
        return call("greater", self, other)

    def __ge__(self, other: Any) -> Any:
        return call("greater_equal", self, other)

    __hash__: Any = object.__hash__

    def __getitem__(self, key: Any) -> Any:
        return call("getitem", self, key)

    @property
    def T(self) -> Any:  # noqa: N802 -- NumPy's name
        """The array with its axes reversed."""
        return call("transpose", self)

    def reshape(self, *shape: Any) -> Any:
        """The same elements in another shape; one extent may be -1."""
        return call("reshape", self, shape=_shape(shape))

    def transpose(self, *axes: Any) -> Any:
        """The axes in another order, reversed by default."""
        order = _shape(axes)
        return call("transpose", self, axes=order if order and order[0] is not None else None)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        """Exchange two axes."""
        return call("swapaxes", self, axis1=axis1, axis2=axis2)

    def flatten(self) -> Any:
        """All elements in one dimension."""
        return call("reshape", self, shape=(-1,)).copy()

    def ravel(self) -> Any:
        """All elements in one dimension, as a view where possible."""
        return call("reshape", self, shape=(-1,))

    def expand_dims(self, axis: Any) -> Any:
        """A new axis of length 1."""
        return call("expand_dims", self, axis=axis)

    def squeeze(self, axis: Any = None) -> Any:
        """Without axes of length 1."""
        return call("squeeze", self, axis=axis)

    def broadcast_to(self, shape: Any) -> Any:
        """Repeated along new axes and axes of length 1."""
        return call("broadcast_to", self, shape=tuple(shape))

    def astype(self, dtype: Any) -> Any:
        """The elements converted to another dtype."""
        return call("cast", self, dtype=dtype)

    def copy(self) -> Any:
        """The same elements in memory of their own."""
        return call("copy", self)

    def detach(self) -> Any:
        """The same elements; gradients do not pass."""
        return call("stop_gradient", self)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Sum over the given axes, or all."""
        return call("sum", self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Mean over the given axes, or all."""
        return call("mean", self, axis=axis, keepdims=keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Product over the given axes, or all."""
        return call("prod", self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Largest element over the given axes, or all."""
        return call("max", self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Smallest element over the given axes, or all."""
        return call("min", self, axis=axis, keepdims=keepdims)

    def any(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Whether any element is true."""
        return call("any", self, axis=axis, keepdims=keepdims)

    def all(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Whether all elements are true."""
        return call("all", self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Position of the largest element."""
        return call("argmax", self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Position of the smallest element."""
        return call("argmin", self, axis=axis, keepdims=keepdims)

    def std(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Standard deviation over the given axes, or all."""
        return call("std", self, axis=axis, keepdims=keepdims)

    def var(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Variance over the given axes, or all."""
        return call("var", self, axis=axis, keepdims=keepdims)

    def abs(self) -> Any:
        """Absolute value."""
        return call("absolute", self)

    def sqrt(self) -> Any:
        """Square root."""
        return call("sqrt", self)

    def exp(self) -> Any:
        """Exponential."""
        return call("exp", self)

    def log(self) -> Any:
        """Natural logarithm."""
        return call("log", self)

    def tanh(self) -> Any:
        """Hyperbolic tangent."""
        return call("tanh", self)

    def clip(self, a_min: Any = None, a_max: Any = None) -> Any:
        """Limited to [a_min, a_max]."""
        return call("clip", self, a_min, a_max)

    def dot(self, other: Any) -> Any:
        """Dot product as `np.dot` has it."""
        return call("dot", self, other)

    def take(self, indices: Any, axis: Any = None) -> Any:
        """The elements at these positions along an axis."""
        return call("take", self, indices, axis=axis)
