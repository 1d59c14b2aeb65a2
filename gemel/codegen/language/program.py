"""Programs: what a kernel computes, and the schedule that says how.

A `Program` is a nest of loops around one list of scalar instructions. Its `outer` dimensions are
independent; its `inner` dimensions are reduced over. A matrix product is a program like any other:
a sum of products over k, and what follows the sum. The schedule says how the program becomes
machine code, and changes only the order of sums. The text of a program is its cache key. It
contains no extents, no scalar values and no strides (only the classes of some), so a new shape
needs no new kernel.

Run-time integers are laid out as::

    outer extents, inner extents,
    for each operand: one stride (in elements) per outer dimension, then per inner dimension,
    `extra` more integers (strides of gathered axes, sizes to check indices against, or `TILES`),
    for each scalar: 8 bytes, an int64 or the bits of a float64.

Index operands have strides (their value is the sum of position x stride) and no buffer.

Schedules are described in docs/internals/kernels.md. OUTER and INNER are plain loops, with vectors
along the last outer or inner dimension; a call computes a range of the first outer dimension. Short
rows of INNER are transposed (`short_rows`); few columns of OUTER are woven (`woven`). A number says
how many rows are computed at a time (`sliding`), two the size of windows that are unrolled, and a
third by how many lines these move on, if that is more than one (`rolling`). A last word names a
recipe that is registered elsewhere (`schedules`).

All other schedules compute a range of tiles. Their outer dimensions are two of a batch, the rows,
and one or three that columns run along. The integers called `TILES` are the last of `extra`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from gemel.codegen.target import EXTENSIONS
from gemel.dtype import DType
from gemel.errors import CompileError, UnknownNameError, unknown_name

INPUT, OUTPUT, INDEX = "input", "output", "index"
#: Schedules of loops: vectors run along the last outer dimension, or along the last inner one.
OUTER, INNER = "outer", "inner"
#: The first words of schedules: the first two are for loops, the others for tiles.
KINDS = (OUTER, INNER, "gemm", "amx", "dot", "pack", "block")
#: The rows and columns of a tile, the numbers of tiles along both, and the length of a block of k.
TILES = ("m_block", "n_block", "m_tiles", "n_tiles", "k_block")
#: The coordinates of a tile: its block of rows, its block of columns, and its place in the batch.
#: The first changes fastest from tile to tile. The second order is for schedules with ``by-rows``.
TILE_ORDER = ("rows", "columns", "inner", "outer")
TILE_ORDER_BY_ROWS = ("columns", "inner", "outer", "rows")
#: Instructions whose arguments decide what they read.
CHOOSING = frozenset(("gather", "load_where"))
#: Instructions that write.
WRITES = frozenset(("store", "scatter_add"))
#: The instructions that all others are computed for.
ROOTS = WRITES | {"check"}
#: The dimension of the rows in programs for tiles; columns follow.
ROWS = 2
#: Stride classes along the vector dimension. ACROSS: stride 1 along the dimension before. PAIRED:
#: stride 2. REVERSED: stride -1. INTERLEAVED: inputs or outputs that together fill whole vectors.
BROADCAST, CONTIGUOUS, STRIDED, ACROSS, PAIRED, REVERSED, INTERLEAVED = 0, 1, 2, 3, 4, 5, 6
#: As the width of panels: it is known only when the kernel is called.
ANY = 0
#: Further words of a schedule for a sum in tiles; see docs/internals/kernels.md.
FLAGS = (
    "split",
    "direct",
    "across",
    "vnni",
    "bf16",
    "by_rows",
    "far",
    "packs_b",
    "narrow",
    "tensor",
    "groups",
)
#: How the factors of such a sum lie; for windows, how they are read (`contract.task.WindowForm`).
A_FORMS, B_FORMS = ("k", "m", "packed"), ("n", "k", "packed", "turned", "gathered", "rows")


class Schedule(NamedTuple):
    """How a program is computed: `Program.schedule` in parts.

    `kind` is `OUTER` or `INNER`, with or without the name of a `recipe`, and for OUTER the number
    of `rows` that are computed at a time, if windows slide along them, or the `rows` and `columns`
    of windows that are unrolled, and by how many lines they move on (`unroll`); ``gemm``, ``amx``
    (in tile registers) or ``dot``, with micro-tiles of `rows` x `columns` and, for dot, `unroll`
    vectors along k; ``pack``, into panels of `width` lines, which may be transposed (`turn`); or
    ``block``, on a grid of threads, with tiles of `rows` x `columns` and steps of `unroll` along k.

    `a_form` and `b_form` say for ``gemm`` and ``amx`` whether the operand is read from panels or
    where it lies, contiguous along ``"k"``, ``"m"`` or ``"n"``, or in a form of windows. `split`: k
    is cut, and sums continue from block to block. `direct`: windows are read where they lie,
    without panels.
    `across`: micro-tiles follow each other along the rows, not down the columns. `vnni` and `bf16`:
    the instruction of this name is used. `by_rows`: tiles of the same rows follow each other,
    throughout the batch; otherwise tiles of the same columns of one product do. `far`: b is
    prefetched, because it does not fit the second-level cache and few rows use each part of it.
    `packs_b`: the first rows of a tile leave what they read of b in panels for the other rows.
    `narrow`: the last columns may be one vector wide. `tensor`: a block uses tensor cores; with
    `groups`, by warps in groups of four.
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
    tensor: bool = False
    groups: bool = False

    @property
    def extension(self) -> str:
        """The one of `target.EXTENSIONS` that multiplies; empty for none."""
        if self.kind in EXTENSIONS:
            return self.kind
        return next((word for word in FLAGS if word in EXTENSIONS and getattr(self, word)), "")

    @property
    def text(self) -> str:
        """The schedule in words, which `parse` reads."""
        flags = [word.replace("_", "-") for word in FLAGS if getattr(self, word)]
        forms = f"a:{self.a_form}", f"b:{self.b_form}"
        if self.kind in ("gemm", "amx"):
            words = [f"{self.rows}x{self.columns}", *forms, *flags]
        elif self.kind == "block":
            words = [f"{self.rows}x{self.columns}x{self.unroll}", *forms, *flags]
        elif self.kind == "dot":
            words = [f"{self.rows}x{self.columns}x{self.unroll}", *flags]
        elif self.kind == "pack":
            words = [str(self.width or "any"), "turn" if self.turn else "copy"]
        else:
            sizes = [self.rows, self.columns, self.unroll if self.unroll > 1 else 0]
            size = "x".join(str(size) for size in sizes if size)
            words = [word for word in (size, self.recipe) if word]
        return " ".join((self.kind, *words))

    @staticmethod
    def parse(text: str) -> Schedule:
        """The schedule of this text. Raises `UnknownNameError` for an unknown word and
        `CompileError` for a missing one."""
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
        size = words.pop(0) if words and words[0][0].isdecimal() else "0"
        rows, columns, step = map(int, (*size.split("x"), *("0", "1")[size.count("x") :]))
        return Schedule(kind, words[0] if words else "", rows, columns, step)
    if kind == "pack":
        width, way = words
        _known("way to pack", way, ("turn", "copy"))
        return Schedule(kind, width=ANY if width == "any" else int(width), turn=way == "turn")
    shape, *words = words
    rows, columns, *unroll = map(int, shape.split("x"))
    made = Schedule(kind, "", rows, columns, unroll[0] if unroll else 1)
    if kind in ("gemm", "amx", "block"):
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
    """One array that the program reads or writes, or one running index.

    `stride_class` is the class along the vector dimension; `varies` says whether the operand varies
    along any inner dimension (a reduced output does not). An `INTERLEAVED` operand has
    `interleaved`: its turn, and the number of those that lie together. An operand in panels has its
    lines (along dimension `panel[0]`) in groups of `panel[1]`: within a group they lie side by
    side, and the stride is the distance between groups. If that is `ANY`, the last stride gives the
    number. Similarly, the elements of each line along dimension `grouped[0]` lie side by side in
    groups of `grouped[1]`. `beside` is the class along the last outer dimension, if the vector runs
    along the only inner dimension: lanes may then lie across the rows instead (`short_rows`).
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
        """The number of elements of a line that form a group."""
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


#: Functions of one number that are instructions of a program; `mathlib` expands each of them.
FUNCTIONS = ("cos", "erf", "exp", "expm1", "log", "log1p", "sin", "tanh")


class Instruction(NamedTuple):
    """One scalar step: `name` applied to earlier instructions, giving a value of `dtype`.

    `arguments` are positions of earlier instructions in the program's code. `attribute` is anything
    else the instruction needs: the operand of a load, the number of a scalar, a constant's value.

    ======================== ============================= =========================================
    name                     arguments                     attribute
    ======================== ============================= =========================================
    load                                                   operand (of an index operand: the index)
    load_where               one or more bools             operand; 0 unless all are true: nothing
                                                           is read then
    scalar                                                 number of the run-time scalar
    constant                                               its value (int, float or bool)
    cast                     value
    add subtract multiply    two of one dtype
    divide                   two floating, or integers (truncating, caller guards zero)
    negative absolute sqrt   value
    floor ceil rint trunc    floating
    floor_divide remainder   two of one dtype, Python's signs (x // 0 and x % 0 of integers are 0)
    multiply_add             three float32: a * b + c, rounded once
    power                    two of one dtype (the second, if whole, at least 0)
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
    reduce                   value                         sum prod max min any all, or a `Carry`:
                                                           the first of the values that it carries
    carried                  reduce                        number of another one of these values
    scan                     value                         sum or prod: of the values at this and
                                                           all earlier inner positions
    store                    value                         operand
    scatter_add              index (int64), value          (operand, extra): adds into the element;
                                                           such programs run one lane at a time
    ======================== ============================= =========================================

    The tables of `spelling` and `mathlib` use further instructions, which no program contains:
    `argument` (of the function), `quotient` (of integers, truncated, never by 0),
    `shift_left_within` and `shift_right_within` (by less than the number of bits), `scaled` and
    `scaled_down` (by a power of two) and `seldom` (the value of another function where a condition
    holds).

    A value computed from a `reduce` (and from nothing that varies) is known once per outer
    position, and later varying instructions may use it: softmax is one program with two reductions.
    """

    name: str
    dtype: DType
    arguments: tuple[int, ...] = ()
    attribute: object = None

    @property
    def carries(self) -> bool:
        """Whether it is a reduction that carries the values of a `Carry`."""
        return self.name == "reduce" and not isinstance(self.attribute, str)

    @property
    def operand(self) -> int | None:
        """The operand it reads or writes."""
        attribute: Any = self.attribute
        if self.name in ("load", "load_where", "store"):
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


class Named(NamedTuple):
    """What stands for an attribute in a program's text."""

    name: str

    def __repr__(self) -> str:
        return self.name


