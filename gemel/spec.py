"""Specs: what is known of an array before it is computed -- its shape and dtype.

An extent may be a `Dim`: a whole number with a name, the free batch size of a traced function. It
computes like an integer; asking something of it that depends on its value records a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gemel.dtype import DType, as_dtype, promote, promote_weak
from gemel.errors import ShapeError

Shape = tuple[int, ...]


class Guard:
    """A comparison of free extents a trace relied on: other values must answer it alike."""

    __slots__ = ("answer", "left", "relation", "right")

    def __init__(self, left: Any, relation: str, right: Any, answer: bool) -> None:
        self.left = left
        self.relation = relation
        self.right = right
        self.answer = answer

    def holds(self, values: dict[str, int]) -> bool:
        """Whether the comparison comes out the same for these extents."""
        left, right = evaluate(self.left, values), evaluate(self.right, values)
        return RELATIONS[self.relation](left, right) is self.answer

    def __repr__(self) -> str:
        return f"{'' if self.answer else 'not '}{self.left} {self.relation} {self.right}"


RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
}


class Dim(int):
    """A symbolic extent: an int (the value seen while tracing) that remembers how it was made.

    `expression` is a name, or (operator, left, right). Sums, products and quotients of dims are
    dims again. Comparisons answer for the value seen and add a `Guard` to the trace's list, unless
    they hold for every value (n == n).
    """

    expression: Any
    guards: list[Guard]

    def __new__(cls, value: int, expression: Any, guards: list[Guard]) -> Dim:
        """A dim now `value`, made as `expression` says."""
        self = int.__new__(cls, value)
        self.expression = expression
        self.guards = guards
        return self

    def _join(self, operator: str, other: Any, swap: bool = False) -> Any:
        if not isinstance(other, int) or isinstance(other, bool):
            return NotImplemented
        left, right = (other, self) if swap else (self, other)
        return combine(operator, left, right, self.guards)

    def __add__(self, other: Any) -> Any:
        return self._join("+", other)

    def __radd__(self, other: Any) -> Any:
        return self._join("+", other, swap=True)

    def __sub__(self, other: Any) -> Any:
        return self._join("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._join("-", other, swap=True)

    def __mul__(self, other: Any) -> Any:
        return self._join("*", other)

    def __rmul__(self, other: Any) -> Any:
        return self._join("*", other, swap=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._join("//", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._join("//", other, swap=True)

    def __mod__(self, other: Any) -> Any:
        return self._join("%", other)

    def _ask(self, relation: str, left: Any, right: Any) -> bool:
        answer = RELATIONS[relation](int(left), int(right))
        if key(left) != key(right):
            self.guards.append(Guard(left, relation, right, answer))
        return answer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and self._ask("==", self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: int) -> bool:
        return self._ask("<", self, other)

    def __le__(self, other: int) -> bool:
        return self._ask("<=", self, other)

    def __gt__(self, other: int) -> bool:
        return self._ask("<", other, self)

    def __ge__(self, other: int) -> bool:
        return self._ask("<=", other, self)

    def __bool__(self) -> bool:
        return not self == 0

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __repr__(self) -> str:
        return expression_text(self.expression)

    __str__ = __repr__


OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


def combine(operator: str, left: int, right: int, guards: list[Guard]) -> int:
    """left operator right, symbolic unless the answer is the same for every value."""
    a, b = key(left), key(right)
    if operator in ("*", "//") and b == 1:
        return left
    if operator == "*" and a == 1:
        return right
    if operator == "*" and 0 in (a, b):
        return 0
    if operator == "//" and isinstance(a, tuple) and a[0] == "*":
        # (n * 64) // 64 is n, and (n * 64) // n is 64: what reshape asks.
        if a[2] == b:
            return rebuild(a[1], guards)
        if a[1] == b:
            return rebuild(a[2], guards)
    if operator == "//" and a == b:
        return 1
    if operator == "%" and (b == 1 or a == b):
        return 0
    if operator == "%" and isinstance(a, tuple) and a[0] == "*" and b in a[1:]:
        return 0
    value = OPERATORS[operator](int(left), int(right))
    return Dim(value, (operator, plain(left), plain(right)), guards)


def plain(value: int) -> Any:
    """A dim's expression with values attached for rebuilding, or the integer itself."""
    return value if isinstance(value, Dim) else int(value)


def rebuild(expression: Any, guards: list[Guard]) -> int:
    """The Dim or int an inner key of an expression came from."""
    if isinstance(expression, Key):
        return Dim(expression.value, expression.expression, guards)
    return int(expression)


class Key(tuple[Any, ...]):
    """A hashable form of a Dim's expression that still knows its value and expression."""

    value: int
    expression: Any


