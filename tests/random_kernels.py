"""Random loop programs and products, and ways to run them: for tests of the code generators.

Everything drawn here has one right answer, to the bit. Sums are of small whole numbers, products
of -1, 0 and 1; no maximum compares zeros of different signs; casts to integers never overflow.
"""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy
from combiners import COMBINERS, record
from hypothesis import strategies as st
from products import Described, in_loops

from gemel import dtype as dtypes
from gemel._core import load_object
from gemel.codegen.contract.planner import WindowAxes, steps
from gemel.codegen.contract.tilings import SCRATCH
from gemel.codegen.language import meaning
from gemel.codegen.language.lane import Lane, Recorder
from gemel.codegen.language.order import stride_class
from gemel.codegen.language.program import (
    ACROSS,
    BROADCAST,
    CONTIGUOUS,
    INDEX,
    INNER,
    INPUT,
    INTERLEAVED,
    OUTER,
    OUTPUT,
    PAIRED,
    REVERSED,
    ROWS,
    STRIDED,
    TILES,
    Operand,
    Program,
)
from gemel.codegen.target import _NEEDED, MACHINE, TARGETS, Target, _flags
from gemel.dtype import (
    DTYPES,
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
)
from gemel.runtime.backend import native_code

#: The targets that this machine can run, the best one first.
RUNNABLE = [n for n in TARGETS if _NEEDED.get(n, set()) <= _flags()] or ["generic"]
if MACHINE not in ("x86_64", "AMD64"):
    RUNNABLE = ["generic"]
#: Every dtype that a kernel computes in or stores.
KINDS = [dtype for dtype in DTYPES if dtype.kind != "c"]

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 65, 100, 131)
MOST = 3000
SEEDS = st.integers(0, (1 << 32) - 1)
#: Called like a kernel: addresses, integers, and the range of the first loop.
Kernel = Callable[[Sequence[int], Sequence[int], int, int], int]


class Call(NamedTuple):
    """A kernel, (buffer, first byte) of each operand, integers, and cuts of the first loop."""

    program: Program
    places: list[tuple[int, int]]
    integers: list[int]
    cuts: list[int]


class Case(NamedTuple):
    """Kernels called in turn on some buffers, and the dtypes of the buffers; None marks scratch."""

    calls: list[Call]
    buffers: list[Any]
    kinds: list[Any]

    def __repr__(self) -> str:
        return "\n".join(f"{c.program.text}{c.integers} {c.cuts}" for c in self.calls)


def outcome(
    case: Case, kernel_of: Callable[[Any], Kernel], copy: Callable[[Any], Any] = numpy.copy
) -> tuple[int, list[Any]]:
    """The status and all bytes after the kernels have run, range by range."""
    buffers = [copy(buffer) for buffer in case.buffers]
    status = 0
    for program, places, integers, cuts in case.calls:
        kernel = kernel_of(program)
        addresses = [buffers[number].ctypes.data + start for number, start in places]
        for begin, end in zip(cuts, cuts[1:], strict=False):
            status |= kernel(addresses, integers, begin, end)
    return status, buffers


def whole(case: Case) -> Case:
    """The case with each kernel called once, for all of its range: so a GPU runs it."""
    calls = [call._replace(cuts=[call.cuts[0], call.cuts[-1]]) for call in case.calls]
    return case._replace(calls=calls)


def meant(program: Program) -> Kernel:
    """A kernel run by the interpreter."""
    return partial(meaning.run, program)


def compiled(target: str, program: Program) -> Kernel:
    """A kernel compiled for a target that this machine can run."""
    kernel = load_object(native_code(program, TARGETS[target]))
    return callable_at(kernel.address, kernel)


def callable_at(address: int, owner: Any) -> Kernel:
    """The machine code at an address as a kernel; `owner` keeps the code alive."""
    word, whole = ctypes.c_void_p, ctypes.c_int64
    function = ctypes.CFUNCTYPE(ctypes.c_int32, word, word, whole, whole)(address)

    def call(addresses: Sequence[int], integers: Sequence[int], begin: int, end: int) -> int:
        assert owner
        pointers = (ctypes.c_void_p * (len(addresses) or 1))(*addresses)
        return int(function(pointers, (ctypes.c_int64 * len(integers))(*integers), begin, end))

    return call


