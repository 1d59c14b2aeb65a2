"""Recorded scalar values with Python's operators; each instruction is recorded once.

Python scalars are weak: they become constants of the other value's dtype.
"""

from __future__ import annotations

from gemel import dtype as dtypes
from gemel.codegen.language.program import WRITES, Instruction
from gemel.dtype import DType
from gemel.errors import FormulaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    Arguments: TypeAlias = "tuple[Recorded, ...]"
    Term: TypeAlias = "Recorded | bool | int | float"
    Operator: TypeAlias = "Callable[[Recorded, Term], Recorded]"


class Recorder:
    """Collects instructions; equal instructions are recorded only once."""

    __slots__ = ("_seen", "code")

    def __init__(self) -> None:
        self.code: list[Instruction] = []
        self._seen: dict[tuple[Any, ...], int] = {}

    def append(
        self, name: str, dtype: DType, arguments: Arguments = (), attribute: object = None
    ) -> Recorded:
        """The value of this instruction, recorded now or earlier."""
        positions = tuple(value.position for value in arguments)
        # repr distinguishes 1, 1.0 and True, and 0.0 and -0.0, and makes NaN equal to NaN.
        key = (name, dtype.code, positions, repr(attribute))
        found = None if name in WRITES else self._seen.get(key)
        if found is None:
            found = self._seen[key] = len(self.code)
            self.code.append(Instruction(name, dtype, positions, attribute))
        return Recorded(self, found, dtype)

    def argument(self, dtype: DType) -> Recorded:
        """A value given when the code is printed (for fragments such as those of mathlib)."""
        return self.append("argument", dtype, (), len(self.code))

    def load(self, operand: int, dtype: DType) -> Recorded:
        return self.append("load", dtype, (), operand)

    def load_where(self, operand: int, dtype: DType, conditions: Arguments) -> Recorded:
        return self.append("load_where", dtype, conditions, operand)

    def scalar(self, number: int, dtype: DType) -> Recorded:
        return self.append("scalar", dtype, (), number)

    def constant(self, value: bool | int | float, dtype: DType) -> Recorded:
        if dtype.compute is not dtype:  # only stored: a float64 constant that is rounded once
            return self.constant(value, dtypes.float64).cast(dtype)
        return self.append("constant", dtype, (), in_kind(value, dtype))

    def store(self, operand: int, value: Recorded) -> None:
        self.append("store", value.dtype, (value,), operand)

    def gather(self, operand: int, extra: int, index: Recorded, dtype: DType) -> Recorded:
        return self.append("gather", dtype, (index,), (operand, extra))

    def scatter_add(self, operand: int, extra: int, index: Recorded, value: Recorded) -> None:
        self.append("scatter_add", value.dtype, (index, value), (operand, extra))

    def check(self, value: Recorded) -> None:
        self.append("check", dtypes.bool_, (value,))

    def reduce(self, kind: str, value: Recorded) -> Recorded:
        if kind in ("any", "all"):
            value = value.cast(dtypes.bool_)
        return self.append("reduce", value.dtype, (value,), kind)

    def scan(self, kind: str, value: Recorded) -> Recorded:
        """`value` at this and all earlier inner positions, combined as by the reduction `kind`."""
        return self.append("scan", value.dtype, (value,), kind)


def in_kind(value: Any, dtype: DType) -> bool | int | float:
    """A number of the Python type of a dtype's constants."""
    kind = dtype.kind
    return bool(value) if kind == "b" else float(value) if kind == "f" else int(value)


def number(value: Any) -> bool | int | float:
    """A Python number, also of a number of NumPy's. Raises `FormulaError` for anything else."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise FormulaError(
            f"{value!r} is neither a real number nor computed with xp from what the formula is "
            "given"
        )
    return value


def common(recorder: Recorder, a: Term, b: Term) -> tuple[Recorded, Recorded]:
    """Both as values of one dtype; Python scalars take the other's dtype."""
    if not isinstance(a, Recorded):
        if not isinstance(b, Recorded):
            raise FormulaError(f"{a!r} and {b!r}: one of the two must be a value of the formula")
        second, first = common(recorder, b, a)
        return first, second
    if isinstance(b, Recorded):
        if a.dtype is b.dtype:
            return a, b
        dtype = dtypes.promote(a.dtype, b.dtype)
        return a.cast(dtype), b.cast(dtype)
    b = number(b)
    dtype = dtypes.promote_weak(a.dtype, dtypes.weak(b))
    return a.cast(dtype), recorder.constant(b, dtype)


def _operators(name: str) -> tuple[Operator, Operator]:
    """The operator of an instruction, and the one with a Python number on its left."""
    return lambda a, b: a.binary(name, b), lambda a, b: a.binary(name, b, True)


def _comparison(name: str) -> Operator:
    return lambda a, b: a.compare(name, b)


