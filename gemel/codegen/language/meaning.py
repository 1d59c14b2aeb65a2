"""What a kernel computes, evaluated with NumPy: the meaning of a `Program`, whatever its schedule.

`run` takes the arguments of the compiled kernel and writes what the kernel must write: the same
bits, except for

- sums and products of floating-point values, which are rounded once here, as are sums of products.
  A kernel adds in its own order (`loops`, `tiles`), determined by extents and target;
- the sign of a zero that is the maximum or minimum of several, and which NaN a NaN is;
- exp, log, sin and the like, which are rounded once here; `mathlib` lists the kernels' errors;
- floating-point values cast to an integer dtype that cannot hold them.

All positions are computed at once and everything is read before anything is written, so an output
may share the memory of an input. This is slow and takes much memory: it is for tests and readers.
"""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy

from gemel import dtype as dtypes
from gemel.codegen.language.carry import Carry, Fragment
from gemel.codegen.language.program import (
    FUNCTIONS,
    INDEX,
    ROWS,
    TILES,
    WRITES,
    Instruction,
    Program,
)
from gemel.codegen.language.spelling import spelled
from gemel.dtype import DType

Array = Any
#: One axis of the arrays below: the positions along a dimension, or along several together.
Axis = dict[int, Array]
#: What scans combine elements with, by kind.
SCANS = {
    **{"sum": numpy.add, "prod": numpy.multiply, "max": numpy.maximum, "min": numpy.minimum},
    **{"logsum": numpy.logaddexp},
}


def run(
    program: Program, buffers: Sequence[int], integers: Sequence[int], begin: int, end: int
) -> int:
    """Does the kernel's work on [begin, end) and returns its status: 1 if a check failed, else 0.

    `buffers` are addresses; `integers` are the run-time integers, including the scalars' bits.
    """
    extents = integers[: program.rank]
    if program.in_tiles:
        parts = [_tile(program, integers, tile) for tile in range(begin, end)]
    else:
        parts = [[{d: numpy.arange(n)} for d, n in enumerate(extents[: program.outer])]]
        parts[0][0] = {0: numpy.arange(begin, end)}
    inner = [{d: numpy.arange(extents[d])} for d in range(program.outer, program.rank)]
    status = 0
    with numpy.errstate(all="ignore"):
        for part in parts:
            walk = _Walk(program, [*part, *inner], len(part), buffers, integers)
            if 0 not in walk.shape[: len(part)]:
                status |= walk.run()
    return status


def _tile(program: Program, integers: Sequence[int], tile: int) -> list[Axis]:
    """The positions of one tile."""
    sizes = integers[program.extras[-len(TILES)] : program.first_scalar]
    tiles = dict(zip(TILES, sizes, strict=True))
    counts = {"rows": tiles["m_tiles"], "columns": tiles["n_tiles"]}
    counts |= {"inner": integers[1], "outer": integers[0]}
    at = {}
    for name in program.tile_order:
        tile, at[name] = divmod(tile, counts[name])
    lengths = list(integers[ROWS + 1 : program.outer])
    rows = _block(at["rows"], tiles["m_block"], integers[ROWS])
    block = _block(at["columns"], tiles["n_block"], math.prod(lengths))
    whole = dict(enumerate(numpy.unravel_index(block, lengths), start=ROWS + 1))
    batch = [{d: numpy.array([at[name]])} for d, name in enumerate(("outer", "inner"))]
    return [*batch, {ROWS: rows}, whole]


def _block(number: int, size: int, extent: int) -> Array:
    return numpy.arange(number * size, max(min(number * size + size, extent), number * size))


# --- memory ---------------------------------------------------------------------------------


class _Memory:
    """Elements at an address, for NumPy's array interface. A bool is a byte, a bfloat16 its
    bits."""

    def __init__(self, address: int, kind: str, count: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "typestr": numpy.dtype(kind).str,
            "shape": (count,),
        }


def _memory(address: int, dtype: DType, count: int) -> Array:
    # NumPy has no bfloat16, and its bool must not be a byte other than 0 and 1.
    kind = {"bfloat16": "uint16", "bool": "uint8"}.get(dtype.name, dtype.name)
    return numpy.asarray(_Memory(address, kind, count))


def _read(memory: Array, dtype: DType) -> Array:
    return memory != 0 if dtype.kind == "b" else memory.copy()


# --- instructions at all positions ----------------------------------------------------------