def kept(dtype: Any) -> Any:
    """The NumPy dtype that holds elements of a dtype."""
    return numpy.dtype("uint16" if dtype is bfloat16 else dtype.name)


def filled(dtype: Any, size: int, source: numpy.random.Generator) -> Any:
    """Ordinary, large and special elements."""
    if dtype.kind == "b":
        return source.integers(0, 2, size).astype(bool)
    if dtype.kind != "f":
        limits = numpy.iinfo(dtype.name)
        small = source.integers(0, 10, size).astype(dtype.name)
        large = source.integers(limits.min, limits.max, size, dtype.name, endpoint=True)
        return numpy.where(source.random(size) < 0.5, small, large)
    some = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, 1e-41, 3e38, math.inf, -math.inf, math.nan]
    usual = source.integers(-40, 40, size) / 4
    odd = source.standard_normal(size) * 10.0 ** source.integers(-9, 9, size)
    share = source.random(size)
    found = numpy.where(
        share < 0.1, source.choice(some, size), numpy.where(share < 0.5, odd, usual)
    )
    if dtype is bfloat16:
        return (found.astype("float32").view("uint32") >> 16).astype("uint16")
    with numpy.errstate(all="ignore"):
        return found.astype(dtype.name)


def same_bytes(case: Case, got: list[Any], wanted: list[Any]) -> None:
    """Check for the same bits; any NaN equals any other. Scratch (dtype None) is not compared."""
    for a, b, dtype in zip(got, wanted, case.kinds, strict=False):
        if dtype is not None and not numpy.array_equal(a, b):
            a, b = (x.view(f"uint{8 * dtype.itemsize}") for x in (a, b))
            none = (_is_nan(a, dtype) & _is_nan(b, dtype)) if dtype.kind == "f" else False
            numpy.testing.assert_array_equal(numpy.where(none, 0, a), numpy.where(none, 0, b))


def _is_nan(bits: Any, dtype: Any) -> Any:
    if dtype is bfloat16:
        return (bits & 0x7FFF) > 0x7F80
    return numpy.isnan(bits.view(dtype.name))


# --- expressions ------------------------------------------------------------------------------

_BOTH = ("add", "subtract", "multiply", "maximum", "minimum")
_COMPARE = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
BINARY = {
    "f": (*_BOTH, "divide", "floor_divide", "remainder"),
    "i": (*_BOTH, "divide", "floor_divide", "remainder", "bit_and", "bit_or", "bit_xor")
    + ("shift_left", "shift_right"),
    "b": ("bit_and", "bit_or", "bit_xor", "maximum", "minimum", "add", "multiply"),
}
UNARY = {
    "f": ("negative", "absolute", "sqrt", "floor", "ceil", "rint", "trunc"),
    "i": ("negative", "absolute", "bit_not"),
    "b": ("bit_not",),
}
REDUCED = {
    "f": ("sum", "prod", "max", "min", *COMBINERS),
    "i": ("sum", "prod", "max", "min", *COMBINERS),
    "b": ("any", "all", "max", "min", "argmax", "argmin"),
}


def _table(kind: str) -> str:
    return "i" if kind == "u" else kind


