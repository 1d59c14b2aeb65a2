"""Matrix products: from a fused body with one product to the launches that compute it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gemel.codegen.contract import even
from gemel.codegen.contract.grid_tiles import chosen, on_grid
from gemel.codegen.contract.planner import ProductStep, has_pairs, steps
from gemel.codegen.contract.task import PAIRS, Task, WindowAxes, windows_pay_in_pairs
from gemel.codegen.contract.tilings import SCRATCH
from gemel.codegen.language.body import aligned
from gemel.codegen.language.elements import ElementWriter
from gemel.codegen.language.launch import Launch, Place
from gemel.codegen.language.nest import Nest
from gemel.codegen.language.order import merged, stride_class
from gemel.codegen.language.program import (
    CONTIGUOUS,
    INDEX,
    OUTER,
    OUTPUT,
    ROWS,
    Operand,
    Program,
)
from gemel.codegen.target import Target
from gemel.dtype import bfloat16, float16, int32, promote
from gemel.extent import same_for_all
from gemel.ir import layout as layouts
from gemel.ir.graph import Entry, Graph, Node
from gemel.ir.layout import Layout, broadcast_strides
from gemel.passes.domain import Domain, is_product
from gemel.spec import Spec, product


class Workspace(NamedTuple):
    """What products are written with: the target, and memory for intermediate results.

    `copy` makes a contiguous copy of a place in scratch memory; `reserve` reserves a number of
    bytes of it. `packed` says where the panels are that earlier products of the plan have made.
    `often`: several products have this second operand, so that making panels of it pays. `still`:
    the first operand is always the same, and what is made of it is kept.
    """

    target: Target
    copy: Callable[[Place], Place]
    reserve: Callable[[int], Any]
    packed: dict[str, Any]
    often: bool = False
    still: bool = False


#: Up to this many columns, the transposed product is computed instead, by dot products if a is
#: contiguous along k. For 2048 x 2048 by 2048 x 4 that takes 0.3 of the time, with eight columns
#: 0.56; but for 4096 x 64, 1.7.
NARROW = 4
#: From this many products with the same second operand on, panels of it are made for all of them.
OFTEN = 3


def factor(node: Node, number: int = 1) -> Entry | None:
    """The first (0) or second operand of the product that a fused node computes; None without
    one."""
    body = node.params.get("body") if node.op is not None else None
    if not isinstance(body, Graph):
        return None
    products = [each for each in body.walk() if is_product(each)]
    given = dict(zip(body.inputs, node.inputs, strict=False))
    return given.get(products[0].inputs[number]) if products else None


def is_only_factor(node: Node, entry: Entry) -> bool:
    """Whether a fused node uses an entry only as the second operand of its product."""
    if factor(node) is not entry:
        return False
    body = node.params["body"]
    (inside,) = (b for b, e in zip(body.inputs, node.inputs, strict=True) if e is entry)
    reads = [(each, i) for each in body.walk() for i, e in enumerate(each.inputs) if e is inside]
    return [(is_product(each), i) for each, i in reads] == [(True, 1)]


#: The extent of a loop, and the stride of b along it.
Loops = tuple[Any, Any]


class Axes:
    """The loops of a product: batch dimensions, m, n and k, and each operand's strides along them.

    The strides of the second operand along n and k may be `layouts.MixedStride`.
    """

    def __init__(self, shape: tuple[int, ...], strides: list[tuple[Any, ...]]) -> None:
        *self.batch, self.m, self.n, self.k = shape
        self.strides: list[list[Any]] = [list(s) for s in strides]

    def merge(self) -> None:
        """Joins batch dimensions; turns the last ones into more rows where possible."""
        self.join()
        while self._rows_take_batch():
            pass

    def join(self) -> None:
        """Drops batch dimensions of length 1 and joins those without a gap between them."""
        lead = [(n, [s[d] for s in self.strides]) for d, n in enumerate(self.batch) if n != 1]
        loops = merged(lead)
        self.batch = [n for n, _ in loops]
        own = [[strides[i] for _, strides in loops] for i in range(len(self.strides))]
        self.strides = [[*a, *s[-3:]] for a, s in zip(own, self.strides, strict=True)]

    def _rows_take_batch(self) -> bool:
        """Joins the last batch dimension with the rows, if b is the same along it and the other
        operands have no gap between the two; returns whether it did."""
        last = len(self.batch) - 1
        if not self.batch or isinstance(self.strides[0][last + 1], layouts.MixedStride):
            return False
        a, b, *others = self.strides
        runs_on = all(s[last] == s[last + 1] * self.m for s in (a, *others))
        if b[last] != 0 or not runs_on:
            return False
        self.m *= self.batch.pop()
        for s in self.strides:
            del s[last]
        return True

    def runs(self, which: int) -> str | None:
        """The axis along which the stride of the first or second operand is 1, or None."""
        axes = self._matrix(which)
        if any(isinstance(stride, layouts.MixedStride) for _, _, stride in axes):
            return None
        return next((name for name, n, stride in axes if stride == 1 or n == 1), None)

    def _matrix(self, which: int) -> list[tuple[str, int, Any]]:
        """Name, extent and stride of the axes of an operand's matrix, the last one first."""
        m, n, k = zip("mnk", (self.m, self.n, self.k), self.strides[which][-3:], strict=True)
        return [k, m] if which == 0 else [n, k]

    def layout(self, which: int, place: Place) -> Layout:
        """An operand's own axes: the batch axes it is not broadcast along, then its matrix."""
        (_, columns, column), (_, rows, row) = self._matrix(which)
        lead = zip(self.batch, self.strides[which], strict=False)
        axes = [*((n, stride) for n, stride in lead if stride), (rows, row), (columns, column)]
        shape, strides = zip(*axes, strict=True)
        return Layout(shape, strides, place.layout.offset)

    def made_dense(self, which: int) -> None:
        """Sets the strides of an operand that has been copied, with the axes of its `layout`."""
        (_, columns, _), (_, rows, _) = self._matrix(which)
        lead = self.strides[which][:-3]
        step = rows * columns
        for d in range(len(lead) - 1, -1, -1):
            if lead[d]:
                lead[d] = step
                step *= self.batch[d]
        self.strides[which] = [*lead, *((columns, 0, 1) if which == 0 else (0, 1, columns))]

    def weights(self, channels: int, inner: int) -> list[Loops]:
        """The axes of k of the first operand, channels first: extents, and its strides along them.
        `inner`: how many k each channel has."""
        stride = self.strides[0][-1]
        if isinstance(stride, layouts.MixedStride):
            return stride.axes
        return [(channels, inner * stride), (inner, stride)]

    def windows(self, lanes: int) -> WindowAxes | None:
        """How b lies if its k or its columns run along several axes; None if they do not."""
        n, k = self.factor_axes()
        return WindowAxes.of(k, n, lanes) if len(k) + len(n) > 2 else None

    def factor_axes(self) -> tuple[list[Loops], list[Loops]]:
        """The axes of n and those of k, each with its extent and the stride of b along it."""
        n, k = (
            stride.axes if isinstance(stride, layouts.MixedStride) else [(extent, stride)]
            for stride, extent in zip(self.strides[1][-2:], (self.n, self.k), strict=True)
        )
        return n, k

    def integers(self, n: Sequence[Loops], k: Sequence[Loops]) -> list[Any]:
        """Extents and strides as a kernel takes them: two batch axes, m, then these axes of n and
        k."""
        lead = ROWS - len(self.batch)
        found = [*[1] * lead, *self.batch, self.m, *(extent for extent, _ in (*n, *k))]
        for number, strides in enumerate(self.strides):
            found += [*[0] * lead, *strides[:-2]]
            for axes, stride in zip((n, k), strides[-2:], strict=True):
                found += [own for _, own in axes] if number == 1 else _spread(stride, axes)
        return found