class _Walk:
    """Instructions at all positions of some axes, the first `outer` of which are not reduced.

    Every value is an array with these axes, of length 1 where the value does not vary.
    """

    def __init__(
        self,
        program: Program,
        axes: list[Axis],
        outer: int,
        buffers: Sequence[int],
        integers: Sequence[int],
    ) -> None:
        self.program, self.operands = program, program.operands
        self.axes, self.outer = axes, outer
        self.shape = tuple(len(next(iter(axis.values()))) for axis in axes)
        self.scalars = [
            numpy.int64(bits).view("float64") if dtype.kind == "f" else numpy.int64(bits)
            for dtype, bits in zip(program.scalars, integers[program.first_scalar :], strict=True)
        ]
        addresses = iter(buffers)
        self.integers = integers
        self.extra = [integers[position] for position in program.extras]
        self.starts = [0 if o.role == INDEX else next(addresses) for o in self.operands]
        self.status = 0

    def run(self) -> int:
        """Runs all instructions and returns the status."""
        code = self.program.code
        values: list[Array] = []
        writes = []
        #: The values that reductions carry along.
        carried: dict[int, list[Array]] = {}
        #: Products that are only summed are not computed one by one.
        added = [s.arguments[0] for s in code if s.name == "reduce" and s.attribute == "sum"]
        used = [a for step in code for a in step.arguments]
        for position, step in enumerate(code):
            arguments = [values[i] for i in step.arguments]
            if step.name in WRITES:
                writes.append((step, arguments))
                values.append(None)
            elif isinstance(step.attribute, Carry):
                carried[position] = self._along(step.attribute, arguments[0])
                values.append(carried[position][0])
            elif step.name == "carried":
                number: Any = step.attribute
                values.append(carried[step.arguments[0]][number])
            elif step.name == "multiply" and step.dtype.kind == "f" and position in added:
                only = used.count(position) == 1
                values.append(tuple(arguments) if only else computed("multiply", *arguments))
            elif hasattr(self, "_" + step.name):
                values.append(getattr(self, "_" + step.name)(step, *arguments))
            else:
                values.append(applied(step, code, arguments))
        for step, arguments in writes:
            getattr(self, "_" + step.name)(step, *arguments)
        return self.status

    def _stride(self, number: int, dimension: int) -> int:
        """The stride of an operand. If its class determines it, kernels do not read the integer."""
        known = self.program.known_stride(number, dimension)
        return self.integers[self.program.stride_at(number, dimension)] if known is None else known

    def _running(self, number: int) -> Array:
        """The offset of an operand at each position; for an index operand, its value."""
        total = numpy.zeros([1] * len(self.axes), "int64")
        for along, axis in enumerate(self.axes):
            for dimension, positions in axis.items():
                stride = self._stride(number, dimension)
                many, apart = self.program.groups(number, dimension)
                many = many or self._stride(number, self.program.rank - 1)
                if stride or many > 1:
                    far = positions // many * stride + positions % many * apart
                    shape = [-1 if i == along else 1 for i in range(total.ndim)]
                    total = total + far.reshape(shape)
        return total

    def _around(self, number: int, indices: Array) -> tuple[Array, Array]:
        """The memory around these elements of an operand, and the index of each of them in it."""
        dtype = self.operands[number].dtype
        low, high = int(indices.min(initial=0)), int(indices.max(initial=-1))
        start = self.starts[number] + low * dtype.itemsize
        return _memory(start, dtype, high - low + 1), indices - low

    def _elements(self, step: Instruction, *index: Array) -> tuple[Array, Array]:
        """The memory that an instruction reads or writes, and the indices in it."""
        attribute: Any = step.attribute
        number, *extra = attribute if index else (attribute,)
        chosen = sum(i * self.extra[e] for i, e in zip(index, extra, strict=True))
        return self._around(number, chosen + self._running(number))

    def _load(self, step: Instruction, *index: Array) -> Array:
        number: Any = step.operand
        if self.operands[number].role == INDEX:
            return self._running(number)
        memory, indices = self._elements(step, *index)
        return _read(memory[indices], step.dtype)

    _gather = _load

    def _load_where(self, step: Instruction, *conditions: Array) -> Array:
        number: Any = step.operand
        inside = functools.reduce(numpy.logical_and, conditions)
        indices, inside = numpy.broadcast_arrays(self._running(number), inside)
        wanted = indices[inside]
        # The operand may begin outside of its memory: what lies there is not even looked at.
        first = wanted.min() if wanted.size else 0
        start = self.starts[number] + int(first) * step.dtype.itemsize
        memory = _memory(start, step.dtype, int((wanted - first).max(initial=-1)) + 1)
        read = _read(memory[wanted - first], step.dtype)
        found = numpy.zeros(indices.shape, read.dtype)
        found[inside] = read
        return found

    def _store(self, step: Instruction, value: Array) -> None:
        memory, indices = self._elements(step)
        memory[indices] = value

    def _scatter_add(self, step: Instruction, index: Array, value: Array) -> None:
        memory, indices = self._elements(step, index)
        numpy.add.at(memory, numpy.broadcast_to(indices, self.shape), value)

    def _filled(self, value: Any, kind: str) -> Array:
        return numpy.full([1] * len(self.axes), value, kind)

    def _scalar(self, step: Instruction) -> Array:
        number: Any = step.attribute
        value = self.scalars[number]
        return self._filled(value, "bool" if step.dtype.kind == "b" else step.dtype.name)

    def _constant(self, step: Instruction) -> Array:
        return self._filled(_number(step.attribute, step.dtype), step.dtype.name)

    def _check(self, step: Instruction, value: Array) -> None:
        self.status |= int(not value.all())

    def _flat(self, value: Array) -> Array:
        """A value with all reduced positions in one axis."""
        inner = self.shape[self.outer :]
        whole = numpy.broadcast_to(value, (*value.shape[: self.outer], *inner))
        return whole.reshape(*value.shape[: self.outer], math.prod(inner))

    def _reduce(self, step: Instruction, value: Array) -> Array:
        if isinstance(value, tuple):
            return self._sum_of_products(step, *value)
        found = REDUCTIONS[step.attribute](self._flat(value))
        return found.reshape(*found.shape, *[1] * (len(self.shape) - self.outer))

    def _along(self, carry: Carry, value: Array) -> list[Array]:
        """The values that a reduction has carried along all inner positions."""
        elements = self._flat(value)
        state = [
            numpy.full(elements.shape[:-1], _number(first, dtype), dtype.name)
            for dtype, first in carry.initial
        ]
        for place in range(elements.shape[-1]):
            given = [*state, elements[..., place], numpy.int64(place)]
            found = fragment(carry.update, given)
            if carry.changes is not None:
                (changed,) = fragment(carry.changes, given)
                found = [numpy.where(changed, a, b) for a, b in zip(found, state, strict=True)]
            state = [numpy.broadcast_to(x, elements.shape[:-1]) for x in found]
        ones = [1] * (len(self.shape) - self.outer)
        return [x.reshape(*x.shape, *ones) for x in state]

    def _sum_of_products(self, step: Instruction, a: Array, b: Array) -> Array:
        wide = numpy.float64 if step.dtype is dtypes.float32 else numpy.longdouble
        inner = self.shape[self.outer :]
        sides = [
            numpy.broadcast_to(x, (*x.shape[: self.outer], *inner)).astype(wide) for x in (a, b)
        ]
        axes = string.ascii_letters[: len(self.shape)]
        found = numpy.einsum(f"{axes},{axes}->{axes[: self.outer]}", *sides)
        return found.astype(step.dtype.name).reshape(*found.shape, *[1] * len(inner))

    def _scan(self, step: Instruction, value: Array) -> Array:
        scan = SCANS[str(step.attribute)].accumulate
        found = scan(self._flat(value), -1, dtype=value.dtype)
        found = found + found.dtype.type(0) if step.attribute == "sum" else found
        return found.reshape(*value.shape[: self.outer], *self.shape[self.outer :])


