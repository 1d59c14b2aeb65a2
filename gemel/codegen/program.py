"""Programs: what a kernel computes, and the schedule by which it does.

A `Program` is a nest of loops around one list of scalar instructions. Its `outer` dimensions are
independent; its `inner` dimensions are reduced over. A matrix product is one like any other: a sum
of products over k, and what follows on it. The schedule says how this becomes machine code, and
changes nothing but the order of sums. The text of a program is its key: it names no extent, no
stride but the classes of some, and no scalar value, so a new shape needs no new kernel.

Run-time integers are laid out as::

    outer extents, inner extents,
    for each operand: one stride (in elements) per outer dimension, then per inner dimension,
    `extra` more integers (strides of gathered axes, sizes to check indices against, or `TILES`),
    for each scalar: 8 bytes, an int64 or the bits of a float64.

Index operands have strides (their value is the sum of position x stride) and no buffer.

Schedules are in docs/internals/kernels.md: OUTER and INNER are loops as they stand, with vectors
along the last outer or inner dimension, and a call does a range of the first outer one; short rows
of INNER are transposed (`short_rows`), few columns of OUTER woven (`woven`). A word behind these is
a recipe from elsewhere (`schedules`).

All others do a range of tiles. Their outer dimensions are two of a batch, rows, and one or
three that columns run along; the integers called `TILES` come last of the `extra` ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

from gemel.codegen.target import INSTRUCTIONS
from gemel.dtype import DType
from gemel.errors import CompileError, UnknownNameError, unknown_name

INPUT, OUTPUT, INDEX = "input", "output", "index"
#: Schedules in loops: the vector runs along the last outer dimension, or along the last inner one.
OUTER, INNER = "outer", "inner"
#: What schedules begin with: these do loops, the others tiles.
KINDS = (OUTER, INNER, "gemm", "dot", "pack")
#: Rows and columns of one tile, how many tiles there are of each, and how much of k is one block.
TILES = ("m_block", "n_block", "m_tiles", "n_tiles", "k_block")
#: What says where a tile is: its block of rows, that of columns, and the place in the batch. What
#: comes first changes first from one tile to the next; and so it is where a schedule says
#: ``by-rows``.
TILE_ORDER = ("rows", "columns", "inner", "outer")
TILE_ORDER_BY_ROWS = ("columns", "inner", "outer", "rows")
#: Instructions that write.
WRITES = frozenset(("store", "scatter_add"))
#: Those for whose sake all others are computed.
ROOTS = WRITES | {"check"}
#: Where the rows are among the dimensions of what is done in tiles; columns follow.
ROWS = 2
#: Stride classes along the vector dimension; what lies across has stride 1 along the one before, of
#: pairs only the first elements are read, what is reversed has stride -1, and interleaved outputs
#: fill whole vectors together.
BROADCAST, CONTIGUOUS, STRIDED, ACROSS, PAIRED, REVERSED, INTERLEAVED = 0, 1, 2, 3, 4, 5, 6
#: The width of panels that is known when a kernel is called.
ANY = 0
#: What the schedule of a sum in tiles may say besides; see docs/internals/kernels.md.
FLAGS = ("split", "direct", "across", "vnni", "bf16", "by_rows", "far", "packs_b", "narrow")
#: How the factors of such a sum lie; of windows it is the way they are read (`contract_task.Form`).
A_FORMS, B_FORMS = ("k", "m", "packed"), ("n", "packed", "turned", "gathered", "rows")


class Schedule(NamedTuple):
    """How a program is done: what `Program.schedule` says, in parts.

    `kind` is `OUTER` or `INNER`, with the name of a `recipe` or without; ``gemm`` or ``dot``, whose
    micro-tile is `rows` x `columns`, by `unroll` vectors along k; or ``pack``, into panels of
    `width` lines, which it may transpose (`turn`).

    `a_form` and `b_form` say of a gemm whether the operand is read packed or where it lies:
    along ``"k"``, ``"m"``, ``"n"``, or a form of windows. `split`: k is cut, and sums go on from
    block to block. `direct`: windows are read where they lie, and no panels made. `across`:
    micro-tiles follow each other along the rows, not down the columns. `vnni`: by the instruction
    of this name. `by_rows`: tiles of the same rows follow each other, in all of a batch; else those
    of the same columns, in one product after the other. `far`: b is asked for early, since it comes
    from beyond the second cache and few rows use each part of it. `packs_b`: the first rows of a
    tile leave what they read of b in panels for the others. `narrow`: the last columns may be one
    vector.
    """

    kind: str
    recipe: str = ""
    rows: int = 0
    columns: int = 0
    unroll: int = 1
    width: int = ANY
    turn: bool = False
    a_form: str = ""
    b_form: str = ""
    split: bool = False
    direct: bool = False
    across: bool = False
    vnni: bool = False
    bf16: bool = False
    by_rows: bool = False
    far: bool = False
    packs_b: bool = False
    narrow: bool = False

    @property
    def instruction(self) -> str:
        """Which of `target.INSTRUCTIONS` it multiplies by; empty for none of them."""
        return next((name for name in INSTRUCTIONS if getattr(self, name)), "")

    @property
    def text(self) -> str:
        """All of it in words, which `parse` takes."""
        flags = [word.replace("_", "-") for word in FLAGS if getattr(self, word)]
        if self.kind == "gemm":
            forms = f"a:{self.a_form}", f"b:{self.b_form}"
            words = [f"{self.rows}x{self.columns}", *forms, *flags]
        elif self.kind == "dot":
            words = [f"{self.rows}x{self.columns}x{self.unroll}", *flags]
        elif self.kind == "pack":
            words = [str(self.width or "any"), "turn" if self.turn else "copy"]
        else:
            words = [self.recipe] if self.recipe else []
        return " ".join((self.kind, *words))

    @staticmethod
    def parse(text: str) -> Schedule:
        """Raises `UnknownNameError` for a word that no schedule has, `CompileError` for one that is
        missing."""
        kind, *words = text.split()
        _known("schedule", kind, KINDS)
        try:
            found = _read(kind, words)
        except UnknownNameError:
            raise
        except ValueError:  # too few words, or no numbers
            found = None
        if found is None or found.text != text:
            raise CompileError(f"unknown schedule {text!r}")
        return found


def _read(kind: str, words: list[str]) -> Schedule:
    if kind in (OUTER, INNER):
        return Schedule(kind, words[0] if words else "")
    if kind == "pack":
        width, way = words
        _known("way to pack", way, ("turn", "copy"))
        return Schedule(kind, width=ANY if width == "any" else int(width), turn=way == "turn")
    shape, *words = words
    rows, columns, *unroll = map(int, shape.split("x"))
    made = Schedule(kind, "", rows, columns, unroll[0] if unroll else 1)
    if kind == "gemm":
        a, b, *words = words
        _known("form of a", a[2:], A_FORMS)
        _known("form of b", b[2:].split("-")[0], B_FORMS)
        made = made._replace(a_form=a[2:], b_form=b[2:])
    known = {word.replace("_", "-"): word for word in FLAGS}
    for word in words:
        _known("word of a schedule", word, known)
    flags: dict[str, Any] = {known[word]: True for word in words}
    return made._replace(**flags)


def _known(what: str, word: str, words: Iterable[str]) -> None:
    if word not in words:
        raise unknown_name(what, word, words)


class Operand(NamedTuple):
    """One array the program reads or writes, or one running index.

    `stride_class` is that along the vector dimension; `varies` says whether it changes along any
    inner dimension at all (a reduced output does not). Of an output that is `INTERLEAVED` with
    others `interleaved` says the how manieth it is of how many (``turn``). One in panels has its
    lines, those along dimension `panel[0]`, in groups of `panel[1]`: within one they lie side by
    side, and the stride is that from group to group. `ANY` of them are as many as the last
    dimension's stride says. Of each line those along dimension `grouped[0]` lie side by side in
    groups of `grouped[1]`, and the stride is that from group to group.
    `beside` is the class along the last outer dimension, where the vector runs along the only inner
    one: lanes may then lie along rows instead (`short_rows`).
    """

    dtype: DType
    role: str
    stride_class: int
    varies: bool = False
    panel: tuple[int, int] | None = None
    grouped: tuple[int, int] | None = None
    beside: int = BROADCAST
    interleaved: tuple[int, int] | None = None

    @property
    def together(self) -> int:
        """How many elements of a line are a group."""
        return self.grouped[1] if self.grouped else 1

    def __repr__(self) -> str:
        dimension, width = self.panel or (0, 0)
        panel = f" in panels {width or 'of any width'} along {dimension}" if self.panel else ""
        along, together = self.grouped or (0, 1)
        panel += f" by {together} along {along}" if self.grouped else ""
        panel += f" beside {self.beside}" if self.beside else ""
        if self.interleaved:
            panel += " turn {} of {}".format(*self.interleaved)
        return f"{self.role}:{self.dtype}:{self.stride_class}{'v' if self.varies else ''}{panel}"


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
    reinterpret              value                         (the same bits as another dtype, as wide)
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

    Where the table of `spelling` or `mathlib` writes instructions out, it uses these besides, which
    no program has: `argument` (a value the function is given), `quotient` (of integers towards 0,
    never by 0), `shift_left_within` and `shift_right_within` (by less than the bits there are),
    `scaled` (by a power of two) and `seldom` (what another function gives where a condition holds).

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

    @cached_property
    def way(self) -> Schedule:
        """Its schedule in parts. Raises what `Schedule.parse` raises."""
        return Schedule.parse(self.schedule)

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
            if operand.stride_class == CONTIGUOUS and operand.role != INDEX:
                return 1
            return 0 if operand.stride_class == BROADCAST else None
        return None

    def groups(self, number: int, dimension: int) -> tuple[int, int]:
        """How many positions along a dimension are a group, from one to the next of which is an
        operand's stride, and how far apart these are: position // many * stride + position % many *
        apart. `ANY`: it is the stride along the last dimension."""
        operand = self.operands[number]
        if operand.panel is not None and operand.panel[0] == dimension:
            return operand.panel[1], operand.together
        along, together = operand.grouped or (dimension, 1)
        return together if dimension == along else 1, 1

    @property
    def lanes(self) -> str:
        """Along which dimensions' last one that is: `OUTER` or `INNER`."""
        return INNER if self.way.kind == INNER else OUTER

    @property
    def in_tiles(self) -> bool:
        """Whether a call does a range of tiles, and not one of the first outer dimension."""
        return self.way.kind not in (OUTER, INNER)

    @property
    def tile_order(self) -> tuple[str, ...]:
        """What changes from tile to tile, the first before the others."""
        return TILE_ORDER_BY_ROWS if self.way.by_rows else TILE_ORDER
