"""Recording scalar expressions: the `xp` with which an operation's body becomes a kernel.

An elementwise body such as ``xp.where(x > 0, x, alpha * xp.expm1(x))`` computes with NumPy if
`xp` is ``numpy``, and records instructions if `xp` is a `Lane`. Functions have NumPy's names where
NumPy has them. Python scalars are weak: they become constants of the other value's dtype.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gemel import dtype as dtypes
from gemel.codegen.language.program import FUNCTIONS
from gemel.codegen.language.values import Recorded, Recorder, common, number
from gemel.dtype import DType
from gemel.errors import FormulaError, name_call, suggestion
from gemel.ir import bases
from gemel.ir.philox import FIRST, GOLDEN, MULTIPLIER, ROUNDS, SECOND, WEYL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gemel.codegen.language.values import Term
    from gemel.ir.op_kinds import Elementwise

__all__ = ["OPERATORS", "Lane", "Recorded", "Recorder"]


#: The function of the module `operator` for each of NumPy's names for Python's operators.
OPERATORS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "truediv",
    "true_divide": "truediv", "floor_divide": "floordiv", "remainder": "mod", "mod": "mod",
    "power": "pow", "negative": "neg", "positive": "pos",
    "absolute": "abs", "abs": "abs", "fabs": "abs",
    "bitwise_and": "and_", "bitwise_or": "or_", "bitwise_xor": "xor",
    "invert": "inv", "bitwise_not": "inv",
    "left_shift": "lshift", "bitwise_left_shift": "lshift",
    "right_shift": "rshift", "bitwise_right_shift": "rshift",
    "equal": "eq", "not_equal": "ne",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
}  # fmt: skip
#: NumPy's names of other instructions with one argument, and with two.
_UNARY = {"floor": "floor", "ceil": "ceil", "rint": "rint", "round": "rint"}
_UNARY |= {"trunc": "trunc", "fix": "trunc"}
_BINARY = ("maximum", "minimum", "multiply_high")


class Lane:
    """The namespace that an elementwise body is run with.

    `random` returns (element index, seed, call number), three int64 values, for `random_bits`. A
    body that has its own seed and call number passes them as arguments. `index` is called with an
    axis and returns the running index along that axis (int64).
    """

    pi = 3.141592653589793
    e = 2.718281828459045
    inf = float("inf")
    nan = float("nan")

    def __init__(
        self,
        recorder: Recorder | None = None,
        *,
        random: Callable[..., tuple[Recorded, ...]] | None = None,
        index: Callable[[int], Recorded] | None = None,
    ) -> None:
        self.recorder = Recorder() if recorder is None else recorder
        self._random = random
        self._index = index

    def __getattr__(self, name: str) -> Callable[..., Recorded]:
        """Functions that are one instruction: `program.FUNCTIONS`, operators and a few others."""
        if name in FUNCTIONS or name == "sqrt":
            return lambda x: self.value(x).floating().unary(name)
        if name in OPERATORS:
            found: Callable[..., Recorded] = getattr(operator, OPERATORS[name])
            return found
        if name in _UNARY:
            return lambda x: self._rounded(_UNARY[name], self.value(x))
        if name in _BINARY:
            return lambda a, b: common(self.recorder, a, b)[0].binary(name, b)
        if name.startswith("__"):
            raise AttributeError(name)
        known = (*FUNCTIONS, *OPERATORS, *_UNARY, *_BINARY, *filter(str.isalpha, dir(Lane)))
        raise FormulaError(f"xp has no {name!r}{suggestion(name, known)}")

    def _rounded(self, name: str, x: Recorded) -> Recorded:
        """The rounded value; values that are not floating-point are whole already."""
        return x.unary(name) if x.dtype.kind == "f" else x

    # -- making values --------------------------------------------------------------------------

    def constant(self, value: bool | int | float, dtype: DType) -> Recorded:
        """A constant of `dtype`."""
        return self.recorder.constant(value, dtype)

    def value(self, value: Term) -> Recorded:
        """`value` itself, or a Python scalar as a constant of its own dtype."""
        if isinstance(value, Recorded):
            return value
        plain = number(value)
        return self.recorder.constant(plain, dtypes.weak(plain))

    def cast(self, value: Term, dtype: DType) -> Recorded:
        """`value` as `dtype`."""
        if isinstance(value, Recorded):
            return value.cast(dtype)
        return self.recorder.constant(number(value), dtype)

    def astype(self, value: Term, dtype: object) -> Recorded:
        """`value` as a dtype, which may be given by its name."""
        return self.cast(value, dtypes.as_dtype(dtype))

    def reinterpret(self, value: Recorded, dtype: DType) -> Recorded:
        """The same bits as another dtype of the same size."""
        return self.recorder.append("reinterpret", dtype, (value,))

    def zeros_like(self, value: Recorded) -> Recorded:
        return self.recorder.constant(0, value.dtype)

    def ones_like(self, value: Recorded) -> Recorded:
        return self.recorder.constant(1, value.dtype)

    def full_like(self, value: Recorded, fill: bool | int | float) -> Recorded:
        return self.recorder.constant(fill, value.dtype)

    # -- choosing -------------------------------------------------------------------------------

    def where(self, condition: Recorded, a: Term, b: Term) -> Recorded:
        """`a` where the condition holds, else `b`."""
        if not isinstance(a, Recorded) and not isinstance(b, Recorded):
            ladder = dtypes.promote_weak(dtypes.weak(a), dtypes.weak(b))
            a, b = self.constant(a, ladder), self.constant(b, ladder)
        first, second = common(self.recorder, a, b)
        return self.recorder.append(
            "select", first.dtype, (condition.cast(dtypes.bool_), first, second)
        )

    def clip(self, x: Recorded, low: Term | None = None, high: Term | None = None) -> Recorded:
        """`x` between `low` and `high`; NaN stays."""
        if low is not None:
            x = self.maximum(x, low)
        return x if high is None else self.minimum(x, high)

    # -- arithmetic ------------------------------------------------------------------------------

    def multiply_add(self, a: Recorded, b: Term, c: Term) -> Recorded:
        """a * b + c; for float32 one instruction, which rounds once."""
        if a.dtype is not dtypes.float32:
            return a * b + c
        arguments = (a, self.cast(b, a.dtype), self.cast(c, a.dtype))
        return self.recorder.append("multiply_add", a.dtype, arguments)

    def square(self, x: Recorded) -> Recorded:
        return x * x

    def reciprocal(self, x: Recorded) -> Recorded:
        return 1 / x

    def sign(self, x: Recorded) -> Recorded:
        """-1, 0 or 1; NaN stays."""
        if x.dtype.kind == "f":
            # Adding 0 turns -0.0 into 0.0 and keeps NaN.
            return self.where(x > 0, 1, self.where(x < 0, -1, x + 0.0))
        return (
            (x > 0).cast(x.dtype) - (x < 0).cast(x.dtype)
            if x.dtype.kind == "i"
            else (x != 0).cast(x.dtype)
        )

    def fmod(self, a: Term, b: Term) -> Recorded:
        """The remainder with the sign of `a` (C's)."""
        first, second = common(self.recorder, a, b)
        rest = self.remainder(abs(first), abs(second))
        return self.where(first < 0, -rest, rest)

    def copysign(self, a: Term, b: Term) -> Recorded:
        """|a| with the sign of `b`, also for zeros and NaN."""
        first, second = common(self.recorder, a, b)
        first, second = first.floating(), second.floating()
        return self.where(self.signbit(second), -abs(first), abs(first))

    def signbit(self, x: Recorded) -> Recorded:
        """Whether the sign bit is set, also of -0.0."""
        whole = dtypes.int64 if x.dtype is dtypes.float64 else dtypes.int32
        return self.reinterpret(x, whole) < 0 if x.dtype.kind == "f" else x < 0

    def hypot(self, a: Term, b: Term) -> Recorded:
        """sqrt(a*a + b*b), scaled so that it does not overflow."""
        first, second = common(self.recorder, a, b)
        first, second = abs(first.floating()), abs(second.floating())
        high, low = self.maximum(first, second), self.minimum(first, second)
        ratio = self.where(high == 0, 0.0, low / high)
        result = high * self.sqrt(1 + ratio * ratio)
        return self.where((first == self.inf) | (second == self.inf), self.inf, result)

    # -- functions made of others ---------------------------------------------------------------

    def exp2(self, x: Recorded) -> Recorded:
        """As `np.exp2`; gemel's own operations use its parts instead."""
        return self.value(bases.exp2(self, x.floating()))

    def log2(self, x: Recorded) -> Recorded:
        """As `np.log2`: exact for powers of 2."""
        return self.value(bases.log2(self, x.floating()))

    def log10(self, x: Recorded) -> Recorded:
        """As `np.log10`: exact for powers of 10."""
        return self.value(bases.log10(self, x.floating()))

    def tan(self, x: Recorded) -> Recorded:
        return self.sin(x) / self.cos(x)

    def sinh(self, x: Recorded) -> Recorded:
        x = x.floating()
        t = self.expm1(abs(x))
        # Halving the argument keeps the result finite for the largest arguments.
        half = self.where(abs(x) > 20, self.exp(abs(x) * 0.5), 1)
        large = 0.5 * half * half
        return self.copysign(self.where(abs(x) > 20, large, 0.5 * (t + t / (t + 1))), x)

    def cosh(self, x: Recorded) -> Recorded:
        half = self.exp(abs(x.floating()) * 0.5)
        return 0.5 * half * half + 0.5 / half / half

    def arctanh(self, x: Recorded) -> Recorded:
        x = x.floating()
        return self.copysign(0.5 * self.log1p(2 * abs(x) / (1 - abs(x))), x)

    def arcsinh(self, x: Recorded) -> Recorded:
        x = x.floating()
        a = abs(x)
        small = self.log1p(a + a * a / (1 + self.sqrt(1 + a * a)))
        large = self.log(a) + 0.6931471805599453
        return self.copysign(self.where(a > 1e8, large, small), x)

    def arccosh(self, x: Recorded) -> Recorded:
        x = x.floating()
        t = x - 1
        return self.where(
            x > 1e8, self.log(x) + 0.6931471805599453, self.log1p(t + self.sqrt(2 * t + t * t))
        )

    # -- tests ----------------------------------------------------------------------------------

    def isnan(self, x: Recorded) -> Recorded:
        return self.recorder.append("isnan", dtypes.bool_, (x,))

    def isinf(self, x: Recorded) -> Recorded:
        return abs(x) == self.inf if x.dtype.kind == "f" else self.constant(False, dtypes.bool_)

    def isfinite(self, x: Recorded) -> Recorded:
        return abs(x) < self.inf if x.dtype.kind == "f" else self.constant(True, dtypes.bool_)

    def logical_not(self, x: Recorded) -> Recorded:
        return ~x.cast(dtypes.bool_)

    def logical_and(self, a: Term, b: Term) -> Recorded:
        return self.cast(a, dtypes.bool_) & self.cast(b, dtypes.bool_)

    def logical_or(self, a: Term, b: Term) -> Recorded:
        return self.cast(a, dtypes.bool_) | self.cast(b, dtypes.bool_)

    def logical_xor(self, a: Term, b: Term) -> Recorded:
        return self.cast(a, dtypes.bool_) ^ self.cast(b, dtypes.bool_)

    # -- beyond one position --------------------------------------------------------------------

    def index(self, axis: int) -> Recorded:
        """The running index along `axis`, int64."""
        if self._index is None:
            raise FormulaError("xp.index needs an operation declared with positional=True")
        return self._index(axis)

    def random_bits(self, *stream: Recorded) -> tuple[Recorded, Recorded]:
        """Two uint32 of random bits for this element.

        `stream` is the seed and the number of the call; without it, those of the program are used.
        """
        if self._random is None:
            raise FormulaError("xp.random_bits needs an operation declared with random=True")
        return philox(self, *self._random(*stream))

    def random_stream(self) -> tuple[Recorded, Recorded]:
        """The program's seed and the number of the call (int64)."""
        if self._random is None:
            raise FormulaError("xp.random_stream needs an operation declared with random=True")
        _, seed, number = self._random()
        return seed, number


def recorded(
    op: Elementwise, lane: Lane, values: Sequence[Any], parameters: dict[str, Any]
) -> list[Any]:
    """The results of an operation's formula for these recorded values, one for each output.

    Raises `FormulaError`, see `naming`.
    """
    with naming(op.name):
        found = op.body(lane, *values, **parameters)
        results = found if op.outputs > 1 else (found,)
        if isinstance(results, (tuple, list)) and len(results) == op.outputs:
            return [each if hasattr(each, "cast") else lane.value(each) for each in results]
        raise FormulaError(f"its formula must return a tuple of {op.outputs} values, not {found!r}")


@contextmanager
def naming(name: str, *kinds: type) -> Iterator[None]:
    """Name the operation in the `FormulaError`s of its rules.

    Python's own errors about values that the rule was given, which are recorded or of these kinds,
    become such errors, too; what else the rule raises is left as it is.
    """
    try:
        yield
    except FormulaError as error:
        name_call(error, name)
        raise
    except (TypeError, AttributeError) as error:
        given = "|".join(kind.__name__ for kind in (Recorded, *kinds))
        if not re.search(rf"\b({given})\b", str(error)):
            raise
        raise FormulaError(
            f"{name}: what its rule is given stands for values that are not known yet; use "
            f"Python's operators and xp's functions (docs/extending.md): {error}"
        ) from error


def philox(
    xp: Lane, index: Recorded, seed: Recorded, number: Recorded
) -> tuple[Recorded, Recorded]:
    """Two uint32 for the element `index` of the call `number` (all int64): the same bits as
    `gemel.ir.philox`, step by step."""
    u64, u32 = dtypes.uint64, dtypes.uint32

    def mix(z: Recorded) -> Recorded:
        z = z + GOLDEN
        z = (z ^ (z >> 30)) * FIRST
        z = (z ^ (z >> 27)) * SECOND
        return z ^ (z >> 31)

    word = mix(mix(seed.cast(u64)) ^ number.cast(u64))
    key = word.cast(u32)
    low = index.cast(u32)
    high = (index.cast(u64) >> 32).cast(u32) ^ (word >> 32).cast(u32)
    multiplier = xp.constant(MULTIPLIER, u32)
    for _ in range(ROUNDS):
        low, high = xp.multiply_high(multiplier, low) ^ key ^ high, low * multiplier
        key = key + WEYL
    return low, high
