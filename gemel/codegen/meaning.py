"""What a kernel says, computed with NumPy: the meaning of a `Program` and of a `Contraction`.

`run` takes what the compiled kernel takes and writes what that must write: the same bits, but for

- sums and products of floating values, which are rounded once here. A kernel adds in an order of
  its own (`loops`, `contract`), fixed by extents and target;
- the sign of a zero that is the maximum or minimum of several, and which NaN a NaN is;
- exp, log, sin and their like, which are rounded once here; `mathlib` has the kernels' errors;
- floating values cast to an integer that does not hold them.

All positions are computed at once and everything is read before anything is written, so an output
may be the same memory as an input. It is slow and large: for tests, and for reading.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from gemel import dtype as dtypes
from gemel.codegen.contract_pack import HEADER as PACK_HEADER
from gemel.codegen.contract_plan import SEVERAL, names_of
from gemel.codegen.program import (
    BROADCAST,
    CONTIGUOUS,
    FUNCTIONS,
    INDEX,
    OUTER,
    Contraction,
    Instruction,
    Operand,
    Program,
)
from gemel.dtype import DType

Array = Any
#: Where an operand is: an address (or an index operand's value), and a stride per loop.
Place = tuple[int, tuple[int, ...]]


def run(
    program: Program | Contraction,
    buffers: Sequence[int],
    integers: Sequence[int],
    begin: int,
    end: int,
) -> int:
    """The status, once the kernel's work on [begin, end) is done: 1 if a check failed, else 0.

    `buffers` are addresses, `integers` those of the kernel's run time, scalars' bits included.
    """
    with numpy.errstate(all="ignore"):
        if isinstance(program, Program):
            return _loops(program, buffers, integers, begin, end)
        for tile in range(begin, end):
            (_packed if program.variant.startswith("pack") else _product)(
                program, buffers, integers, tile
            )
        return 0


def _loops(
    program: Program, buffers: Sequence[int], integers: Sequence[int], begin: int, end: int
) -> int:
    rank, outer = program.outer + program.inner, program.outer
    shape = (max(end - begin, 0), *integers[1:rank])
    if 0 in shape[:outer]:
        return 0
    along = outer - 1 if program.lanes == OUTER else rank - 1
    addresses = iter(buffers)
    places = []
    for number, operand in enumerate(program.operands):
        given = integers[rank * (1 + number) : rank * (2 + number)]
        known = (_known(operand, s) if d == along else s for d, s in enumerate(given))
        strides = [s if d < outer or operand.varies else 0 for d, s in enumerate(known)]
        start = 0 if operand.role == INDEX else next(addresses)
        places.append((start + begin * strides[0] * _step(operand), tuple(strides)))
    extra = integers[rank * (1 + len(program.operands)) : program.integers]
    walk = _Walk(program, shape, outer, places, extra, integers[program.integers :])
    return walk.run(program.code)


def _known(operand: Operand, stride: int) -> int:
    """The stride along the vector: kernels know those of these classes, and do not look."""
    if operand.stride == CONTIGUOUS and operand.role != INDEX:
        return 1
    return 0 if operand.stride == BROADCAST else stride


def _step(operand: Operand) -> int:
    """Bytes, or a running index's ones, from one element to the next."""
    return 1 if operand.role == INDEX else operand.dtype.itemsize


# --- memory ---------------------------------------------------------------------------------


class _Memory:
    """Elements anywhere, as NumPy asks for them. A bool is a byte, a bfloat16 its bits."""

    def __init__(
        self, address: int, kind: str, shape: Sequence[int], strides: Sequence[int]
    ) -> None:
        size = numpy.dtype(kind).itemsize
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "typestr": numpy.dtype(kind).str,
            "shape": tuple(shape),
            "strides": tuple(stride * size for stride in strides),
        }


def _kept(dtype: DType) -> str:
    """What NumPy has the elements of a dtype in."""
    return "uint16" if dtype is dtypes.bfloat16 else dtype.name


def _memory(address: int, dtype: DType, shape: Sequence[int], strides: Sequence[int]) -> Array:
    kind = "uint8" if dtype.kind == "b" else _kept(dtype)
    return numpy.asarray(_Memory(address, kind, shape, strides))


def _read(memory: Array, dtype: DType) -> Array:
    return memory != 0 if dtype.kind == "b" else memory.copy()


# --- instructions at all positions ----------------------------------------------------------