def _spread(stride: int, axes: Sequence[tuple[int, int]]) -> list[int]:
    """Splits the stride along a merged axis into strides along the axes it consists of."""
    lengths = [extent for extent, _ in axes]
    return [stride * product(lengths[i + 1 :]) for i in range(len(lengths))]


def write_product(
    body: Graph, given: dict[Entry, Any], outputs: list[Place], workspace: Workspace
) -> list[Launch]:
    """The launches of a fused body that consists of one matrix product and what follows it."""
    node = next(n for n in body.walk() if is_product(n))
    if node.entries[0].spec.is_empty:
        return []  # What follows it is empty, too. Strides do not tell which empty axes join.
    a, b = (given[entry] for entry in node.inputs)
    a = a if len(a.shape) > 1 else a.reshaped((1, *a.shape))
    b = b if len(b.shape) > 1 else b.reshaped((*b.shape, 1))
    return _Writer(node, given, list(zip(body.outputs, outputs, strict=True)), workspace).of(a, b)


class _Writer(NamedTuple):
    """A product and the outputs computed from it."""

    node: Node
    given: dict[Entry, Any]
    outputs: list[tuple[Entry, Place]]
    workspace: Workspace

    def of(self, a: Place, b: Place) -> list[Launch]:
        """The launches that compute the product of two places, and the outputs."""
        (result,) = self.node.entries
        vectors = [entry.ndim == 1 for entry in self.node.inputs]
        batch = result.shape[: result.ndim + sum(vectors) - 2]
        rows: list[int | None] = [len(batch), len(batch) + 1]
        factors, workspace = [a, b], self.workspace
        if _is_narrow(a, b):
            # With few columns, compute the product of the two transposed matrices instead. It has
            # few rows and long vectors, and reads a as it lies.
            alone, swapped = b.shape[-1] == 1, _transposed(b)
            rows = [len(batch) + 1, None if alone else len(batch)]
            workspace = workspace._replace(often=False)
            along_k = a.strides[-1] == 1 and not alone and not workspace.target.grid
            factors = [workspace.copy(swapped) if along_k else swapped, _transposed(a)]
        shape = (*batch, factors[0].shape[-2], factors[1].shape[-1], a.shape[-1])
        nest = Nest(shape, frozenset((len(shape) - 1,)))
        total = _total(nest, factors, len(batch))
        own = [d for d, vector in zip(rows, vectors, strict=True) if not vector]
        placement = (*range(len(batch)), *own)
        self._store(nest, total.cast(result.dtype), placement)
        strides = [steps for _, _, _, steps in nest.operands]
        axes = Axes(shape, strides)
        axes.merge()
        if len(axes.batch) <= ROWS:
            return _launches(nest, axes, factors, workspace)
        others = Axes(shape, strides[2:])
        others.join()
        if len(others.batch) > ROWS:
            return self._in_two(a, b)
        return self.of(*(self.workspace.copy(_repeated(place, batch)) for place in (a, b)))

    def _store(self, nest: Nest, value: Any, placement: tuple[int, ...]) -> None:
        """Writes into a nest the outputs that are computed from the product's recorded value."""
        (result,) = self.node.entries
        domain = Domain(nest.shape)
        domain.reduced = nest.reduced
        domain.placements[result] = placement
        writer = ElementWriter(nest, domain, self.given)
        writer.ready[result] = value
        for entry, place in self.outputs:
            found = writer.value(entry, aligned(placement, entry))
            nest.store(place, found, writer.strides(place, placement))

    def _in_two(self, a: Place, b: Place) -> list[Launch]:
        """The product into scratch memory, then loops of any number for what follows it.

        For batch axes that cannot be merged because of other operands than the two factors.
        """
        (result,) = self.node.entries
        size = product(result.shape) * result.dtype.itemsize
        place = Place(self.workspace.reserve(size), result.dtype, layouts.dense(result.shape))
        launches = self._replace(outputs=[(result, place)]).of(a, b)
        nest = Nest(result.shape)
        self._store(nest, nest.load(place), tuple(range(result.ndim)))
        return [*launches, nest.finish()]