class Expressions:
    """Random instructions on the values so far; `varying` holds those that vary in inner loops."""

    def __init__(
        self, draw: random.Random, recorder: Recorder, functions: Sequence[str] = ()
    ) -> None:
        self.draw = draw
        self.recorder = recorder
        self.xp = Lane(recorder)
        self.functions = functions
        #: Few dtypes each, so that values of the same dtype often meet.
        self.kinds = draw.sample(KINDS, 3)
        self.computed = list(dict.fromkeys((bool_, *(dtype.compute for dtype in self.kinds))))
        self.known: list[Any] = []
        self.varying: set[int] = set()
        self.used: set[int] = set()

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw.choice(options)

    def add(self, value: Any, *sources: Any, varies: bool | None = None) -> Any:
        if any(s.position in self.varying for s in sources) if varies is None else varies:
            self.varying.add(value.position)
        self.known.append(value)
        return value

    def cast(self, value: Any, dtype: Any) -> Any:
        """The value in another dtype; a float that is too large for an integer becomes 0."""
        if value.dtype.kind != "f" or dtype.kind in "fb":
            made = value.cast(dtype)
        else:
            wide = value.cast(value.dtype.compute)
            made = self.xp.where(abs(wide) < 1000.0, wide, 0.0).cast(dtype)
        return self.add(made, value)

    def any_of(self, dtype: Any, but: Any = None) -> Any:
        """A value of a dtype: an existing one, one cast from another, or a constant."""
        there = [v for v in self.known if v.dtype is dtype and v is not but]
        how = self.draw.randint(0, 3)
        if there and how:
            found = self.pick(there)
            self.used.add(found.position)
            return found
        if how < 2 and dtype.compute is dtype:
            number = self.pick((0, 1, 2, 3, 7) if dtype.kind != "f" else (0.0, -1.5, 0.1, 2.0, 3e9))
            return self.add(self.recorder.constant(number, dtype), varies=False)
        found = self.pick(self.known)
        self.used.add(found.position)
        return self.cast(found, dtype)

    def result(self, dtype: Any) -> Any:
        """A value that nothing has used yet, if there is one, perhaps cast to another dtype."""
        unused = [v for v in self.known if v.position not in self.used] or self.known[-3:]
        value = self.pick(unused)
        self.used.add(value.position)
        return value if self.draw.random() < 0.5 else self.cast(value, dtype)

    def step(self) -> None:
        """Append one more instruction, preferably on values that nothing has used yet."""
        unused = [v for v in self.known if v.position not in self.used]
        a = self.pick(unused if unused and self.draw.random() < 0.7 else self.known)
        self.used.add(a.position)
        if a.dtype.compute is not a.dtype and self.draw.random() < 0.7:  # a storage dtype
            a = self.cast(a, self.pick(self.computed))
        how = self.draw.randint(0, 9)
        kind = _table(a.dtype.kind)
        append = self.recorder.append
        if how == 0 or a.dtype.compute is not a.dtype:
            condition, b = self.any_of(bool_), self.any_of(a.dtype, a)
            self.add(append("select", a.dtype, (condition, a, b)), condition, a, b)
        elif how == 1:
            self.cast(a, self.pick(self.kinds))
        elif how == 2:
            self.add(append(self.pick(UNARY[kind]), a.dtype, (a,)), a)
        elif how == 3:
            b = self.any_of(a.dtype, a)
            self.add(append(self.pick(_COMPARE), bool_, (a, b)), a, b)
        elif how == 4 and a.dtype is float32:
            b, c = self.any_of(a.dtype, a), self.any_of(a.dtype, a)
            self.add(self.xp.multiply_add(a, b, c), a, b, c)
        elif how == 4 and a.dtype is dtypes.uint32:
            b = self.any_of(a.dtype, a)
            self.add(append("multiply_high", a.dtype, (a, b)), a, b)
        elif how == 4 and kind == "f":
            self.add(append("isnan", bool_, (a,)), a)
        elif how in (5, 6) and kind == "f" and self.functions:
            name = self.pick(self.functions)
            arguments = (a, self.any_of(a.dtype, a)) if name == "power" else (a,)
            self.add(append(name, a.dtype, arguments), *arguments)
        else:
            b = self.any_of(a.dtype, a)
            self.add(append(self.pick(BINARY[kind]), a.dtype, (a, b)), a, b)

    def calm(self, value: Any, kind: str) -> Any:
        """The value changed so that its reduction does not depend on the order."""
        if value.dtype.kind != "f":
            return value
        if kind in ("sum", "prod", "moments"):
            most = {"sum": 8.0, "prod": 1.0, "moments": 2.0}[kind]
            whole = self.xp.rint(value)
            return self.xp.where(abs(whole) <= most, whole, 1.0)
        return value + 0.0 if kind in ("max", "min", "range") else value

    def reduce(self) -> None:
        value = self.any_of(self.pick(self.computed))
        kind = self.pick(REDUCED[_table(value.dtype.kind)])
        self.add(record(self.recorder, kind, self.calm(value, kind)), varies=False)

    def scan(self) -> None:
        value = self.any_of(self.pick([d for d in self.computed if d.kind != "b"] or [int64]))
        self.add(self.recorder.scan(self.pick(("sum", "prod")), value), varies=True)


# --- programs ---------------------------------------------------------------------------------


