"""Programs: what a kernel computes, and the schedule by which it does.

A `Program` is a nest of loops around one list of scalar instructions. Its `outer` dimensions are
independent; its `inner` dimensions are reduced over. A matrix product is one like any other: a sum
of products over k, and what follows on it. The schedule says how this becomes machine code, and
changes nothing but the order of sums. The text of a program is its key: it names no extent, no
stride but the class of the last one, and no scalar value, so a new shape needs no new kernel.

Run-time integers are laid out as::

    outer extents, inner extents,
    for each operand: one stride (in elements) per outer dimension, then per inner dimension,
    `extra` more integers (strides of gathered axes, sizes to check indices against, or `TILES`),
    for each scalar: 8 bytes, an int64 or the bits of a float64.

Index operands have strides (their value is the sum of position x stride) and no buffer.

Schedules are in docs/internals/kernels.md: OUTER and INNER are loops as they stand, with vectors
along the last outer or inner dimension, and a call does a range of the first outer one; short rows
of INNER are turned (`turned`), few columns of OUTER woven (`woven`). A word behind these is a
recipe from elsewhere (`schedules`).

All others do a range of tiles. Their outer dimensions are two of a batch, rows, and one or
three that columns run along; the integers called `TILES` come last of the `extra` ones.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

from gemel.dtype import DType

INPUT, OUTPUT, INDEX = "input", "output", "index"
#: Schedules in loops: the vector runs along the last outer dimension, or along the last inner one.
OUTER, INNER = "outer", "inner"
#: Rows and columns of one tile, how many tiles there are of each, and how much of k is one block.
TILES = ("m_block", "n_block", "m_tiles", "n_tiles", "k_block")
#: What says where a tile is: its block of rows, that of columns, and the place in the batch. What
#: comes first changes first from one tile to the next; and so it is where a schedule says
#: ``by-rows``.
TILE_ORDER = ("rows", "columns", "inner", "outer")
TILE_ORDER_BY_ROWS = ("columns", "inner", "outer", "rows")
#: Instructions that write.
WRITES = frozenset(("store", "scatter_add"))
#: Where the rows are among the dimensions of what is done in tiles; columns follow.
ROWS = 2
#: Stride classes along the vector dimension; what lies across has stride 1 along the one before,
#: of pairs only the first elements are read, and what is reversed has stride -1.
BROADCAST, CONTIGUOUS, STRIDED, ACROSS, PAIRED, REVERSED = 0, 1, 2, 3, 4, 5
#: The width of panels that is known when a kernel is called.
ANY = 0
#: Of `count` outputs that take turns in memory, the class of the one `number`th in turn is
#: INTERLEAVED * count + number: together they fill whole vectors.
INTERLEAVED = 16


class Operand(NamedTuple):
    """One array the program reads or writes, or one running index.

    `stride` is its class along the vector dimension; `varies` says whether it changes along any
    inner dimension at all (a reduced output does not). One in panels has its lines, those along
    dimension `panel[0]`, in groups of `panel[1]`: within one they lie side by side, and the stride
    is that from group to group. `ANY` of them are as many as the last dimension's stride says. Of
    each line `together` elements along the last dimension lie side by side, whose stride is that
    to the next so many.
    `beside` is the class along the last outer dimension, where the vector runs along the only inner
    one: lanes may then lie along rows instead (`turned`).
    """

    dtype: DType
    role: str
    stride: int
    varies: bool = False
    panel: tuple[int, int] | None = None
    together: int = 1
    beside: int = BROADCAST

    def __repr__(self) -> str:
        dimension, width = self.panel or (0, 0)
        panel = f" in panels {width or 'of any width'} along {dimension}" if self.panel else ""
        panel += f" by {self.together}" if self.together > 1 else ""
        panel += f" beside {self.beside}" if self.beside else ""
        return f"{self.role}:{self.dtype}:{self.stride}{'v' if self.varies else ''}{panel}"


#: Functions of one number that are instructions of a program, each written out in `mathlib`.
FUNCTIONS = ("cos", "erf", "exp", "expm1", "log", "log1p", "sin", "tanh")


class Instruction(NamedTuple):
    """One scalar step: `name` applied to earlier instructions, giving a value of `dtype`.

    `arguments` are positions of earlier instructions in the program's code. `attribute` is what the
    instruction needs besides: the operand of a load, the number of a scalar, a constant's value.

    ======================== ============================= =========================================
    name                     arguments                     attribute
    ======================== ============================= =========================================
    load                                                   operand (of an index operand: the index)
    scalar                                                 number of the run-time scalar
    constant                                               its value (int, float or bool)
    cast                     value
    add subtract multiply    two of one dtype
    divide                   two floating, or integers (truncating, caller guards zero)
    negative absolute sqrt   value
    floor ceil rint trunc    floating
    floor_divide remainder   two of one dtype, Python's signs (x // 0 and x % 0 of integers are 0)
    multiply_add             three float32: a * b + c, rounded once
    power                    two floating
    maximum minimum          two; NaN wins
    those of FUNCTIONS       floating (mathlib turns them into arithmetic)
    equal not_equal less     two of one dtype -> bool
    less_equal greater
    greater_equal isnan
    bit_and bit_or bit_xor   two integers or bools
    bit_not                  integer or bool
    shift_left shift_right   integers (logical for unsigned)
    multiply_high            two uint32 -> high half
    select                   bool, value, value
    gather                   index (int64)                 (operand, extra): element at the loop
                                                           position + index * integer `extra`
    check                    bool                          status returned when any lane is false
    reduce                   value                         sum prod max min any all argmax argmin
                                                           (arg*: int64, flat over the inner dims,
                                                           first one wins, NaN is the extreme)
    scan                     value                         sum or prod: of the values at this and
                                                           all earlier inner positions
    store                    value                         operand
    scatter_add              index (int64), value          (operand, extra): adds into the element;
                                                           such programs run one lane at a time
    ======================== ============================= =========================================

    A value computed from a `reduce` (and nothing that varies) is itself per outer position, and may
    be used by later varying instructions: softmax is one program with two reductions.
    """

    name: str
    dtype: DType
    arguments: tuple[int, ...] = ()
    attribute: object = None

    @property
    def operand(self) -> int | None:
        """The operand it reads or writes."""
        attribute: Any = self.attribute
        if self.name in ("load", "store"):
            number: int = attribute
            return number
        if self.name in ("gather", "scatter_add"):
            number, _ = attribute
            return number
        return None

    def __repr__(self) -> str:
        inside = [f"%{i}" for i in self.arguments]
        if self.attribute is not None:
            inside.append(repr(self.attribute))
        return f"{self.name}.{self.dtype}({', '.join(inside)})"


class _Program(NamedTuple):
    outer: int
    inner: int
    schedule: str
    operands: tuple[Operand, ...]
    scalars: tuple[DType, ...]  # each float64 or int64 (or bool_, passed as int64 0/1)
    extra: int
    code: tuple[Instruction, ...]


class Program(_Program):
    """A loop nest: `outer` >= 1 independent dimensions, `inner` >= 0 reduced ones."""

    @cached_property
    def text(self) -> str:
        """The whole program as text: readable, and the key under which its kernel is kept."""
        head = f"loops outer={self.outer} inner={self.inner} extra={self.extra}: {self.schedule}"
        operands = "\n".join(f"  operand {i} {o!r}" for i, o in enumerate(self.operands))
        scalars = ", ".join(str(s) for s in self.scalars)
        code = "\n".join(f"  %{i} = {step!r}" for i, step in enumerate(self.code))
        return f"{head}\n{operands}\n  scalars ({scalars})\n{code}\n"

    @property
    def integers(self) -> int:
        """How many run-time integers precede the scalars."""
        return self.extras.stop

    @property
    def extras(self) -> range:
        """Where the `extra` ones are among the run-time integers."""
        first = self.stride_at(len(self.operands), 0)
        return range(first, first + self.extra)

    def stride_at(self, number: int, dimension: int) -> int:
        """Where an operand's stride along a dimension is among the run-time integers."""
        return self.rank * (1 + number) + dimension

    @property
    def rank(self) -> int:
        """How many loops there are."""
        return self.outer + self.inner

    @property
    def vector(self) -> int:
        """The dimension along which the vector runs when results are written."""
        return self.rank - 1 if self.lanes == INNER else self.outer - 1

    def known_stride(self, number: int, dimension: int) -> int | None:
        """An operand's stride along a dimension where its class says it, else None: kernels do not
        look."""
        operand = self.operands[number]
        if dimension >= self.outer and not operand.varies:
            return 0
        if dimension == self.vector and operand.panel is None:
            if operand.stride == CONTIGUOUS and operand.role != INDEX:
                return 1
            return 0 if operand.stride == BROADCAST else None
        return None

    def groups(self, number: int, dimension: int) -> tuple[int, int]:
        """How many positions along a dimension are a group, from one to the next of which is an
        operand's stride, and how far apart these are: position // many * stride + position % many *
        apart. `ANY`: it is the stride along the last dimension."""
        operand = self.operands[number]
        if operand.panel is not None and operand.panel[0] == dimension:
            return operand.panel[1], operand.together
        return operand.together if dimension == self.rank - 1 else 1, 1

    @property
    def lanes(self) -> str:
        """Along which dimensions' last one that is: `OUTER` or `INNER`."""
        return INNER if self.schedule.startswith(INNER) else OUTER

    @property
    def in_tiles(self) -> bool:
        """Whether a call does a range of tiles, and not one of the first outer dimension."""
        return not self.schedule.startswith((OUTER, INNER))

    @property
    def tile_order(self) -> tuple[str, ...]:
        """What changes from tile to tile, the first before the others."""
        return TILE_ORDER_BY_ROWS if "by-rows" in self.schedule.split() else TILE_ORDER
