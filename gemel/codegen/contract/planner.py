"""Matrix products: from sizes to steps in tiles.

The loops of such a program are two batch dimensions, the rows m, the columns n and, reduced, k
(n and k may be three loops each). It computes the sum of the products of its first two operands,
in float32 or float64, and what follows the sum. Operands that are only stored (float16, bfloat16)
are converted to float32 when they are read, or when panels of them are made. If bytes are summed
in int32, four bytes along k share a lane. So do two bfloat16 where the processor multiplies pairs.
The order of the sum along k depends only on shape and target, so the result has the same bits
however the tiles are distributed over cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gemel.codegen.contract import tilings
from gemel.codegen.contract.amx import in_tiles, pays_in_tiles
from gemel.codegen.contract.task import FOURS, PAIRS, Task, WindowAxes, pays_in_pairs
from gemel.codegen.contract.tilings import SCRATCH, Choice
from gemel.codegen.language.program import (
    ANY,
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
    Schedule,
)
from gemel.codegen.target import Target, has_extension
from gemel.config import explain
from gemel.dtype import DType, bfloat16, int8, uint8
from gemel.extent import maximum, minimum, seen
from gemel.spec import product

__all__ = ["ProductStep", "WindowAxes", "steps"]

#: A packing step's tile copies about this many bytes.
PACKED_TILE = 1 << 18
#: Adjacent panels share cache lines, so they are made together: at least this many, if the panels
#: suffice for this many tiles.
SIDE_BY_SIDE = 4


class ProductStep(NamedTuple):
    """One step of a product: a kernel and its arguments.

    `buffers` are numbers of the product's operands (index operands have no buffer), or `SCRATCH`
    and below. `integers` are the run-time integers, with 0 for each of the scalars. The range of
    tiles is [0, extent), with `chunk` tiles per call; tiles may run in any order and in parallel.
    `packs` is the operand that a step copies into panels, if it does nothing else (-1: it does
    more): the step may be skipped while the operand and the panels are unchanged. `scratch` has the
    sizes in bytes of the scratch blocks that the product needs, each aligned to 64.
    """

    program: Program
    buffers: list[int]
    integers: list[int]
    extent: int
    chunk: int
    packs: int = -1
    scratch: Sequence[int] = ()
    cost: int = 0  # nanoseconds on one core


def steps(
    program: Program,
    integers: Sequence[int],
    lasts: tuple[str, str],
    target: Target,
    often: bool = False,
    windows: WindowAxes | None = None,
) -> list[ProductStep]:
    """The steps that compute a product, to be run in this order; none if the result is empty.

    `program` and `integers` describe the product with the schedule of plain loops and without the
    bits of the scalars. `lasts` names the axes along which the first two operands have stride 1:
    ``"k"`` or ``"m"`` for the first, ``"n"`` or ``"k"`` for the second. `often`: the second is
    packed once for several products. `windows`: how the second lies if n or k are three loops.
    """
    if 0 in integers[: program.outer]:
        return []
    return _Planner(program, integers, lasts, target).steps(often, windows)


def has_pairs(factors: Sequence[DType], target: Target) -> bool:
    """Whether the target has an instruction that multiplies pairs of these dtypes."""
    extensions = (has_extension(target, name) for name in ("bf16", "amx"))
    return set(factors) == {bfloat16} and any(extensions)


class _Packed(NamedTuple):
    """Panels of an operand: `number` of them per matrix, each of `size` elements for `width`
    lines. `apart` are the distances between matrices along the two batch dimensions."""

    batch: list[int]
    apart: list[int]
    lines: int
    width: int
    number: int
    size: int

    @property
    def all_of_them(self) -> int:
        """The number of elements in the panels of one matrix."""
        return self.number * self.size


class _Planner:
    """Collects the steps of one product and lays out its scratch memory."""

    def __init__(
        self, program: Program, integers: Sequence[int], lasts: tuple[str, str], target: Target
    ) -> None:
        rank, count = program.rank, len(program.operands)
        self.program, self.lasts, self.target = program, lasts, target
        #: The dtype of the computation, to which the operands' elements are converted.
        self.dtype = program.operands[0].dtype.compute
        self.code, self.operands = program.code, list(program.operands)
        #: Which operand or block of scratch memory each operand is read from.
        self.buffers = [i for i, each in enumerate(self.operands) if each.role != INDEX]
        self.extents = list(integers[:rank])
        self.strides = [list(integers[rank * (1 + i) : rank * (2 + i)]) for i in range(count)]
        self.extras = list(integers[rank * (1 + count) :])
        self.batch, self.m = self.extents[:ROWS], self.extents[ROWS]
        self.n = product(self.extents[ROWS + 1 : program.outer])
        self.k = product(self.extents[program.outer :])
        self.scratch: list[int] = []
        self.found: list[ProductStep] = []
        #: How many k of a line lie side by side in panels, and along which axis of k.
        self.together, self.paired = 1, 0

    def steps(self, often: bool, windows: WindowAxes | None) -> list[ProductStep]:
        """All steps, in order."""
        sizes = self.m, self.n, self.k, product(self.batch)
        plain = self._is_plain(0)
        task = Task(self.dtype, self.lasts, self.target, *sizes, often, plain)
        choice = self._choice(task, windows)
        explain(lambda: _told(task, choice))
        schedule = choice.schedule
        contiguous = CONTIGUOUS if schedule.b_form == "n" else STRIDED
        self.operands[1] = Operand(self.operands[1].dtype, INPUT, contiguous, True)
        if schedule.a_form == "packed":
            self._pack(0, schedule.rows)
        elif windows and schedule.kind == "amx":
            self._read_in_pairs()
        if schedule.b_form == "packed":
            self._pack(1, schedule.columns)
        self._product(choice, task.cost)
        return self.found

    def _choice(self, task: Task, windows: WindowAxes | None) -> Choice:
        """The kernels and their tiling; sets how many k lie side by side in panels."""
        stored = [operand.dtype for operand in self.program.operands[:2]]
        tiles = has_extension(self.target, "amx")
        # Where there are tile registers, pairs in vectors are no faster than float32.
        pays = pays_in_tiles if tiles else pays_in_pairs
        if windows:
            self.together, self.paired = windows.together, windows.paired
        elif self.dtype in (int8, uint8):
            self.together = FOURS
        elif has_pairs(stored, self.target) and pays(task):
            self.together = PAIRS
        if tiles and self.together > 1 and (windows or pays(task)):
            return in_tiles(task, self.together, windows)
        if windows:
            masked = self._is_plain(1) or self.target.free_masks
            return tilings.for_windows(task, windows, masked)
        if self.together == FOURS:
            # The instruction needs one signed factor.
            native = int8 in stored and has_extension(self.target, "vnni")
            return tilings.for_fours(task, native)
        plan = tilings.for_pairs if self.together == PAIRS else tilings.decided
        return plan(task)

    def _is_plain(self, number: int) -> bool:
        """Whether an operand is stored in the dtype of the computation."""
        return self.program.operands[number].dtype is self.dtype

    def _reserve(self, elements: int, dtype: DType) -> int:
        """The number of a new block of scratch memory with room for this many elements."""
        self.scratch.append(elements * dtype.itemsize)
        return SCRATCH - len(self.scratch) + 1

    def _pack(self, number: int, width: int) -> None:
        """Packs an operand into panels of `width` lines; the product reads it from these."""
        panels = self._panels(number, width)
        room = self._reserve(product(panels.batch) * panels.all_of_them, self._in_panels(number))
        if self.k:
            self.found.append(self._copy(number, panels, room))
        self._read_from(number, panels, room)

    def _panels(self, number: int, width: int) -> _Packed:
        """How an operand lies in panels of `width` lines."""
        strides = self.strides[number]
        # An axis that the operand is broadcast over is packed once.
        batch = [n if stride else 1 for n, stride in zip(self.batch, strides, strict=False)]
        lines = self.extents[ROWS + number]
        depth = -(-self.k // self.together) * self.together
        count, size = -(-lines // width), width * depth
        whole = count * size
        apart = [batch[1] * whole if strides[0] else 0, whole if strides[1] else 0]
        return _Packed(batch, apart, lines, width, count, size)

    def _copy(self, number: int, panels: _Packed, room: int) -> ProductStep:
        """The step that makes the panels."""
        strides, turn = self.strides[number], self.lasts[number] == "k"
        stored, made = self.operands[number].dtype, self._in_panels(number)
        bytes_of_one = panels.size * made.itemsize
        at_once = maximum(1, PACKED_TILE // maximum(1, bytes_of_one))
        if not turn:
            at_once = maximum(at_once, minimum(SIDE_BY_SIDE, panels.number // SIDE_BY_SIDE))
        tiles = -(-panels.number // at_once)
        line = strides[ROWS + number]
        integers = [*panels.batch, panels.lines, self.k, *strides[:ROWS], line, strides[-1]]
        integers += [*panels.apart, panels.size, panels.width * self.together]
        # A tile consists of all k of some lines: k takes the place of a result's columns.
        integers += [at_once * panels.width, self.k, tiles, 1, 1]  # `TILES`
        extent = product(panels.batch) * tiles
        whole = extent * minimum(panels.number, at_once) * bytes_of_one
        chunk = maximum(1, extent * PACKED_TILE // maximum(whole, 1))
        # On targets with masks, one kernel transposes lines for panels of all widths.
        every = turn and self.together == 1 and self.target.free_masks
        copies = _copies(stored, made, ANY if every else panels.width, turn, self.together)
        step = ProductStep(copies, [number, room], integers, extent, chunk)
        # Later steps add to the list of scratch blocks. All steps share it, so each has it whole.
        return step._replace(packs=number, scratch=self.scratch, cost=100 + whole // 10)

    def _in_panels(self, number: int) -> DType:
        """The dtype of an operand's panels: that of the computation, but groups are not
        converted."""
        return self.dtype if self.together == 1 else self.operands[number].dtype

    def _read_from(self, number: int, panels: _Packed, room: int) -> None:
        """Makes the product read an operand from its panels."""
        k, width, made = self.program.outer, panels.width, self._in_panels(number)
        lanes = self._lanes()
        along = [width * self.together * product(lanes[i + 1 :]) for i in range(len(lanes))]
        others = [0] * (k - ROWS)
        others[number] = panels.size
        self.strides[number] = [*panels.apart, *others, *along]
        self.buffers[number] = room
        kind, panel_of = self.operands[number].stride_class, (ROWS + number, width)
        grouped = (k + self.paired, self.together) if self.together > 1 else None
        self.operands[number] = Operand(made, INPUT, kind, True, panel_of, grouped)
        # The panels hold converted elements already; another conversion changes nothing.
        load = Instruction("load", made, (), number)
        loads = "load", number
        self.code = tuple(load if (s.name, s.operand) == loads else s for s in self.code)

    def _read_in_pairs(self) -> None:
        """Makes the product read the first factor where it lies, its pairs along the same axis of k
        as those of the windows."""
        k, lanes, first = self.program.outer, self._lanes(), self.operands[0]
        along = [self.together * product(lanes[i + 1 :]) for i in range(len(lanes))]
        self.strides[0] = [*self.strides[0][:k], *along]
        self.operands[0] = first._replace(grouped=(k + self.paired, self.together))

    def _lanes(self) -> list[int]:
        """The number of lanes along each axis of k, in panels."""
        lanes = list(self.extents[self.program.outer :])
        lanes[self.paired] = -(-lanes[self.paired] // self.together)
        return lanes

    def _product(self, choice: Choice, estimate: int) -> None:
        """The main step."""
        m_tiles = -(-self.m // choice.m_block)
        n_tiles = -(-self.n // choice.n_block)
        extent = product(self.batch) * m_tiles * n_tiles
        integers = [*self.extents, *(each for strides in self.strides for each in strides)]
        k_block = choice.k_block or maximum(self.k, 1)
        integers += self.extras
        integers += [choice.m_block, choice.n_block, m_tiles, n_tiles, k_block]  # `TILES`
        if choice.schedule.split:
            partial = extent * choice.m_block * choice.n_block
            summed = next(step.dtype for step in self.code if step.name == "reduce")
            self.buffers.append(self._reserve(partial, summed))
        extra = self.program.extra + len(TILES)
        made = self.program._replace(operands=tuple(self.operands), extra=extra, code=self.code)
        made = made._replace(schedule=choice.schedule.text)
        integers += [0] * len(made.scalars)
        step = ProductStep(made, self.buffers, integers, extent, choice.chunk)
        self.found.append(step._replace(scratch=self.scratch, cost=estimate))


def _told(task: Task, choice: Choice) -> str:
    """From what a schedule and its tiling were chosen, and these, for people to read."""
    m, n, k, batch, cost = map(seen, (task.m, task.n, task.k, task.batch, task.cost))
    times = f"{batch} x " if batch != 1 else ""
    given = f"{times}{m} x {k} by {k} x {n} {task.dtype.name} a:{task.lasts[0]} b:{task.lasts[1]}"
    rows, columns, chunk, k_block = map(seen, choice[1:])
    along = f", {k_block} of k at a time" if k_block else ""
    tiles = f"{choice.schedule.text}; tiles of {rows} x {columns}, {chunk} a call{along}"
    return f"product {given} on {task.target.name}, about {cost} ns: {tiles}"


def _copies(source: DType, dtype: DType, width: int, turn: bool, together: int) -> Program:
    """The program that makes panels: its loops are those of the batch, the lines and k."""
    grouped = (ROWS + 1, together) if together > 1 else None
    operands = (
        Operand(source, INPUT, CONTIGUOUS if turn else STRIDED),
        Operand(dtype, OUTPUT, STRIDED, panel=(ROWS, width), grouped=grouped),
    )
    code: tuple[Instruction, ...] = (Instruction("load", source, (), 0),)
    if source is not dtype:
        code += (Instruction("cast", dtype, (0,)),)
    code += (Instruction("store", dtype, (len(code) - 1,), 1),)
    schedule = Schedule("pack", width=width, turn=turn)
    return Program(ROWS + 2, 0, schedule.text, operands, (), len(TILES), code)