def is_window(operand: Operand) -> bool:
    """Whether windows may be read from an operand: it varies along them, and elements lie side by
    side along the vector, or with a stride of two."""
    along = operand.stride_class in (CONTIGUOUS, PAIRED)
    return operand.varies and operand.role == INPUT and along


def operands_read(code: Sequence[Instruction], positions: Iterable[int]) -> set[int]:
    """The operands that the values of some instructions depend on."""
    found, waiting = set[int](), list(positions)
    while waiting:
        step = code[waiting.pop()]
        waiting.extend(step.arguments)
        if step.operand is not None:
            found.add(step.operand)
    return found


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
        """The whole program as text: readable, and the key of its kernel in the cache."""
        head = f"loops outer={self.outer} inner={self.inner} extra={self.extra}: {self.schedule}"
        operands = "\n".join(f"  operand {i} {o!r}" for i, o in enumerate(self.operands))
        scalars = ", ".join(str(s) for s in self.scalars)
        carries = dict.fromkeys(s.attribute for s in self.code if s.carries)
        told = "".join(f"  carry {i} {c!r}\n" for i, c in enumerate(carries))
        named = {carry: Named(f"carry {i}") for i, carry in enumerate(carries)}
        steps = [s._replace(attribute=named[s.attribute]) if s.carries else s for s in self.code]
        code = "\n".join(f"  %{i} = {step!r}" for i, step in enumerate(steps))
        return f"{head}\n{operands}\n  scalars ({scalars})\n{told}{code}\n"

    @cached_property
    def parsed_schedule(self) -> Schedule:
        """Its schedule in parts. Raises what `Schedule.parse` raises."""
        return Schedule.parse(self.schedule)

    def known_extent(self, dimension: int) -> int | None:
        """The extent of a dimension if the schedule says it: of windows that are unrolled."""
        schedule, inner = self.parsed_schedule, dimension - self.outer
        if self.in_tiles or inner < 0 or not schedule.columns:
            return None
        return (schedule.rows, schedule.columns)[inner]

    @property
    def first_scalar(self) -> int:
        """The position of the first scalar among the run-time integers."""
        return self.extras.stop

    @property
    def extras(self) -> range:
        """The positions of the `extra` integers among the run-time integers."""
        first = self.stride_at(len(self.operands), 0)
        return range(first, first + self.extra)

    def stride_at(self, number: int, dimension: int) -> int:
        """The position of an operand's stride along a dimension among the run-time integers."""
        return self.rank * (1 + number) + dimension

    @property
    def rank(self) -> int:
        """How many loops there are."""
        return self.outer + self.inner

    @property
    def vector_dimension(self) -> int:
        """The dimension along which the vector runs when results are written."""
        return self.rank - 1 if self.vectors_along == INNER else self.outer - 1

    def turns(self, number: int) -> list[int]:
        """The inputs that are interleaved with this one, in the order of their turns. Several such
        groups come in the same order in all turns."""
        turn, count = self.operands[number].interleaved or (0, 1)
        inputs = [(i, o.interleaved) for i, o in enumerate(self.operands) if o.role == INPUT]
        groups = [[i for i, own in inputs if own == (n, count)] for n in range(count)]
        place = groups[turn].index(number)
        return [group[place] for group in groups]

    def known_stride(self, number: int, dimension: int) -> int | None:
        """An operand's stride along a dimension if its class determines it, else None. Kernels do
        not read known strides at run time."""
        operand = self.operands[number]
        if dimension >= self.outer and not operand.varies:
            return 0
        if dimension == self.vector_dimension and operand.panel is None:
            if operand.stride_class == CONTIGUOUS and operand.role != INDEX:
                return 1
            return 0 if operand.stride_class == BROADCAST else None
        return None

    def groups(self, number: int, dimension: int) -> tuple[int, int]:
        """How the positions along a dimension are grouped: the size of a group, and the distance of
        neighbours within a group. The operand's stride is the distance between groups, so an
        element lies at position // size * stride + position % size * distance. `ANY`: the size is
        the stride along the last dimension."""
        operand = self.operands[number]
        if operand.panel is not None and operand.panel[0] == dimension:
            return operand.panel[1], operand.together
        along, together = operand.grouped or (dimension, 1)
        return together if dimension == along else 1, 1

    @property
    def vectors_along(self) -> str:
        """`OUTER` or `INNER`: vectors run along the last of these dimensions."""
        return INNER if self.parsed_schedule.kind == INNER else OUTER

    @property
    def in_tiles(self) -> bool:
        """Whether a call computes a range of tiles instead of one of the first outer dimension."""
        return self.parsed_schedule.kind not in (OUTER, INNER)

    @property
    def tile_order(self) -> tuple[str, ...]:
        """The coordinates of a tile, the fastest-changing first."""
        return TILE_ORDER_BY_ROWS if self.parsed_schedule.by_rows else TILE_ORDER