class _Walk:
    """Instructions at all positions of some loops, of which the first `outer` are not reduced.

    Every value is an array with an axis per loop, which has length 1 where it does not vary.
    """

    def __init__(
        self,
        program: Program | Contraction,
        shape: tuple[int, ...],
        outer: int,
        places: list[Place],
        extra: Sequence[int],
        scalars: Sequence[int],
    ) -> None:
        self.operands = program.operands
        self.scalars = [
            numpy.int64(bits).view("float64") if dtype.kind == "f" else numpy.int64(bits)
            for dtype, bits in zip(program.scalars, scalars, strict=True)
        ]
        self.shape, self.outer, self.places, self.extra = shape, outer, places, extra
        self.status = 0

    def run(self, code: Sequence[Instruction], sums: Array = None) -> int:
        """Does all there is to do; `sums` are what a contraction's epilogue starts from."""
        values: list[Array] = []
        writes = []
        for step in code:
            arguments = [values[i] for i in step.arguments]
            if step.name in ("store", "scatter_add"):
                writes.append((step, arguments))
                values.append(None)
            elif step.name == "accumulator":
                values.append(sums)
            elif step.name == "cast":
                values.append(cast(arguments[0], code[step.arguments[0]].dtype, step.dtype))
            elif hasattr(self, "_" + step.name):
                values.append(getattr(self, "_" + step.name)(step, *arguments))
            else:
                values.append(TABLE[step.name](*arguments))
        for step, arguments in writes:
            getattr(self, "_" + step.name)(step, *arguments)
        return self.status

    def _view(self, number: int) -> Array:
        (address, strides), dtype = self.places[number], self.operands[number].dtype
        shape = [n if s else 1 for n, s in zip(self.shape, strides, strict=True)]
        return _memory(address, dtype, shape, strides)

    def _running(self, strides: Sequence[int]) -> Array:
        """Position x stride, summed over the loops."""
        total = self._filled(0, "int64")
        for axis, (n, stride) in enumerate(zip(self.shape, strides, strict=True)):
            shape = [1] * len(self.shape)
            shape[axis] = n
            total = total + (numpy.arange(n) * stride).reshape(shape) if stride else total
        return total

    def _filled(self, value: Any, kind: str) -> Array:
        return numpy.full([1] * len(self.shape), value, kind)

    def _load(self, step: Instruction) -> Array:
        number: Any = step.attribute
        operand = self.operands[number]
        if operand.role == INDEX:
            start, strides = self.places[number]
            return self._running(strides) + start
        return _read(self._view(number), operand.dtype)

    def _store(self, step: Instruction, value: Array) -> None:
        number: Any = step.attribute
        self._view(number)[...] = value

    def _scalar(self, step: Instruction) -> Array:
        number: Any = step.attribute
        value = self.scalars[number]
        return self._filled(value, "bool" if step.dtype.kind == "b" else step.dtype.name)

    def _constant(self, step: Instruction) -> Array:
        value: Any = step.attribute
        if step.dtype.kind in "iu":
            value = numpy.uint64(value % 2**64).astype(step.dtype.name)
        return self._filled(value, step.dtype.name)

    def _reinterpret(self, step: Instruction, value: Array) -> Array:
        return value.view(step.dtype.name)

    def _scattered(self, step: Instruction, index: Array) -> tuple[Array, Array]:
        """The memory around the chosen elements, and where each of them is in it."""
        chosen: Any = step.attribute
        number, extra = chosen
        (address, strides), dtype = self.places[number], self.operands[number].dtype
        places = index * self.extra[extra] + self._running(strides)
        low, high = int(places.min(initial=0)), int(places.max(initial=-1))
        return _memory(address + low * dtype.itemsize, dtype, [high - low + 1], [1]), places - low

    def _gather(self, step: Instruction, index: Array) -> Array:
        memory, places = self._scattered(step, index)
        return _read(memory[places], step.dtype)

    def _scatter_add(self, step: Instruction, index: Array, value: Array) -> None:
        memory, places = self._scattered(step, index)
        numpy.add.at(memory, numpy.broadcast_to(places, self.shape), value)

    def _check(self, step: Instruction, value: Array) -> None:
        self.status |= int(not value.all())

    def _flat(self, value: Array) -> Array:
        """The reduced positions in a row."""
        inner = self.shape[self.outer :]
        whole = numpy.broadcast_to(value, (*value.shape[: self.outer], *inner))
        return whole.reshape(*value.shape[: self.outer], math.prod(inner))

    def _reduce(self, step: Instruction, value: Array) -> Array:
        found = REDUCTIONS[step.attribute](self._flat(value))
        return found.reshape(*found.shape, *[1] * (len(self.shape) - self.outer))

    def _scan(self, step: Instruction, value: Array) -> Array:
        scan = numpy.cumsum if step.attribute == "sum" else numpy.cumprod
        found = scan(self._flat(value), -1, dtype=value.dtype)
        found = found + found.dtype.type(0) if step.attribute == "sum" else found
        return found.reshape(*value.shape[: self.outer], *self.shape[self.outer :])