def _is_narrow(a: Place, b: Place) -> bool:
    """Whether a product has few columns, and more rows."""
    if b.shape[-1] == 1:
        return not a.shape[-2] == 1
    return bool(b.shape[-1] <= NARROW and a.shape[-2] > NARROW)


def _transposed(place: Place) -> Place:
    """A factor with its matrices transposed."""
    *lead, row, column = place.shape
    *steps, down, along = place.strides
    layout = Layout((*lead, column, row), (*steps, along, down), place.layout.offset)
    return place.at(layout)


def _repeated(place: Place, batch: tuple[int, ...]) -> Place:
    """A factor, broadcast to all batch axes. One without elements is never copied (any layout of it
    is contiguous), but gets strides with which these axes join."""
    full = (*batch, *place.shape[-2:])
    strides = broadcast_strides(place.shape, place.strides, len(full))
    if Spec(full, place.dtype).is_empty:
        strides = layouts.dense_strides(full)
    return place.at(Layout(full, strides, place.layout.offset))


def _total(nest: Nest, factors: list[Place], batch: int) -> Any:
    """The recorded sum of products. Kernels need not round each product."""
    values = []
    stored = promote(*(place.dtype for place in factors))
    # Of integers only bytes have such products, and kernels sum them in int32.
    wide = stored.accumulate if stored.is_floating else int32
    for number, place in enumerate(factors):
        own = broadcast_strides(place.shape[:-2], place.strides[:-2], batch)
        row, column = place.strides[-2:]
        matrix = (row, 0, column) if number == 0 else (0, column, row)
        strides = (*own, *matrix)
        values.append(nest.factor(place, strides).cast(wide))
    return nest.recorder.reduce("sum", values[0] * values[1])


