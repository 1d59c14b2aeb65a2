"""Matrix products: from sizes to steps in tiles.

A product is a program whose loops are two of a batch, the rows m, the columns n and, reduced, k
(n and k may be three loops each): the sum of the products of its first two operands, float32 or
float64, and what follows. Sums run along k in an order fixed by shape and target, so the result has
the same bits however the tiles are spread over cores.
"""

from __future__ import annotations

from collections.abc import Sequence

from gemel.codegen.contract_plan import (
    SCRATCH,
    Choice,
    Several,
    StepPlan,
    cost,
    decided,
    for_several,
    variants,
)
from gemel.codegen.program import (
    CONTIGUOUS,
    INDEX,
    INPUT,
    OUTPUT,
    ROWS,
    STRIDED,
    TILES,
    Instruction,
    Operand,
    Program,
)
from gemel.codegen.target import Target
from gemel.dtype import DType
from gemel.extent import maximum, minimum
from gemel.spec import product

__all__ = ["Choice", "Several", "StepPlan", "cost", "steps", "variants"]

#: A packing step's tile copies about this many bytes.
PACKED_TILE = 1 << 18


def steps(
    program: Program,
    integers: Sequence[int],
    lasts: tuple[str, str],
    target: Target,
    often: bool = False,
    several: Several | None = None,
) -> list[StepPlan]:
    """The steps which compute a product, to be run in order; none for an empty result.

    `program` and `integers` say what it is, by the schedule in loops and without the scalars' bits.
    `lasts` are the axes along which the strides of its first two operands are 1: ``"k"`` or
    ``"m"``, and ``"n"`` or ``"k"``. `often`: the second is packed for several products. `several`:
    how it lies where n or k are three loops.
    """
    plan = _Planner(program, integers, lasts, often, several, target)
    if 0 in plan.extents[: program.outer]:
        return []
    return plan.steps()


class _Planner:
    """Collects the steps of one product and lays out its scratch."""

    def __init__(
        self,
        program: Program,
        integers: Sequence[int],
        lasts: tuple[str, str],
        often: bool,
        several: Several | None,
        target: Target,
    ) -> None:
        rank = program.rank
        self.program = program
        self.dtype = program.operands[0].dtype
        self.lasts = lasts
        self.extents = list(integers[:rank])
        self.strides = [
            list(integers[rank * (1 + i) : rank * (2 + i)]) for i in range(len(program.operands))
        ]
        self.extras = list(integers[rank * (1 + len(program.operands)) :])
        self.batch, self.m = self.extents[:ROWS], self.extents[ROWS]
        self.n = product(self.extents[ROWS + 1 : program.outer])
        self.k = product(self.extents[program.outer :])
        self.scratch: list[int] = []
        self.found: list[StepPlan] = []
        self.often, self.several, self.target = often, several, target

    def steps(self) -> list[StepPlan]:
        """All steps."""
        sizes = self.m, self.n, self.k, product(self.batch)
        if self.several:
            choice = for_several(self.dtype, self.lasts[0], self.several, self.target, *sizes)
        else:
            choice = decided(self.dtype, *self.lasts, self.target, *sizes, self.often)
        operands = list(self.program.operands)
        buffers = [(i, 0) for i, each in enumerate(operands) if each.role != INDEX]
        contiguous = CONTIGUOUS if choice.b_form == "n" else STRIDED
        operands[1] = Operand(self.dtype, INPUT, contiguous, True)
        widths = choice.rows, choice.columns
        for number, form in enumerate((choice.a_form, choice.b_form)):
            if form == "packed":
                buffers[number] = self._pack(number, widths[number]), 0
                kind, panel = operands[number].stride, (ROWS + number, widths[number])
                operands[number] = Operand(self.dtype, INPUT, kind, True, panel)
        self._product(choice, tuple(operands), buffers)
        self.found[-1].cost = cost(*sizes, self.dtype, self.target.width)
        for each in self.found:
            each.scratch = self.scratch
        return self.found

    def _reserve(self, elements: int) -> int:
        """Whose a new block of scratch is, of so many elements."""
        self.scratch.append(elements * self.dtype.itemsize)
        return SCRATCH - len(self.scratch) + 1

    def _pack(self, number: int, width: int) -> int:
        """Which scratch has an operand in panels of so many lines; its strides are those then."""
        strides, k = self.strides[number], self.program.outer
        lines, line = self.extents[ROWS + number], strides[ROWS + number]
        # An axis the operand broadcasts over is packed once.
        batch = [n if stride else 1 for n, stride in zip(self.batch, strides, strict=False)]
        panels = -(-lines // width)
        size = panels * width * self.k
        packed = [batch[1] * size if strides[0] else 0, size if strides[1] else 0]
        panels_of = self._reserve(product(batch) * size)
        itemsize = self.dtype.itemsize
        together = maximum(1, PACKED_TILE // maximum(1, width * self.k * itemsize))
        tiles = -(-panels // together)
        turn = self.lasts[number] == "k"
        integers = [*batch, lines, self.k, *strides[:ROWS], line, strides[-1]]
        integers += [*packed, width * self.k, width, together * width, self.k, tiles, 1, 1]
        extent = product(batch) * tiles
        whole = extent * minimum(panels, together) * width * self.k * itemsize
        chunk = maximum(1, extent * PACKED_TILE // maximum(whole, 1))
        copies = _copies(self.dtype, width, turn)
        step = StepPlan(copies, [(number, 0), (panels_of, 0)], integers, extent, chunk)
        step.packs = number
        step.cost = 100 + whole // 10
        if self.k:
            self.found.append(step)
        inner = self.extents[k:]
        along = [width * product(inner[i + 1 :]) for i in range(len(inner))]
        others = [0] * (k - ROWS)
        others[number] = width * self.k
        self.strides[number] = [*packed, *others, *along]
        return panels_of

    def _product(
        self, choice: Choice, operands: tuple[Operand, ...], buffers: list[tuple[int, int]]
    ) -> None:
        """The main step."""
        m_tiles = -(-self.m // choice.m_block)
        n_tiles = -(-self.n // choice.n_block)
        extent = product(self.batch) * m_tiles * n_tiles
        integers = [*self.extents, *(each for strides in self.strides for each in strides)]
        integers += self.extras
        k_block = choice.k_block or maximum(self.k, 1)
        integers += [choice.m_block, choice.n_block, m_tiles, n_tiles, k_block]
        if choice.split:
            partial = extent * choice.m_block * choice.n_block
            buffers = [*buffers, (self._reserve(partial), 0)]
        made = self.program.scheduled(choice.schedule, operands, self.program.extra + len(TILES))
        step = StepPlan(made, buffers, integers, extent, choice.chunk)
        if made.scalars:
            step.scalars = len(integers)
            integers += [0] * len(made.scalars)
        self.found.append(step)


def _copies(dtype: DType, width: int, turn: bool) -> Program:
    """What makes panels: lines and k are its loops, besides those of the batch."""
    operands = (
        Operand(dtype, INPUT, CONTIGUOUS if turn else STRIDED),
        Operand(dtype, OUTPUT, STRIDED, panel=(ROWS, width)),
    )
    code = Instruction("load", dtype, (), 0), Instruction("store", dtype, (0,), 1)
    schedule = f"pack {width} {'turn' if turn else 'copy'}"
    return Program(ROWS + 2, 0, schedule, operands, (), len(TILES), code)