def key(value: Any) -> Any:
    """What two extents that are always equal have in common."""
    if not isinstance(value, Dim):
        return int(value)
    expression = value.expression
    if isinstance(expression, str):
        found = Key(("name", expression))
    else:
        found = Key((expression[0], key(expression[1]), key(expression[2])))
    found.value, found.expression = int(value), expression
    return found


def expression_text(expression: Any) -> str:
    """An extent as text: ``n``, ``(n * 4)``."""
    if isinstance(expression, Dim):
        return expression_text(expression.expression)
    if isinstance(expression, tuple):
        operator, left, right = expression
        return f"({expression_text(left)} {operator} {expression_text(right)})"
    return str(expression)


def evaluate(extent: Any, values: dict[str, int]) -> int:
    """An extent with its names replaced by numbers."""
    expression = extent.expression if isinstance(extent, Dim) else extent
    if isinstance(expression, str):
        return values[expression]
    if isinstance(expression, tuple):
        operator, left, right = expression
        return OPERATORS[operator](evaluate(left, values), evaluate(right, values))
    return int(expression)


def concrete(value: Any, values: dict[str, int]) -> Any:
    """`value` (an extent, or a tuple or list with extents in it) with every Dim replaced."""
    if isinstance(value, Dim):
        return evaluate(value, values)
    if isinstance(value, tuple):
        return tuple(concrete(item, values) for item in value)
    if isinstance(value, list):
        return [concrete(item, values) for item in value]
    return value


class Spec:
    """Shape and dtype of an array. `weak` marks a Python scalar, whose dtype gives way."""

    __slots__ = ("dtype", "shape", "weak")

    def __init__(self, shape: Iterable[int], dtype: Any, weak: bool = False) -> None:
        self.shape: Shape = tuple(shape)
        self.dtype: DType = as_dtype(dtype)
        self.weak = weak

    @property
    def ndim(self) -> int:
        """How many dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements."""
        return product(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes the elements take."""
        return self.size * self.dtype.itemsize

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Spec)
            and self.dtype is other.dtype
            and self.weak == other.weak
            and same_shape(self.shape, other.shape)
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype.code, self.weak))

    def __str__(self) -> str:
        extents = ", ".join(str(n) for n in self.shape)
        return f"{self.dtype}[{extents}]" + ("~" if self.weak else "")

    __repr__ = __str__


def product(extents: Iterable[int]) -> int:
    """The number of elements of a shape."""
    result = 1
    for extent in extents:
        result = result * extent
    return result


def same_shape(a: Shape, b: Shape) -> bool:
    """Whether two shapes are equal, for every value of their free extents or by guard."""
    return len(a) == len(b) and all(m == n for m, n in zip(a, b, strict=True))


def broadcast(name: str, *specs: Spec) -> Shape:
    """The shape these broadcast to. Raises `ShapeError` naming the operation and both specs."""
    result: list[int] = []
    for spec in specs:
        shape = list(spec.shape)
        if len(shape) > len(result):
            result = [1] * (len(shape) - len(result)) + result
        lead = len(result) - len(shape)
        for axis, extent in enumerate(shape, start=lead):
            if same_extent(result[axis], 1):
                result[axis] = extent
            elif not same_extent(extent, 1) and not result[axis] == extent:
                raise ShapeError(
                    f"{name}: {' and '.join(map(str, specs))} do not broadcast: axis "
                    f"{axis - len(result)} has {result[axis]} and {extent}; they must be equal, or "
                    "one of them 1"
                )
    return tuple(result)


def same_extent(extent: int, value: int) -> bool:
    """extent == value, where a plain integer against a plain integer asks no guard."""
    return extent == value


def promote_specs(*specs: Spec) -> DType:
    """The dtype of an operation over these: arrays decide, Python scalars give way."""
    arrays = [spec.dtype for spec in specs if not spec.weak]
    scalars = [spec.dtype for spec in specs if spec.weak]
    result = arrays[0] if arrays else scalars[0]
    for dtype in arrays[1:]:
        result = promote(result, dtype)
    for dtype in scalars:
        result = promote_weak(result, dtype) if arrays else promote(result, dtype)
    return result


def normalize_axis(name: str, axis: int, ndim: int) -> int:
    """A possibly negative axis as 0 <= axis < ndim. Raises `ShapeError`."""
    if not isinstance(axis, int) or isinstance(axis, bool) or not -ndim <= axis < ndim:
        raise ShapeError(f"{name}: axis {axis!r} is out of range for an array of {ndim} dimensions")
    return axis % ndim if axis < 0 else axis


def normalize_axes(name: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """None (all), one axis, or several, as sorted axes without repetition. Raises `ShapeError`."""
    if axis is None:
        return tuple(range(ndim))
    axes = [axis] if isinstance(axis, int) else list(axis)
    found = sorted({normalize_axis(name, a, ndim) for a in axes})
    if len(found) != len(axes):
        raise ShapeError(f"{name}: axis {axis!r} names an axis twice")
    return tuple(found)