def _launches(nest: Nest, axes: Axes, sources: list[Place], workspace: Workspace) -> list[Launch]:
    if workspace.target.grid:
        return [_on_grid(nest, axes, sources, workspace)]
    lanes = workspace.target.width // sources[0].dtype.compute.itemsize
    copies: list[Launch] = []
    windows = axes.windows(lanes)
    paired = windows and has_pairs([place.dtype for place in sources], workspace.target)
    if windows and paired and _is_evened(axes, sources, windows, workspace):
        copies = even.evened(axes, sources, workspace)
        windows = axes.windows(lanes)
        windows = windows and windows._replace(together=PAIRS)
    elif windows and paired:
        windows = _paired(axes, sources, windows, workspace)
    for number in range(1 if windows else 2):
        if axes.runs(number) is None:
            source = sources[number]
            sources[number] = workspace.copy(source.at(axes.layout(number, source)))
            axes.made_dense(number)
    program = _program(nest, axes, *((3, 3) if windows else (1, 1)))
    lasts = axes.runs(0) or "k", axes.runs(1) or "n"
    integers = axes.integers(*((windows.n, windows.k) if windows else axes.factor_axes()))
    planned = steps(program, integers, lasts, workspace.target, workspace.often, windows)
    places: dict[int, Any] = dict(enumerate(sources))
    planned = _placed(planned, places, workspace)
    places.update({i: place for i, (place, *_) in enumerate(nest.operands) if i > 1})
    written = {i for i, operand in enumerate(program.operands) if operand.role == OUTPUT}
    return [*copies, *(_launch(step, places, written, nest) for step in planned)]


def _task(axes: Axes, sources: list[Place], workspace: Workspace) -> Task:
    """What is asked of a product with windows."""
    lasts = axes.runs(0) or "k", "n"
    sizes = axes.m, axes.n, axes.k, product(axes.batch)
    return Task(sources[0].dtype.compute, lasts, workspace.target, *sizes)


def _is_evened(axes: Axes, sources: list[Place], windows: WindowAxes, workspace: Workspace) -> bool:
    """Whether windows over an odd number of channels are read in pairs, although image and weights
    have to be copied in each call."""
    if not even.suits(windows, axes):
        return False
    (channels, apart), *inside = windows.k
    as_if = windows._replace(k=((channels + 1, apart), *inside))
    return windows_pay_in_pairs(_task(axes, sources, workspace), as_if, still=False)