class _Memory:
    """The buffers of a case, each a little larger than what a kernel touches."""

    def __init__(self, seed: int) -> None:
        self.source = numpy.random.default_rng(seed)
        self.buffers: list[Any] = []
        self.kinds: list[Any] = []
        self.starts: list[tuple[int, int]] = []

    def reached(self, extents: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
        ends = [(n - 1) * s for n, s in zip(extents, strides, strict=True) if n > 1]
        return sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends)

    def room(self, dtype: Any, low: int, high: int) -> int:
        """A new buffer with elements `low` to `high` relative to its start."""
        size = high - low + 1 + 8
        self.buffers.append(filled(dtype, size, self.source).view("uint8"))
        self.kinds.append(dtype)
        self.starts.append((len(self.buffers) - 1, (4 - low) * dtype.itemsize))
        return len(self.buffers) - 1


def bits_of(draw: random.Random, scalars: Sequence[Any]) -> list[int]:
    """Values for scalars, in the bits that kernels take them in."""
    return [
        int(numpy.float64(draw.choice((0.5, -3.0, 1e10))).view("int64"))
        if dtype is float64
        else draw.randint(-5, 300)
        for dtype in scalars
    ]


def dense(extents: Sequence[int], order: Sequence[int], last: int = 1) -> list[int]:
    """Strides without overlap; the last axis of `order` is innermost."""
    strides, step = [0] * len(extents), last
    for d in reversed(order):
        strides[d] = step
        step *= max(extents[d], 1)
    return strides


def programs(
    functions: Sequence[str] = (), rows: bool = False, fours: bool = False
) -> st.SearchStrategy[Case]:
    """Loop programs with their arguments and cuts. With `rows` there is one inner loop, and the
    vector runs along it. With `fours` lines along the vector consist of whole groups of four."""
    return SEEDS.map(lambda seed: _Drawing(random.Random(seed), functions, rows, fours).case())