def fragment(part: Fragment, given: Sequence[Array]) -> list[Array]:
    """The results of a fragment for these arguments."""
    values = list(given)
    for step in part.code[part.given :]:
        arguments = [values[i] for i in step.arguments]
        if step.name == "constant":
            values.append(numpy.asarray(_number(step.attribute, step.dtype), step.dtype.name))
        else:
            values.append(applied(step, part.code, arguments))
    return [values[position] for position in part.results]


def _number(value: Any, dtype: DType) -> Any:
    """A constant, wrapped around if it is an integer."""
    return numpy.uint64(value % 2**64).astype(dtype.name) if dtype.kind in "iu" else value


def cast(value: Array, source: DType, target: DType) -> Array:
    """As NumPy's astype, but floating-point values that become integers wrap, and conversions to
    two-byte dtypes round only once.

    (Integers of more than 24 bits are converted to these by way of float64.)
    """
    if source is dtypes.bfloat16:
        value = (value.astype("uint32") << numpy.uint32(16)).view("float32")
    elif source is dtypes.float16:
        value = value.astype("float32")
    if target.compute is not target:
        value = value.astype("float64" if source.digits > 24 else "float32")
        return _bfloat16(value) if target is dtypes.bfloat16 else value.astype("float16")
    if source.kind != "f" or target.kind in "fb":
        return value.astype(target.name)
    if target is dtypes.uint64:
        high = (value - value.dtype.type(2.0**63)).astype("int64") ^ numpy.int64(-(2**63))
        return numpy.where(value >= 2.0**63, high, value.astype("int64")).astype("uint64")
    wide = "int32" if target.itemsize <= 2 else "int64" if target.kind == "u" else target.name
    return value.astype(wide).astype(target.name)


def _bfloat16(value: Array) -> Array:
    """The bits of the nearest bfloat16, ties to even."""
    value = value.astype("float64")
    unit = numpy.ldexp(1.0, numpy.maximum(numpy.frexp(value)[1], -125) - 8)
    near = (numpy.rint(value / unit) * unit).astype("float32")
    return (near.view("uint32") >> numpy.uint32(16)).astype("uint16")