def cast(value: Array, source: DType, target: DType) -> Array:
    """As NumPy's astype, but integers from floating values wrap, and two bytes are rounded to once.

    (Integers of more than 24 digits become float64 on the way there.)
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
    """A function computed with more digits than its arguments have, and rounded."""

    def rounded(*arguments: Array) -> Array:
        kind = arguments[0].dtype
        wide = numpy.float64 if kind == "float32" else numpy.longdouble
        return numpy.asarray(function(*(a.astype(wide) for a in arguments))).astype(kind)

    return rounded


def _arithmetic(floating: Any, boolean: Any) -> Callable[[Array, Array], Array]:
    return lambda a, b: (boolean if a.dtype == bool else floating)(a, b)


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return a / b
    quotient = a // b
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)).astype(a.dtype)


def _multiply_add(a: Array, b: Array, c: Array) -> Array:
    """Rounded once: what the float64 sum has lost sets its last bit (rounding to odd)."""
    product, c = a.astype("float64") * b.astype("float64"), c.astype("float64")
    total = product + c
    part = total - product
    lost = (product - (total - part)) + (c - part)
    odd = (total.view("int64") - ((lost < 0) != (total < 0))) | 1
    return numpy.where((lost < 0) | (lost > 0), odd.view("float64"), total).astype("float32")


def _extreme(compare: Any, boolean: Any) -> Callable[[Array, Array], Array]:
    """The first where it is NaN or beyond the second; so of two zeros the second."""
    return lambda a, b: (
        boolean(a, b) if a.dtype == bool else numpy.where(compare(a, b) | (a != a), a, b)
    )


def _unless_whole(function: Any) -> Callable[[Array], Array]:
    return lambda a: function(a) if a.dtype.kind == "f" else a


def _high(a: Array, b: Array) -> Array:
    return (a.astype("uint64") * b >> numpy.uint64(32)).astype("uint32")


def _total(function: Any) -> Callable[[Array], Array]:
    """A sum or product of all, of floating values rounded once."""
    wide = {"float32": numpy.float64, "float64": numpy.longdouble}
    first = 0 if function is numpy.sum else 1  # so that no sum is -0
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


def _place(function: Any) -> Callable[[Array], Array]:
    return lambda x: function(x, -1) if x.shape[-1] else numpy.zeros(x.shape[:-1], "int64")


REDUCTIONS: dict[Any, Callable[[Array], Array]] = {
    "sum": _total(numpy.sum),
    "prod": _total(numpy.prod),
    "max": _most(numpy.max, -1),
    "min": _most(numpy.min, 1),
    "any": lambda x: x.any(-1),
    "all": lambda x: x.all(-1),
    "argmax": _place(numpy.argmax),
    "argmin": _place(numpy.argmin),
}
#: NumPy's spelling of the instructions that are only spelled otherwise.
SPELLED = {
    **{name: name for name in ("equal", "not_equal", "less", "less_equal", "greater")},
    **{name: name for name in ("greater_equal", "multiply", "sqrt", "floor_divide", "remainder")},
    **{"shift_left": "left_shift", "shift_right": "right_shift", "absolute": "absolute"},
    **{"bit_and": "bitwise_and", "bit_or": "bitwise_or", "bit_xor": "bitwise_xor"},
    **{"bit_not": "invert", "negative": "negative", "select": "where"},
}
TABLE: dict[str, Callable[..., Array]] = {
    **{name: getattr(numpy, spelled) for name, spelled in SPELLED.items()},
    **{n: _wide(getattr(numpy, n)) for n in (*FUNCTIONS, "power") if n != "erf"},
    "erf": _wide(numpy.vectorize(math.erf, otypes=["float64"])),
    **{n: _unless_whole(getattr(numpy, n)) for n in ("floor", "ceil", "rint", "trunc")},
    "add": _arithmetic(numpy.add, numpy.logical_or),
    "subtract": _arithmetic(numpy.subtract, numpy.logical_xor),
    "divide": _divide,
    "multiply_add": _multiply_add,
    "maximum": _extreme(numpy.greater, numpy.logical_or),
    "minimum": _extreme(numpy.less, numpy.logical_and),
    "isnan": lambda a: a != a,
    "multiply_high": _high,
}

# --- products -------------------------------------------------------------------------------


def _product(
    contraction: Contraction, buffers: Sequence[int], integers: Sequence[int], tile: int
) -> None:
    """One tile of a product. A contraction of no variant reads both operands where they lie."""
    names = names_of(contraction.variant)
    head = dict(zip(names, integers, strict=False))
    words = (contraction.variant or "plain 1x1").split()[1:]
    height, width = map(int, words[0].split("x")[:2])
    forms = {"a": contraction.a_last, "b": contraction.b_last}
    forms |= dict(word.split(":") for word in words[1:] if ":" in word)
    batch, part = divmod(tile, head["m_tiles"] * head["n_tiles"])
    right, down = divmod(part, head["m_tiles"])
    axes = divmod(batch, head["batch"])
    first = down * head["m_block"], right * head["n_block"]
    m, n = min(head["m_block"], head["m"] - first[0]), min(head["n_block"], head["n"] - first[1])
    sides = []
    for name, buffer, count, line in (("a", 0, m, height), ("b", 1, n, width)):
        origin = axes[0] * head[name + "_outer"] + axes[1] * head[name + "_inner"]
        lines = numpy.arange(count)[:, None] + first[buffer]
        along = numpy.arange(head["k"])[None, :]
        if name == "b" and SEVERAL[0] in head:
            places = origin + _along(head, "n", lines) + _along(head, "k", along)
        else:
            places = origin + _places(forms[name], head[name + "_stride"], line, lines, along)
        size = int(places.max(initial=-1)) + 1
        sides.append(_memory(buffers[buffer], contraction.dtype, [size], [1])[places])
    wide = numpy.float64 if contraction.dtype is dtypes.float32 else numpy.longdouble
    sums = (sides[0].astype(wide) @ sides[1].astype(wide).T).astype(contraction.dtype.name)
    addresses, places = iter(buffers[2:]), []
    for number, operand in enumerate(contraction.operands):
        given = integers[len(names) + 4 * number : len(names) + 4 * number + 4]
        strides = given[0], _known(operand, given[1])
        offset = sum(i * s for i, s in zip((*first, *axes), (*strides, *given[2:]), strict=True))
        start = 0 if operand.role == INDEX else next(addresses)
        places.append((start + offset * _step(operand), strides))
    scalars = integers[len(names) + 4 * len(contraction.operands) :]
    _Walk(contraction, (m, n), 2, places, (), scalars).run(contraction.code, sums)


def _along(head: dict[str, int], axis: str, which: Array) -> Array:
    """How far from the first the elements lie that several axes count together."""
    rest, inner = numpy.divmod(which, head[axis + "2"])
    outer, middle = numpy.divmod(rest, head[axis + "1"])
    parts = zip((outer, middle, inner), range(3), strict=True)
    return numpy.sum([part * head[f"{axis}_stride{i}"] for part, i in parts], axis=0)


def _places(form: str, stride: int, width: int, lines: Array, along: Array) -> Array:
    """Where an operand's lines (rows of a, columns of b) have their elements along k."""
    if form == "packed":
        return lines // width * stride + along * width + lines % width
    return lines * stride + along if form == "k" else along * stride + lines


def _packed(
    contraction: Contraction, buffers: Sequence[int], integers: Sequence[int], tile: int
) -> None:
    """One tile of panels; the lines past the end of an operand are not told."""
    head = dict(zip(PACK_HEADER, integers, strict=True))
    _, word, way = contraction.variant.split()
    width, k = int(word), head["k"]
    batch, part = divmod(tile, head["tiles"])
    axes = divmod(batch, head["batch"])
    span = head["panels"] * width
    lines = numpy.arange(part * span, min(part * span + span, head["lines"]))[:, None]
    along = numpy.arange(k)[None, :]
    places = _places("k" if way == "turn" else "n", head["stride"], width, lines, along)
    places += axes[0] * head["outer"] + axes[1] * head["inner"]
    goals = _places("packed", width * k, width, lines, along)
    goals += axes[0] * head["packed_outer"] + axes[1] * head["packed_inner"]
    source, goal = (
        _memory(address, contraction.dtype, [int(where.max(initial=-1)) + 1], [1])
        for address, where in zip(buffers, (places, goals), strict=True)
    )
    goal[goals] = source[places]
