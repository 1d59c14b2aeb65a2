"""Programs: what a kernel computes, before any machine is chosen.

A `Program` is a nest of loops around one list of scalar instructions. Its `outer` dimensions are
independent; its `inner` dimensions are reduced over. The text of a program is its key: it names no
extent, no stride but the class of the last one, and no scalar value, so a new shape needs no new
kernel.

Run-time integers are laid out as::

    outer extents, inner extents,
    for each operand: one stride (in elements) per outer dimension, then per inner dimension,
    `extra` more integers (strides of gathered axes, sizes to check indices against),
    for each scalar: 8 bytes, an int64 or the bits of a float64.

Index operands have strides (their value is the sum of position x stride) and no buffer.
"""

from __future__ import annotations

from gemel.dtype import DType

INPUT, OUTPUT, INDEX = "input", "output", "index"
#: Where the vector runs: along the last outer dimension, or along the last inner one.
OUTER, INNER = "outer", "inner"
#: Stride classes along the vector dimension; what lies across has stride 1 along the one before,
#: and of pairs only the first elements are read.
BROADCAST, CONTIGUOUS, STRIDED, ACROSS, PAIRED = 0, 1, 2, 3, 4
#: Of `count` outputs that take turns in memory, the class of the one `number`th in turn is
#: INTERLEAVED * count + number: together they fill whole vectors.
INTERLEAVED = 16


class Operand:
    """One array the program reads or writes, or one running index.

    `stride` is its class along the vector dimension; `varies` says whether it changes along any
    inner dimension at all (a reduced output does not).
    """

    __slots__ = ("dtype", "role", "stride", "varies")

    def __init__(self, dtype: DType, role: str, stride: int, varies: bool = False) -> None:
        self.dtype = dtype
        self.role = role
        self.stride = stride
        self.varies = varies

    def __repr__(self) -> str:
        return f"{self.role}:{self.dtype}:{self.stride}{'v' if self.varies else ''}"


#: Functions of one number that are instructions of a program, each written out in `mathlib`.
FUNCTIONS = ("cos", "erf", "exp", "expm1", "log", "log1p", "sin", "tanh")


class Instruction:
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

    __slots__ = ("arguments", "attribute", "dtype", "name")

    def __init__(
        self, name: str, dtype: DType, arguments: tuple[int, ...] = (), attribute: object = None
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.arguments = arguments
        self.attribute = attribute

    def __repr__(self) -> str:
        inside = [f"%{i}" for i in self.arguments]
        if self.attribute is not None:
            inside.append(repr(self.attribute))
        return f"{self.name}.{self.dtype}({', '.join(inside)})"


class Program:
    """A loop nest: `outer` >= 1 independent dimensions, `inner` >= 0 reduced ones."""

    __slots__ = ("code", "extra", "inner", "lanes", "operands", "outer", "scalars")

    def __init__(
        self,
        outer: int,
        inner: int,
        lanes: str,
        operands: tuple[Operand, ...],
        scalars: tuple[DType, ...],
        extra: int,
        code: tuple[Instruction, ...],
    ) -> None:
        self.outer = outer
        self.inner = inner
        self.lanes = lanes
        self.operands = operands
        self.scalars = scalars  # each float64 or int64 (or bool_, passed as int64 0/1)
        self.extra = extra
        self.code = code

    @property
    def text(self) -> str:
        """The whole program as text: readable, and the key under which its kernel is kept."""
        head = f"loop outer={self.outer} inner={self.inner} lanes={self.lanes} extra={self.extra}"
        operands = "\n".join(f"  operand {i} {o!r}" for i, o in enumerate(self.operands))
        scalars = ", ".join(str(s) for s in self.scalars)
        code = "\n".join(f"  %{i} = {step!r}" for i, step in enumerate(self.code))
        return f"{head}\n{operands}\n  scalars ({scalars})\n{code}\n"

    @property
    def integers(self) -> int:
        """How many run-time integers precede the scalars."""
        rank = self.outer + self.inner
        return rank * (1 + len(self.operands)) + self.extra


class Contraction:
    """A batched matrix product with an elementwise end: out = epilogue(sum_k a[m, k] * b[k, n]).

    `a_last`/`b_last` name the axis whose stride is 1: ``"k"``/``"m"`` and ``"n"``/``"k"``. The
    epilogue's code is a list of instructions over outer position (m, n): instruction 0 is always
    ``accumulator`` (the finished sum, in `dtype`); loads are of `operands` (bias, residual: stride
    class along n, 2-D strides), stores go to the outputs among them.
    """

    __slots__ = ("a_last", "b_last", "code", "dtype", "operands", "scalars", "variant")

    def __init__(
        self,
        dtype: DType,
        a_last: str,
        b_last: str,
        variant: str,
        operands: tuple[Operand, ...],
        scalars: tuple[DType, ...],
        code: tuple[Instruction, ...],
    ) -> None:
        self.dtype = dtype
        self.a_last = a_last
        self.b_last = b_last
        self.variant = variant
        self.operands = operands
        self.scalars = scalars
        self.code = code

    @property
    def text(self) -> str:
        """The whole contraction as text: readable, and the key under which its kernel is kept."""
        head = f"contract {self.dtype} a:{self.a_last} b:{self.b_last} {self.variant}"
        operands = "\n".join(f"  operand {i} {o!r}" for i, o in enumerate(self.operands))
        scalars = ", ".join(str(s) for s in self.scalars)
        code = "\n".join(f"  %{i} = {step!r}" for i, step in enumerate(self.code))
        return f"{head}\n{operands}\n  scalars ({scalars})\n{code}\n"