class _Drawing:
    def __init__(
        self, draw: random.Random, functions: Sequence[str], rows: bool = False, fours: bool = False
    ) -> None:
        self.draw = draw
        self.fours = fours and draw.randint(0, 7) > 0
        self.outer, self.inner = draw.randint(1, 3), 1 if rows else draw.randint(0, 2)
        self.scans = self.inner > 0 and not rows and draw.randint(0, 4) == 0
        along = rows or (self.inner and not self.scans and draw.random() < 0.5)
        self.lanes = INNER if along else OUTER
        self.rank = self.outer + self.inner
        self.vector = self.rank - 1 if self.lanes == INNER else self.outer - 1
        self.extents: list[int] = []
        for _ in range(self.rank):
            left = MOST // max(math.prod(self.extents), 1)
            self.extents.append(draw.choice([n for n in EXTENTS if n <= left]))
        if self.fours:
            self.extents[self.vector] = draw.choice((4, 8, 16, 64, 100))
        if draw.randint(0, 15) == 15:
            self.extents[draw.randint(0, self.rank - 1)] = 0
        self.memory = _Memory(draw.randint(0, 1 << 30))
        self.operands: list[Operand] = []
        self.strides: list[list[int]] = []
        self.extras: list[int] = []
        self.recorder = Recorder()
        self.make = Expressions(draw, self.recorder, functions)
        self.gathers = draw.randint(0, 3) == 0

    def case(self) -> Case:
        draw, make = self.draw, self.make
        for _ in range(draw.randint(1, 3)):
            self._input()
        if not self.inner and draw.randint(0, 3) == 0:
            self._inputs_in_turns(draw.randint(2, 4), groups=draw.randint(1, 2))
        scalars: list[Any] = []
        for dtype in draw.choices((float64, int64), k=draw.randint(0, 2)):
            make.add(self.recorder.scalar(len(scalars), dtype), varies=False)
            scalars.append(dtype)
        reductions = draw.randint(0, 2) if self.inner else 0
        for turn in range(reductions + 1):
            for _ in range(draw.randint(6, 16)):
                make.step()
            if turn < reductions:
                make.reduce()
        if self.scans:
            make.scan()
        if self.gathers:
            self._gather()
        make.step()
        if draw.randint(0, 3) == 0 and 0 not in self.extents:
            self.recorder.check(make.any_of(bool_))
        self._outputs()
        code = tuple(self.recorder.code)
        operands, extra = tuple(self.operands), len(self.extras)
        program = Program(self.outer, self.inner, self.lanes, operands, tuple(scalars), extra, code)
        numbers = [n for strides in self.strides for n in strides]
        integers = [*self.extents, *numbers, *self.extras, *bits_of(draw, scalars)]
        inside = sorted(draw.randint(0, self.extents[0]) for _ in range(draw.randint(0, 2)))
        cuts = [0, *inside, self.extents[0]]
        call = Call(program, self.memory.starts, integers, cuts)
        return Case([call], self.memory.buffers, self.memory.kinds)

    def _input(self) -> None:
        draw, make = self.draw, self.make
        dtype = make.pick(make.kinds)
        role = INDEX if draw.randint(0, 7) == 0 else INPUT
        dtype = int64 if role == INDEX else dtype
        varies = self.inner > 0 and draw.randint(0, 2) > 0
        apart = (0, 4, 8, 40) if self.fours else (0, 1, 2, 5, -3, 40)
        strides = [make.pick(apart) for _ in range(self.rank)]
        kinds = [STRIDED, STRIDED, CONTIGUOUS, BROADCAST, *[CONTIGUOUS] * 12 * self.fours]
        if self.outer > 1 and not self.inner and role == INPUT and not self.gathers:
            kinds += [ACROSS, ACROSS]
        if role == INPUT:
            kinds += [PAIRED, REVERSED]
        kind = make.pick(kinds) if varies or self.lanes == OUTER else BROADCAST
        known = {BROADCAST: 0, CONTIGUOUS: 1, PAIRED: 2, REVERSED: -1}
        strides[self.vector] = known.get(kind, make.pick((2, 3, -1, 17)))
        if kind == ACROSS:
            strides[self.vector - 1] = 1
        if role == INPUT:
            self.memory.room(dtype, *self._reached(strides, varies))
        self._operand(Operand(dtype, role, kind, varies), strides)
        value = self.recorder.load(len(self.operands) - 1, dtype)
        make.add(value, varies=varies)

    def _inputs_in_turns(self, count: int, groups: int) -> None:
        """Inputs whose elements are interleaved in memory."""
        make, dtype = self.make, self.make.pick(self.make.kinds)
        along = [make.pick((0, 1, 7)) for _ in range(self.rank)]
        along[self.vector] = count
        starts: list[tuple[int, int]] = []
        for turn in range(count):
            for group in range(groups):
                if not turn:
                    low, high = self._reached(along, False)
                    self.memory.room(dtype, low, high + count)
                    starts.append(self.memory.starts[-1])
                else:
                    number, start = starts[group]
                    self.memory.starts.append((number, start + turn * dtype.itemsize))
                operand = Operand(dtype, INPUT, INTERLEAVED, interleaved=(turn, count))
                self._operand(operand, along)
                make.add(self.recorder.load(len(self.operands) - 1, dtype), varies=False)

    def _reached(self, strides: Sequence[int], varies: bool) -> tuple[int, int]:
        seen = [s if varies or d < self.outer else 0 for d, s in enumerate(strides)]
        return self.memory.reached(self.extents, seen)

    def _operand(self, operand: Operand, strides: Sequence[int]) -> None:
        if self.lanes == INNER and self.inner == 1:
            operand = operand._replace(beside=stride_class(strides[self.outer - 1]))
        self.operands.append(operand)
        self.strides.append(list(strides))

    def _gather(self) -> None:
        """Load an element of a table, at an index computed from a value."""
        draw, make = self.draw, self.make
        dtype, size, step = make.pick(make.kinds), draw.randint(1, 9), make.pick((1, 3, -2))
        index = make.cast(make.pick(make.known), int64)
        index = make.add(make.xp.remainder(index, size), index)
        varies = self.inner > 0 and draw.random() < 0.5
        kind = make.pick((BROADCAST, CONTIGUOUS, STRIDED))
        kind = kind if varies or self.lanes == OUTER else BROADCAST
        strides = [make.pick((0, 1, 4)) for _ in range(self.rank)]
        strides[self.vector] = {BROADCAST: 0, CONTIGUOUS: 1}.get(kind, 2)
        low, high = self._reached(strides, varies)
        reach = (size - 1) * step
        self.memory.room(dtype, low + min(reach, 0), high + max(reach, 0))
        self._operand(Operand(dtype, INPUT, kind, varies), strides)
        self.extras.append(step)
        value = self.recorder.gather(len(self.operands) - 1, 0, index, dtype)
        make.add(value, index, varies=varies or index.position in make.varying)

    def _outputs(self) -> None:
        draw, make = self.draw, self.make
        count = draw.randint(2, 7)
        if draw.randint(0, 4) == 0 and count < 5:
            self._in_turns(count)
            return
        for _ in range(count):
            value = make.result(make.pick(make.kinds))
            varies = self.inner > 0 and (value.position in make.varying or draw.random() < 0.5)
            dimensions = range(self.rank if varies else self.outer)
            order = draw.sample(dimensions, len(dimensions))
            kind = make.pick((CONTIGUOUS, REVERSED, STRIDED))
            if kind != STRIDED and self.vector in dimensions:
                order = [*(d for d in order if d != self.vector), self.vector]
            elif self.vector not in dimensions:
                kind = BROADCAST
            last = {CONTIGUOUS: 1, REVERSED: -1}.get(kind, make.pick((1, 2, -1)))
            strides = dense(self.extents, order, last)
            self._store(value, Operand(value.dtype, OUTPUT, kind, varies), strides)

    def _in_turns(self, count: int) -> None:
        """Outputs whose elements are interleaved in memory."""
        make, dtype = self.make, self.make.pick(self.make.kinds)
        varies = self.inner > 0
        order = [*(d for d in range(self.rank) if d != self.vector), self.vector]
        strides = dense(self.extents, order, count)
        for turn in range(count):
            value = make.cast(make.result(dtype), dtype)
            operand = Operand(dtype, OUTPUT, INTERLEAVED, varies, interleaved=(turn, count))
            self._store(value, operand, strides, turn)

    def _store(self, value: Any, operand: Operand, strides: Sequence[int], turn: int = 0) -> None:
        same = [
            i
            for i, (other, known) in enumerate(zip(self.operands, self.strides, strict=True))
            if other.role == INPUT and other.dtype is operand.dtype and known == list(strides)
            if other.varies == operand.varies and other.stride_class == operand.stride_class
        ]
        if turn:
            number, start = self.memory.starts[-1]
            self.memory.starts.append((number, start + operand.dtype.itemsize))
        elif same and self.draw.random() < 0.5 and not self.gathers:
            places = sum(o.role != INDEX for o in self.operands[: same[0]])
            self.memory.starts.append(self.memory.starts[places])
        else:
            low, high = self._reached(strides, operand.varies)
            self.memory.room(operand.dtype, low, high + 4)
        self._operand(operand, strides)
        self.recorder.store(len(self.operands) - 1, value)