def _paired(
    axes: Axes, sources: list[Place], windows: WindowAxes, workspace: Workspace
) -> WindowAxes:
    """Windows in pairs along an axis of k, if that is faster. If it is not the last axis, the first
    factor is copied so that its pairs lie side by side, too."""
    task = _task(axes, sources, workspace)
    if not windows_pay_in_pairs(task, windows, workspace.still):
        return windows
    if windows.paired:
        return windows._replace(together=PAIRS)
    layout = axes.layout(0, sources[0])
    length = windows.k[0][0]
    (first, apart), *rest = axes.weights(length, windows.inner)
    if not same_for_all(first, length):
        return windows
    # The first axis counts pairs, then come the other axes, and last the two elements of a pair.
    k = [(length // PAIRS, PAIRS * apart), *rest, (PAIRS, apart)]
    shape = *layout.shape[:-1], *(extent for extent, _ in k)
    strides = *layout.strides[:-1], *(step for _, step in k)
    sources[0] = workspace.copy(sources[0].at(Layout(shape, strides, layout.offset)))
    axes.made_dense(0)
    return windows._replace(together=PAIRS)


def _on_grid(nest: Nest, axes: Axes, sources: list[Place], workspace: Workspace) -> Launch:
    """The launch for a grid of threads, which read the factors where they lie."""
    if any(isinstance(stride, layouts.MixedStride) for stride in axes.strides[0]):
        sources[0] = workspace.copy(sources[0].at(axes.layout(0, sources[0])))
        axes.made_dense(0)
    n, k = axes.factor_axes()
    program = _program(nest, axes, len(n), len(k))
    along_k = axes.runs(0) == "k", axes.runs(1) == "k"
    stored = {place.dtype for place in sources}
    tensor = workspace.target.tensor_cores and stored in ({float16}, {bfloat16})
    sizes = product(axes.batch), axes.m, axes.n, axes.k
    tile = chosen(*sizes, tensor, groups=tensor and workspace.target.warp_groups)
    program = on_grid(program, along_k, tile)
    others = [place for place, *_ in nest.operands[2:] if place is not None]
    written = [each.role == OUTPUT for each in program.operands if each.role != INDEX]
    integers = [*axes.integers(n, k), *nest.extras, *[0] * len(program.scalars)]
    results = product(axes.batch) * axes.m * axes.n
    cost = 1000 + results * axes.k // 1000
    given = [*sources, *others], written, integers, (results, results), nest.numbers, cost
    launch = Launch(program, *given)
    launch.failure = nest.told(launch)
    return launch


def _program(nest: Nest, axes: Axes, columns: int, depths: int) -> Program:
    """The program of the product, as plain loops: so many for the columns, and so many for k."""
    operands = []
    for number, (_, role, dtype, _) in enumerate(nest.operands):
        stride = axes.strides[number][-2]
        if isinstance(stride, layouts.MixedStride):
            kind = stride_class(stride.axes[-1][1])
        else:
            kind = CONTIGUOUS if role == OUTPUT and axes.n == 1 else stride_class(stride)
        operands.append(Operand(dtype, role, kind, number < 2))
    scalars = tuple(number.passed for number in nest.numbers)
    code, extra = tuple(nest.recorder.code), len(nest.extras)
    return Program(ROWS + 1 + columns, depths, OUTER, tuple(operands), scalars, extra, code)


def _placed(
    planned: list[ProductStep], places: dict[int, Any], workspace: Workspace
) -> list[ProductStep]:
    """The steps, without those that make panels which exist already; adds scratch to `places`."""
    needed = []
    for step in planned:
        panels = _panels_key(step, places)
        if panels in workspace.packed:
            places[step.buffers[1]] = workspace.packed[panels]
            continue
        needed.append(step)
        for whose in step.buffers:
            if whose <= SCRATCH and whose not in places:
                places[whose] = workspace.reserve(step.scratch[SCRATCH - whose])
        if panels:
            workspace.packed[panels] = places[step.buffers[1]]
    return needed


def _panels_key(step: ProductStep, places: dict[int, Any]) -> str:
    """A key for panels: what they are copied from, and how. Equal keys mean equal contents."""
    if step.packs < 0:
        return ""
    place = places[step.packs]
    layout = place.layout
    made = step.program.text, step.integers
    return repr((id(place.buffer), layout.offset, layout.strides, layout.shape, *made))


def _launch(step: ProductStep, places: dict[int, Any], written: set[int], nest: Nest) -> Launch:
    buffers = [places[whose] for whose in step.buffers]
    # The first two buffers of a product's step are only read, even if they are panels in scratch.
    writes = [
        whose in written or (i > 0 and whose <= SCRATCH) for i, whose in enumerate(step.buffers)
    ]
    if step.packs < 0:
        writes[:2] = False, False
    packs = step.packs >= 0
    given = buffers, writes, list(step.integers), (step.extent, step.chunk), nest.numbers
    launch = Launch(step.program, *given, step.cost, packs)
    launch.failure = None if packs else nest.told(launch)
    return launch