class Recorded:
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
        raise FormulaError(
            "a formula is recorded before its values are known; use xp.where instead of if, and, or"
        )

    def __float__(self) -> float:
        raise FormulaError(
            "a formula is recorded before its values are known; use xp's functions, not Python's"
        )

    __int__ = __index__ = __float__

    def cast(self, dtype: DType) -> Recorded:
        """This value as `dtype`."""
        if dtype is self.dtype:
            return self
        return self.recorder.append("cast", dtype, (self,))

    def astype(self, dtype: object) -> Recorded:
        """This value as a dtype, which may be given by its name."""
        return self.cast(dtypes.as_dtype(dtype))

    @property
    def is_scalar(self) -> bool:
        """Whether it is a number passed at run time."""
        return self.recorder.code[self.position].name == "scalar"

    def unary(self, name: str) -> Recorded:
        return self.recorder.append(name, self.dtype, (self,))

    def binary(self, name: str, other: Term, swap: bool = False) -> Recorded:
        a, b = common(self.recorder, self, other)
        return self.recorder.append(name, a.dtype, (b, a) if swap else (a, b))

    def compare(self, name: str, other: Term) -> Recorded:
        a, b = self, other
        if isinstance(b, Recorded) and a.dtype.kind in "iu" and b.dtype.kind in "iu":
            return _integers_compared(name, a, b)
        a, b = common(self.recorder, a, b)
        return self.recorder.append(name, dtypes.bool_, (a, b))

    def floating(self) -> Recorded:
        """This value, as float32 if it is not floating-point."""
        return self.cast(self.dtype.floating)

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("subtract")
    __mul__, __rmul__ = _operators("multiply")
    __floordiv__, __rfloordiv__ = _operators("floor_divide")
    __mod__, __rmod__ = _operators("remainder")
    __and__ = __rand__ = _operators("bit_and")[0]
    __or__ = __ror__ = _operators("bit_or")[0]
    __xor__ = __rxor__ = _operators("bit_xor")[0]
    __lshift__, __rlshift__ = _operators("shift_left")
    __rshift__, __rrshift__ = _operators("shift_right")

    def __truediv__(self, other: Term, swap: bool = False) -> Recorded:
        a, b = common(self.recorder, self, other)
        return a.floating().binary("divide", b.floating(), swap)

    def __rtruediv__(self, other: Term) -> Recorded:
        return self.__truediv__(other, True)

    def __pow__(self, other: Term) -> Recorded:
        return power(self, other)

    def __rpow__(self, other: Term) -> Recorded:
        a, b = common(self.recorder, self, other)
        return power(b, a)

    def __invert__(self) -> Recorded:
        return self.unary("bit_not")

    def __neg__(self) -> Recorded:
        return self.unary("negative")

    def __pos__(self) -> Recorded:
        return self

    def __abs__(self) -> Recorded:
        return self.unary("absolute")

    __lt__, __le__ = _comparison("less"), _comparison("less_equal")
    __gt__, __ge__ = _comparison("greater"), _comparison("greater_equal")
    __eq__ = _comparison("equal")  # type: ignore[assignment]
    __ne__ = _comparison("not_equal")  # type: ignore[assignment]

    __hash__ = object.__hash__


_MIRRORED = {
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}


def _integers_compared(name: str, a: Recorded, b: Recorded) -> Recorded:
    """Compares integers of any two dtypes exactly. A run-time number does not widen narrow
    values."""
    if a.is_scalar and not b.is_scalar:
        return _integers_compared(_MIRRORED.get(name, name), b, a)
    if b.is_scalar and b.dtype.itemsize > a.dtype.itemsize:
        return _compared_with_number(name, a, b)
    dtype = dtypes.promote(a.dtype, b.dtype)
    if not dtype.is_floating:
        return a.recorder.append(name, dtypes.bool_, (a.cast(dtype), b.cast(dtype)))
    # No integer dtype holds both: a negative value is less than any unsigned one.
    signed = a if a.dtype.kind == "i" else b
    ends = "less" if signed is a else "greater"
    below = a.recorder.constant(name.startswith(ends) or name == "not_equal", dtypes.bool_)
    within = (a.cast(dtypes.uint64), b.cast(dtypes.uint64))
    found = a.recorder.append(name, dtypes.bool_, within)
    return a.recorder.append("select", dtypes.bool_, (signed < 0, below, found))


def _compared_with_number(name: str, x: Recorded, number: Recorded) -> Recorded:
    """Compares with the number clamped to x's dtype, and corrects for numbers outside of it."""
    least = -(2**x.dtype.digits) if x.dtype.kind == "i" else 0
    low, high = number < least, number > 2**x.dtype.digits - 1
    append, constant = x.recorder.append, x.recorder.constant
    inside = append("select", number.dtype, (low, constant(least, number.dtype), number))
    most = constant(2**x.dtype.digits - 1, number.dtype)
    inside = append("select", number.dtype, (high, most, inside))
    found = append(name, dtypes.bool_, (x, inside.cast(x.dtype)))
    beyond = {
        "equal": ~(low | high), "not_equal": low | high, "less": high, "less_equal": ~low,
        "greater": low, "greater_equal": ~high,
    }[name]  # fmt: skip
    both = name in ("equal", "less_equal", "greater_equal")
    return append("bit_and" if both else "bit_or", dtypes.bool_, (found, beyond))


def power(a: Recorded, b: Term) -> Recorded:
    """a to the b. Small constant integer exponents become products, also for integers."""
    if isinstance(b, (int, float)) and b == int(b) and 0 <= b <= 4:
        dtype = dtypes.promote_weak(a.dtype, dtypes.weak(b))
        return _product(a.cast(dtype), int(b))
    a, b = common(a.recorder, a, b)
    return a.binary("power", b)


def _product(a: Recorded, count: int) -> Recorded:
    if count == 0:
        return a.recorder.constant(1, a.dtype)
    if count == 1:
        return a
    half = _product(a, count // 2)
    square = half * half
    return square * a if count % 2 else square