# --- products -----------------------------------------------------------------------------------

#: The dtypes whose products are summed in a dtype.
FACTORS = {float32: (float16, bfloat16, float32), float64: (float64,), int32: (int8, uint8)}
#: Sizes of products: m and n, and k.
LINES = (1, 2, 3, 7, 8, 16, 17, 33, 64, 70)
DEPTHS = (0, 1, 2, 5, 16, 33, 64, 100)


class Product:
    """A random matrix product: its epilogue, sizes, strides and buffers. `lines`, `depths`: what m
    and n are drawn from, and k."""

    def __init__(
        self,
        seed: int,
        functions: Sequence[str] = (),
        lines: Sequence[int] = LINES,
        depths: Sequence[int] = DEPTHS,
    ) -> None:
        self.draw = draw = random.Random(seed)
        self.dtype = draw.choice([*FACTORS])
        self.sizes = tuple(draw.choice(lines) for _ in "mn") + (draw.choice(depths),)
        self.batch = draw.choice((1, 1, 2, 3)), draw.choice((1, 1, 2))
        self.lasts = draw.choice("km"), draw.choice("nk")
        self.memory = _Memory(draw.randint(0, 1 << 30))
        self.make = Expressions(draw, Recorder(), functions)
        self.operands: list[Operand] = []
        self.strides: list[list[int]] = []
        seen = self.dtype is not int32 and draw.random() < 0.4
        self.windows = self._window_axes() if seen else None
        few = FACTORS[self.dtype]
        one = draw.choice(few)
        #: The dtypes the operands are stored in.
        self.kept = one, draw.choice((one, draw.choice(few)))
        m, n, k = self.sizes
        self.a = self._matrix(0, m, k, self.lasts[0] == "k")
        self.b = self._windows() if self.windows else self._matrix(1, k, n, self.lasts[1] == "n")
        described, self.bits = self._epilogue()
        self.described = described._replace(kept=self.kept)

    def _window_axes(self) -> WindowAxes:
        """Choose several axes for k and for the columns of b."""
        axes = [self._axes(), self._axes()]
        self.sizes = (self.sizes[0], *(math.prod(n for n, _ in each) for each in reversed(axes)))
        self.axes = axes
        return self._seen_by(1)

    def _seen_by(self, lanes: int) -> WindowAxes:
        found = WindowAxes.of(*self.axes, lanes)
        assert found is not None
        return found

    def _axes(self) -> list[tuple[int, int]]:
        draw = self.draw
        axes = [(draw.randint(1, 6), draw.choice((1, 2, 7, 40, -3))) for _ in range(3)]
        axes[2] = draw.randint(1, 20), draw.choice((1, 1, 1, 2, 5))
        return axes[draw.randint(0, 2) :]

    def _windows(self) -> tuple[int, int, int]:
        """Like `_matrix`, for a factor that runs along several axes."""
        assert self.windows
        axes = (*self.windows.k, *self.windows.n)
        outer, inner = (self.draw.choice((0, 50)) if n > 1 else 0 for n in self.batch)
        extents, strides = zip(*axes, (self.batch[0], outer), (self.batch[1], inner), strict=True)
        number = self.memory.room(self.kept[1], *self.memory.reached(extents, strides))
        self._fill(number, len(self.memory.buffers[number]) // self.kept[1].itemsize, self.kept[1])
        return 0, outer, inner

    def _fill(self, number: int, size: int, dtype: DType) -> None:
        """Fill a buffer with any bytes, or with small whole numbers, so that every sum of their
        products is exact."""
        if dtype in FACTORS[int32]:
            self.memory.buffers[number] = self.memory.source.integers(0, 256, size, "uint8")
            return
        whole = self.memory.source.integers(-4, 5, size).astype("float32")
        if dtype is bfloat16:
            whole = (whole.view("uint32") >> 16).astype("uint16")
        self.memory.buffers[number] = whole.astype(kept(dtype)).view("uint8")

    def _matrix(
        self, which: int, rows: int, columns: int, along_columns: bool
    ) -> tuple[int, int, int]:
        """A buffer's strides: of the axis whose stride is not 1, and of the two batch axes. Lines
        may be apart, overlap, be the same one, or run backwards."""
        last, other = (columns, rows) if along_columns else (rows, columns)
        draw = self.draw
        stride = draw.choice((last, last, last + 3, draw.randint(-last - 3, last)))
        apart = abs(stride) * max(other - 1, 0) + last
        inner = draw.choice((0, apart)) if self.batch[1] > 1 else 0
        outer = draw.choice((0, apart * 2, -apart)) if self.batch[0] > 1 else 0
        extents = [other, last, *self.batch]
        low, high = self.memory.reached(extents, [stride, 1, outer, inner])
        number = self.memory.room(self.kept[which], low, high)
        self._fill(number, high - low + 9, self.kept[which])
        return stride, outer, inner

    def _epilogue(self) -> tuple[Described, list[int]]:
        draw, make = self.draw, self.make
        make.add(make.recorder.append("sum", self.dtype), varies=False)
        for _ in range(draw.randint(0, 3)):
            self._input()
        scalars = draw.choices((float64, int64), k=draw.randint(0, 1))
        for number, dtype in enumerate(scalars):
            make.add(make.recorder.scalar(number, dtype), varies=False)
        for _ in range(draw.randint(0, 5)):
            make.step()
        for _ in range(draw.randint(1, 3)):
            self._output(make.result(make.pick(make.kinds)))
        code = tuple(make.recorder.code)
        operands = tuple(self.operands)
        made = Described(self.dtype, self.lasts, operands, tuple(scalars), code)
        return made, bits_of(draw, scalars)

    def _input(self) -> None:
        make = self.make
        role = make.pick((INPUT, INPUT, INPUT, INDEX))
        dtype = int64 if role == INDEX else make.pick(make.kinds)
        kind = make.pick((BROADCAST, CONTIGUOUS, STRIDED))
        row, outer, inner = (make.pick((0, 1, 80)) for _ in range(3))
        column = {BROADCAST: 0, CONTIGUOUS: 1}.get(kind, make.pick((2, -3, 70)))
        strides = [row, column, outer, inner]
        if role == INPUT:
            self.memory.room(dtype, *self.memory.reached(self._extents(), strides))
        self.operands.append(Operand(dtype, role, kind))
        self.strides.append(strides)
        make.add(make.recorder.load(len(self.operands) - 1, dtype), varies=False)

    def _extents(self) -> list[int]:
        return [*self.sizes[:2], *self.batch]

    def _output(self, value: Any) -> None:
        strides = dense(self._extents(), (2, 3, 0, 1))
        self.memory.room(value.dtype, *self.memory.reached(self._extents(), strides))
        self.operands.append(Operand(value.dtype, OUTPUT, CONTIGUOUS))
        self.strides.append(strides)
        self.make.recorder.store(len(self.operands) - 1, value)

    def _in_loops(self, windows: WindowAxes | None) -> tuple[Program, list[int]]:
        return in_loops(
            self.described, self.sizes, self.a, self.b, self.strides, self.batch, windows
        )

    def plain(self) -> Case:
        """The product as one kernel of loops, which defines the right result."""
        program, integers = self._in_loops(self.windows)
        call = Call(program, self.memory.starts, integers + self.bits, [0, self.batch[0]])
        return Case([call], self.memory.buffers, self.memory.kinds)

    def planned(self, target: Target, often: bool = False) -> Case:
        """The product as the kernels that compute it on a target."""
        lanes = target.width // self.dtype.itemsize
        windows = self._seen_by(lanes) if self.windows else None
        planned = steps(*self._in_loops(windows), self.lasts, target, often, windows)
        memory, calls = self.memory, []
        program, _ = self._in_loops(windows)
        having = (i for i, operand in enumerate(program.operands) if operand.role != INDEX)
        known = dict(zip(having, memory.starts, strict=True))
        # 0xff in every byte is NaN, so a read of scratch before it is written shows.
        rooms = [numpy.full(size, 255, "uint8") for size in (planned[0].scratch if planned else ())]
        first = len(memory.buffers)
        known.update({SCRATCH - i: (first + i, 0) for i in range(len(rooms))})
        for step in planned:
            places = [known[whose] for whose in step.buffers]
            integers = list(step.integers)
            integers[step.program.first_scalar :] = self.bits[: len(step.program.scalars)]
            cut = self.draw.randint(0, step.extent)
            calls.append(Call(step.program, places, integers, [0, cut, step.extent]))
        return Case(calls, [*memory.buffers, *rooms], [*memory.kinds, *[None] * len(rooms)])

    def in_part(self, target: Target) -> Case:
        """Like `planned`, but with the smallest possible tiles, only some of which are computed, in
        order along the rows or down the columns."""
        case = self.planned(target)
        if not case.calls or case.calls[-1].program.parsed_schedule.kind not in ("gemm", "amx"):
            return case
        program, places, integers, _ = case.calls[-1]
        at, integers = program.extras[-len(TILES)], [*integers]
        columns = math.prod(integers[ROWS + 1 : program.outer])
        sizes = program.parsed_schedule.rows, program.parsed_schedule.columns
        counts = [-(-n // size) for n, size in zip((integers[ROWS], columns), sizes, strict=True)]
        integers[at : at + 4] = *sizes, *counts
        schedule = program.parsed_schedule._replace(by_rows=self.draw.random() < 0.5)
        program = program._replace(schedule=schedule.text)
        begin, end = sorted(self.draw.choices(range(math.prod((*counts, *self.batch)) + 1), k=2))
        return case._replace(
            calls=[*case.calls[:-1], Call(program, places, integers, [begin, end])]
        )


def products(functions: Sequence[str] = (), **sizes: Sequence[int]) -> st.SearchStrategy[Product]:
    """Matrix products with an elementwise epilogue, of such `sizes`."""
    return SEEDS.map(lambda seed: Product(seed, functions, **sizes))
