"""Recording scalar expressions: the `xp` an op's body is run with to become a kernel.

An elementwise body such as ``xp.where(x > 0, x, alpha * xp.expm1(x))`` computes with NumPy when `xp`
is ``numpy``, and records instructions when `xp` is a `Lane`. The names are NumPy's where NumPy has
them. Python scalars are weak: they become constants of the other value's dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

from gemel import dtype as dtypes
from gemel.codegen.program import Instruction
from gemel.dtype import DType

TYPE_CHECKING = False
if TYPE_CHECKING:
    Operand = Union["Value", bool, int, float]

_EFFECTS = frozenset(("store", "scatter_add"))


class Recorder:
    """Collects instructions; one that was recorded before is not recorded again."""

    __slots__ = ("_seen", "code")

    def __init__(self) -> None:
        self.code: list[Instruction] = []
        self._seen: dict[tuple[Any, ...], int] = {}

    def append(
        self, name: str, dtype: DType, arguments: tuple[Value, ...] = (), attribute: object = None
    ) -> Value:
        """The value of this instruction, recorded now or earlier."""
        positions = tuple(value.position for value in arguments)
        # repr tells 1, 1.0 and True apart, 0.0 from -0.0, and a NaN from nothing else.
        key = (name, dtype.code, positions, repr(attribute))
        found = None if name in _EFFECTS else self._seen.get(key)
        if found is None:
            found = self._seen[key] = len(self.code)
            self.code.append(Instruction(name, dtype, positions, attribute))
        return Value(self, found, dtype)

    def argument(self, dtype: DType) -> Value:
        """A value given when the code is printed (fragments such as mathlib's)."""
        return self.append("argument", dtype, (), len(self.code))

    def load(self, operand: int, dtype: DType) -> Value:
        return self.append("load", dtype, (), operand)

    def scalar(self, number: int, dtype: DType) -> Value:
        return self.append("scalar", dtype, (), number)

    def constant(self, value: bool | int | float, dtype: DType) -> Value:
        kind = dtype.kind
        value = bool(value) if kind == "b" else float(value) if kind == "f" else int(value)
        return self.append("constant", dtype, (), value)

    def store(self, operand: int, value: Value) -> None:
        self.append("store", value.dtype, (value,), operand)

    def gather(self, operand: int, extra: int, index: Value, dtype: DType) -> Value:
        return self.append("gather", dtype, (index,), (operand, extra))

    def scatter_add(self, operand: int, extra: int, index: Value, value: Value) -> None:
        self.append("scatter_add", value.dtype, (index, value), (operand, extra))

    def check(self, value: Value) -> None:
        self.append("check", dtypes.bool_, (value,))

    def reduce(self, kind: str, value: Value) -> Value:
        dtype = dtypes.int64 if kind.startswith("arg") else value.dtype
        if kind in ("any", "all"):
            value = value.cast(dtypes.bool_)
            dtype = dtypes.bool_
        return self.append("reduce", dtype, (value,), kind)


def _common(recorder: Recorder, a: Operand, b: Operand) -> tuple[Value, Value]:
    """Both as values of one dtype; Python scalars give way."""
    if not isinstance(a, Value):
        if not isinstance(b, Value):
            raise TypeError(f"{a!r} and {b!r}: one of the two must be a lane's value")
        second, first = _common(recorder, b, a)
        return first, second
    if isinstance(b, Value):
        if a.dtype is b.dtype:
            return a, b
        dtype = dtypes.promote(a.dtype, b.dtype)
        return a.cast(dtype), b.cast(dtype)
    dtype = dtypes.promote_weak(a.dtype, dtypes.weak(b))
    return a.cast(dtype), recorder.constant(b, dtype)


class Value:
    """One recorded value: the position of its instruction and its dtype."""

    __slots__ = ("dtype", "position", "recorder")
    __array_priority__ = 1000.0
    __array_ufunc__ = None

    def __init__(self, recorder: Recorder, position: int, dtype: DType) -> None:
        self.recorder = recorder
        self.position = position
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"%{self.position}.{self.dtype}"

    def __bool__(self) -> bool:
        raise TypeError("a lane's value is unknown while recording: use xp.where, not if/and/or")

    def cast(self, dtype: DType) -> Value:
        """This value as `dtype`."""
        if dtype is self.dtype:
            return self
        return self.recorder.append("cast", dtype, (self,))

    astype = cast

    def unary(self, name: str) -> Value:
        return self.recorder.append(name, self.dtype, (self,))

    def binary(self, name: str, other: Operand, swap: bool = False) -> Value:
        a, b = _common(self.recorder, self, other)
        return self.recorder.append(name, a.dtype, (b, a) if swap else (a, b))

    def compare(self, name: str, other: Operand) -> Value:
        a, b = _common(self.recorder, self, other)
        return self.recorder.append(name, dtypes.bool_, (a, b))

    def floating(self) -> Value:
        """This value, as float32 when it is no floating one."""
        return self if self.dtype.kind == "f" else self.cast(dtypes.float32)

    def __add__(self, other: Operand) -> Value:
        return self.binary("add", other)

    def __radd__(self, other: Operand) -> Value:
        return self.binary("add", other, True)

    def __sub__(self, other: Operand) -> Value:
        return self.binary("subtract", other)

    def __rsub__(self, other: Operand) -> Value:
        return self.binary("subtract", other, True)

    def __mul__(self, other: Operand) -> Value:
        return self.binary("multiply", other)

    def __rmul__(self, other: Operand) -> Value:
        return self.binary("multiply", other, True)

    def __truediv__(self, other: Operand) -> Value:
        a, b = _common(self.recorder, self, other)
        return a.floating().binary("divide", b.floating())

    def __rtruediv__(self, other: Operand) -> Value:
        a, b = _common(self.recorder, self, other)
        return a.floating().binary("divide", b.floating(), True)

    def __floordiv__(self, other: Operand) -> Value:
        return self.binary("floor_divide", other)

    def __rfloordiv__(self, other: Operand) -> Value:
        return self.binary("floor_divide", other, True)

    def __mod__(self, other: Operand) -> Value:
        return self.binary("remainder", other)

    def __rmod__(self, other: Operand) -> Value:
        return self.binary("remainder", other, True)

    def __pow__(self, other: Operand) -> Value:
        return _power(self, other)

    def __rpow__(self, other: Operand) -> Value:
        a, b = _common(self.recorder, self, other)
        return _power(b, a)

    def __and__(self, other: Operand) -> Value:
        return self.binary("bit_and", other)

    def __or__(self, other: Operand) -> Value:
        return self.binary("bit_or", other)

    def __xor__(self, other: Operand) -> Value:
        return self.binary("bit_xor", other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self, other: Operand) -> Value:
        return self.binary("shift_left", other)

    def __rshift__(self, other: Operand) -> Value:
        return self.binary("shift_right", other)

    def __rlshift__(self, other: Operand) -> Value:
        return self.binary("shift_left", other, True)

    def __rrshift__(self, other: Operand) -> Value:
        return self.binary("shift_right", other, True)

    def __invert__(self) -> Value:
        return self.unary("bit_not")

    def __neg__(self) -> Value:
        return self.unary("negative")

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return self.unary("absolute")

    def __eq__(self, other: Operand) -> Value:  # type: ignore[override]
        return self.compare("equal", other)

    def __ne__(self, other: Operand) -> Value:  # type: ignore[override]
        return self.compare("not_equal", other)

    def __lt__(self, other: Operand) -> Value:
        return self.compare("less", other)

    def __le__(self, other: Operand) -> Value:
        return self.compare("less_equal", other)

    def __gt__(self, other: Operand) -> Value:
        return self.compare("greater", other)

    def __ge__(self, other: Operand) -> Value:
        return self.compare("greater_equal", other)

    __hash__ = object.__hash__


def _power(a: Value, b: Operand) -> Value:
    """a to the b; small whole constant exponents are products (integers know only those)."""
    if isinstance(b, (int, float)) and b == int(b) and 0 <= b <= 4:
        dtype = dtypes.promote_weak(a.dtype, dtypes.weak(b))
        return _product(a.cast(dtype), int(b))
    a, b = _common(a.recorder, a, b)
    if a.dtype.kind == "f":
        return a.binary("power", b)
    return _integer_power(a, b)


def _product(a: Value, count: int) -> Value:
    if count == 0:
        return a.recorder.constant(1, a.dtype)
    if count == 1:
        return a
    half = _product(a, count // 2)
    square = half * half
    return square * a if count % 2 else square


def _integer_power(a: Value, b: Value) -> Value:
    """Wrapping integer power by squaring; negative exponents give 1, -1 or 0."""
    append = a.recorder.append
    one = a.recorder.constant(1, a.dtype)
    result, base, left = one, a, b
    for _ in range(8 * a.dtype.itemsize):
        odd = (left & 1) != 0
        result = append("select", a.dtype, (odd, result * base, result))
        base, left = base * base, left >> 1
        if a.dtype.itemsize == 8 and _ == 62:
            break
    if a.dtype.kind == "u":
        return result
    zero = a.recorder.constant(0, a.dtype)
    minus = append("select", a.dtype, ((b & 1) != 0, a, one))
    unit = append("select", a.dtype, ((a == 1) | (a == -1), minus, zero))
    return append("select", a.dtype, (b < 0, unit, result))


def _unary(name: str, floating: bool) -> Callable[[Lane, Operand], Value]:
    def function(self: Lane, value: Operand) -> Value:
        lifted = self.value(value)
        return (lifted.floating() if floating else lifted).unary(name)

    function.__name__ = name
    function.__doc__ = f"The instruction `{name}`."
    return function


def _binary(name: str) -> Callable[[Lane, Operand, Operand], Value]:
    def function(self: Lane, a: Operand, b: Operand) -> Value:
        first, second = _common(self.recorder, a, b)
        return first.binary(name, second)

    function.__name__ = name
    function.__doc__ = f"The instruction `{name}`."
    return function


def _comparison(name: str) -> Callable[[Lane, Operand, Operand], Value]:
    def function(self: Lane, a: Operand, b: Operand) -> Value:
        first, second = _common(self.recorder, a, b)
        return first.compare(name, second)

    function.__name__ = name
    function.__doc__ = f"The instruction `{name}`."
    return function


class Lane:
    """The namespace an elementwise body is run with.

    `random` = (element index, seed, call number), three int64 values, serves `random_bits`;
    `index` is called with an axis and gives that axis's running index (int64).
    """

    pi = 3.141592653589793
    e = 2.718281828459045
    inf = float("inf")
    nan = float("nan")

    def __init__(
        self,
        recorder: Recorder | None = None,
        *,
        random: tuple[Value, Value, Value] | Callable[[], tuple[Value, Value, Value]] | None = None,
        index: Callable[[int], Value] | None = None,
    ) -> None:
        self.recorder = Recorder() if recorder is None else recorder
        self._random = random
        self._index = index

    # -- making values --------------------------------------------------------------------------

    def constant(self, value: bool | int | float, dtype: DType) -> Value:
        """A constant of `dtype`."""
        return self.recorder.constant(value, dtype)

    def value(self, value: Operand) -> Value:
        """`value` itself, or a Python scalar as a constant of its own dtype."""
        if isinstance(value, Value):
            return value
        return self.recorder.constant(value, dtypes.weak(value))

    def cast(self, value: Operand, dtype: DType) -> Value:
        """`value` as `dtype`."""
        if isinstance(value, Value):
            return value.cast(dtype)
        return self.recorder.constant(value, dtype)

    astype = cast

    def reinterpret(self, value: Value, dtype: DType) -> Value:
        """The same bits as another dtype of the same size."""
        return self.recorder.append("reinterpret", dtype, (value,))

    def zeros_like(self, value: Value) -> Value:
        return self.recorder.constant(0, value.dtype)

    def ones_like(self, value: Value) -> Value:
        return self.recorder.constant(1, value.dtype)

    def full_like(self, value: Value, fill: bool | int | float) -> Value:
        return self.recorder.constant(fill, value.dtype)

    # -- choosing -------------------------------------------------------------------------------

    def where(self, condition: Value, a: Operand, b: Operand) -> Value:
        """`a` where the condition holds, else `b`."""
        if not isinstance(a, Value) and not isinstance(b, Value):
            ladder = dtypes.promote_weak(dtypes.weak(a), dtypes.weak(b))
            a, b = self.constant(a, ladder), self.constant(b, ladder)
        first, second = _common(self.recorder, a, b)
        return self.recorder.append(
            "select", first.dtype, (condition.cast(dtypes.bool_), first, second)
        )

    def clip(self, x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
        """`x` between `low` and `high`; NaN stays."""
        if low is not None:
            x = self.maximum(x, low)
        return x if high is None else self.minimum(x, high)

    # -- arithmetic by operator -----------------------------------------------------------------

    def true_divide(self, a: Operand, b: Operand) -> Value:
        first, second = _common(self.recorder, a, b)
        return first / second

    divide = true_divide

    def power(self, a: Operand, b: Operand) -> Value:
        if isinstance(a, Value):
            return _power(a, b)
        first, second = _common(self.recorder, a, b)
        return _power(first, second)

    def square(self, x: Value) -> Value:
        return x * x

    def reciprocal(self, x: Value) -> Value:
        return 1 / x

    def sign(self, x: Value) -> Value:
        """-1, 0 or 1; NaN stays."""
        if x.dtype.kind == "f":
            return self.where(x > 0, 1, self.where(x < 0, -1, x))
        return (x > 0).cast(x.dtype) - (x < 0).cast(x.dtype) if x.dtype.kind == "i" else (
            x != 0
        ).cast(x.dtype)

    def positive(self, x: Value) -> Value:
        return x

    def fmod(self, a: Operand, b: Operand) -> Value:
        """The remainder with the sign of `a` (C's)."""
        first, second = _common(self.recorder, a, b)
        rest = self.remainder(abs(first), abs(second))
        return self.where(first < 0, -rest, rest)

    def copysign(self, a: Operand, b: Operand) -> Value:
        """|a| with the sign of `b`, which counts for zeros and NaN too."""
        first, second = _common(self.recorder, a, b)
        first, second = first.floating(), second.floating()
        return self.where(self.signbit(second), -abs(first), abs(first))

    def signbit(self, x: Value) -> Value:
        """Whether the sign bit is set: of -0.0 too."""
        whole = dtypes.int64 if x.dtype is dtypes.float64 else dtypes.int32
        return self.reinterpret(x, whole) < 0 if x.dtype.kind == "f" else x < 0

    def hypot(self, a: Operand, b: Operand) -> Value:
        """sqrt(a*a + b*b), scaled against overflow."""
        first, second = _common(self.recorder, a, b)
        first, second = abs(first.floating()), abs(second.floating())
        high, low = self.maximum(first, second), self.minimum(first, second)
        ratio = self.where(high == 0, 0.0, low / high)
        result = high * self.sqrt(1 + ratio * ratio)
        return self.where((first == self.inf) | (second == self.inf), self.inf, result)

    # -- functions made of others ---------------------------------------------------------------

    def exp2(self, x: Value) -> Value:
        return self.power(self.full_like(x.floating(), 2), x.floating())

    def log2(self, x: Value) -> Value:
        return self.log(x) * 1.4426950408889634

    def log10(self, x: Value) -> Value:
        return self.log(x) * 0.4342944819032518

    def tan(self, x: Value) -> Value:
        return self.sin(x) / self.cos(x)

    def sinh(self, x: Value) -> Value:
        x = x.floating()
        t = self.expm1(abs(x))
        # Halving early keeps the largest arguments finite.
        half = self.where(abs(x) > 20, self.exp(abs(x) * 0.5), 1)
        large = 0.5 * half * half
        return self.copysign(self.where(abs(x) > 20, large, 0.5 * (t + t / (t + 1))), x)

    def cosh(self, x: Value) -> Value:
        half = self.exp(abs(x.floating()) * 0.5)
        return 0.5 * half * half + 0.5 / half / half

    def arctanh(self, x: Value) -> Value:
        x = x.floating()
        return self.copysign(0.5 * self.log1p(2 * abs(x) / (1 - abs(x))), x)

    def arcsinh(self, x: Value) -> Value:
        x = x.floating()
        a = abs(x)
        small = self.log1p(a + a * a / (1 + self.sqrt(1 + a * a)))
        large = self.log(a) + 0.6931471805599453
        return self.copysign(self.where(a > 1e8, large, small), x)

    def arccosh(self, x: Value) -> Value:
        x = x.floating()
        t = x - 1
        return self.where(
            x > 1e8, self.log(x) + 0.6931471805599453, self.log1p(t + self.sqrt(2 * t + t * t))
        )

    # -- tests ----------------------------------------------------------------------------------

    def isnan(self, x: Value) -> Value:
        return self.recorder.append("isnan", dtypes.bool_, (x,))

    def isinf(self, x: Value) -> Value:
        return abs(x) == self.inf if x.dtype.kind == "f" else self.constant(False, dtypes.bool_)

    def isfinite(self, x: Value) -> Value:
        return abs(x) < self.inf if x.dtype.kind == "f" else self.constant(True, dtypes.bool_)

    def logical_not(self, x: Value) -> Value:
        return ~x.cast(dtypes.bool_)

    def logical_and(self, a: Operand, b: Operand) -> Value:
        return self.cast(a, dtypes.bool_) & self.cast(b, dtypes.bool_)

    def logical_or(self, a: Operand, b: Operand) -> Value:
        return self.cast(a, dtypes.bool_) | self.cast(b, dtypes.bool_)

    def logical_xor(self, a: Operand, b: Operand) -> Value:
        return self.cast(a, dtypes.bool_) ^ self.cast(b, dtypes.bool_)

    # -- beyond one position --------------------------------------------------------------------

    def reduce(self, kind: str, value: Value) -> Value:
        """sum, prod, max, min, any, all, argmax or argmin over the program's inner dimensions."""
        return self.recorder.reduce(kind, value)

    def check(self, value: Value) -> None:
        """The kernel returns status 1 when `value` is false anywhere."""
        self.recorder.check(value)

    def gather(self, operand: int, extra: int, index: Value, dtype: DType) -> Value:
        """The operand's element at the loop position + `index` * the extra integer."""
        return self.recorder.gather(operand, extra, index, dtype)

    def index(self, axis: int) -> Value:
        """The running index along `axis`, int64."""
        if self._index is None:
            raise TypeError("this body uses xp.index, which its recorder does not provide")
        return self._index(axis)

    def random_bits(self) -> tuple[Value, Value]:
        """Two uint32 of random bits for this element: see `gemel.codegen.philox`."""
        from gemel.codegen import philox

        if self._random is None:
            raise TypeError("this body uses xp.random_bits, which its recorder does not provide")
        given = self._random() if callable(self._random) else self._random
        return philox.record(self, *given)

    # -- single instructions --------------------------------------------------------------------

    add = _binary("add")
    subtract = _binary("subtract")
    multiply = _binary("multiply")
    floor_divide = _binary("floor_divide")
    remainder = mod = _binary("remainder")
    maximum = _binary("maximum")
    minimum = _binary("minimum")
    bitwise_and = _binary("bit_and")
    bitwise_or = _binary("bit_or")
    bitwise_xor = _binary("bit_xor")
    left_shift = bitwise_left_shift = _binary("shift_left")
    right_shift = bitwise_right_shift = _binary("shift_right")
    multiply_high = _binary("multiply_high")

    negative = _unary("negative", False)
    absolute = abs = fabs = _unary("absolute", False)
    invert = bitwise_not = _unary("bit_not", False)
    sqrt = _unary("sqrt", True)
    floor = _unary("floor", False)
    ceil = _unary("ceil", False)
    rint = round = _unary("rint", False)
    trunc = fix = _unary("trunc", False)
    exp = _unary("exp", True)
    log = _unary("log", True)
    tanh = _unary("tanh", True)
    sin = _unary("sin", True)
    cos = _unary("cos", True)
    erf = _unary("erf", True)
    expm1 = _unary("expm1", True)
    log1p = _unary("log1p", True)

    equal = _comparison("equal")
    not_equal = _comparison("not_equal")
    less = _comparison("less")
    less_equal = _comparison("less_equal")
    greater = _comparison("greater")
    greater_equal = _comparison("greater_equal")