def _wide(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function computed in higher precision than its arguments have, then rounded."""

    def rounded(*arguments: Array) -> Array:
        kind = arguments[0].dtype
        wide = numpy.float64 if kind == "float32" else numpy.longdouble
        return numpy.asarray(function(*(a.astype(wide) for a in arguments))).astype(kind)

    return rounded


def _power(a: Array, b: Array) -> Array:
    """The power of floating-point values, rounded once, or of integers, which wrap around."""
    if a.dtype.kind == "f":
        return _wide(numpy.power)(a, b)
    found, one = numpy.ones_like(a), b.dtype.type(1)
    for _ in range(8 * a.dtype.itemsize):
        found = numpy.where(b & one, found * a, found)
        a, b = a * a, b >> one
    return found


def _quotient(a: Array, b: Array) -> Array:
    """The quotient of integers, truncated towards 0."""
    quotient = a // b
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)).astype(a.dtype)


def _multiply_add(a: Array, b: Array, c: Array) -> Array:
    """Rounded once, by way of fractions, unlike `rounding.multiply_add`, so that each checks the
    other."""
    a, b, c = numpy.broadcast_arrays(a, b, c)
    # If the result is not finite, or is zero (with its sign), the rounded operations are right.
    found = (a.astype("float64") * b + c).astype("float32")
    finite = numpy.isfinite(a) & numpy.isfinite(b) & numpy.isfinite(c)
    for index in zip(*numpy.nonzero(finite), strict=True):
        total = Fraction(float(a[index])) * Fraction(float(b[index])) + Fraction(float(c[index]))
        if total:
            found[index] = _nearest_float32(total)
    return found


def _nearest_float32(value: Fraction) -> float:
    """The float32 nearest to a number that is not 0, ties to even."""
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    near = round(size / unit) * unit
    return math.copysign(math.inf if near >= 2**128 else float(near), value)


def _extreme(compare: Any) -> Callable[[Array, Array], Array]:
    """The first if it is NaN or beyond the second, else the second (also of two zeros)."""
    return lambda a, b: numpy.where(compare(a, b) | (a != a), a, b)


def _high(a: Array, b: Array) -> Array:
    return (a.astype("uint64") * b >> numpy.uint64(32)).astype("uint32")


def _total(function: Any) -> Callable[[Array], Array]:
    """The sum or product along the last axis; for floating-point values, rounded once."""
    wide = {"float32": numpy.float64, "float64": numpy.longdouble}
    first = 0 if function is numpy.sum else 1  # so that an empty sum is not -0
    return lambda x: function(x, -1, dtype=wide.get(x.dtype.name, x.dtype), initial=first).astype(
        x.dtype
    )


def _most(function: Any, sign: int) -> Callable[[Array], Array]:
    def found(x: Array) -> Array:
        if x.dtype == bool:
            return (numpy.any if sign < 0 else numpy.all)(x, -1)
        limits = numpy.iinfo(x.dtype) if x.dtype.kind in "iu" else None
        end = sign * math.inf if limits is None else limits.min if sign < 0 else limits.max
        return function(x, -1, initial=end)

    return found


REDUCTIONS: dict[Any, Callable[[Array], Array]] = {
    "sum": _total(numpy.sum),
    "prod": _total(numpy.prod),
    "max": _most(numpy.max, -1),
    "min": _most(numpy.min, 1),
    "any": lambda x: x.any(-1),
    "all": lambda x: x.all(-1),
}
#: Instructions without a NumPy function of the same meaning.
TABLE: dict[str, Callable[..., Array]] = {
    **{n: _wide(getattr(numpy, n)) for n in FUNCTIONS if n != "erf"},
    "power": _power,
    "erf": _wide(numpy.vectorize(math.erf, otypes=["float64"])),
    "divide": _quotient,
    "multiply_add": _multiply_add,
    "maximum": _extreme(numpy.greater),
    "minimum": _extreme(numpy.less),
    "multiply_high": _high,
}


def applied(step: Instruction, code: Sequence[Instruction], arguments: Sequence[Array]) -> Array:
    """The result of an instruction of some code that depends on its arguments only."""
    if step.name == "cast":
        return cast(arguments[0], code[step.arguments[0]].dtype, step.dtype)
    if step.name == "reinterpret":
        return arguments[0].view(step.dtype.name)
    return computed(step.name, *arguments)


def computed(name: str, *arguments: Array) -> Array:
    """The result of an instruction that depends on its arguments only."""
    known = spelled(name, arguments[0].dtype.kind).numpy
    function = getattr(numpy, known) if known else TABLE[name]
    found: Array = function(*arguments)
    return found
