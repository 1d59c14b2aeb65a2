"""Matrix products: from a fused body with one product to the kernels that compute it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gemel.codegen.body import aligned
from gemel.codegen.contract import Several, steps
from gemel.codegen.elements import ElementWriter
from gemel.codegen.lane import Recorder
from gemel.codegen.nest import Kernel, Number, Place, stride_class
from gemel.codegen.program import CONTIGUOUS, INPUT, OUTPUT, Contraction, Operand
from gemel.codegen.target import Target
from gemel.dtype import DType, bool_
from gemel.ir import layout as layouts
from gemel.ir.graph import Entry, Graph, Node
from gemel.ir.layout import Layout
from gemel.ops import linalg
from gemel.passes.domain import Domain


class Means(NamedTuple):
    """What products are written with.

    `copy` makes a contiguous copy of a place in scratch memory, `reserve` reserves so many bytes
    of it. `packed` says where panels of operands are that earlier products of the plan have made.
    `often`: several products have this second operand, so that its panels are worth making.
    """

    target: Target
    copy: Callable[[Place], Place]
    reserve: Callable[[int], Any]
    packed: dict[str, tuple[Any, int]]
    often: bool = False


#: From so many products with one second operand on, panels of it are made for all of them.
OFTEN = 3


def factor(node: Node) -> Entry | None:
    """The second operand of the product a fused node computes, if it computes one."""
    body = node.params.get("body") if node.op is not None else None
    if not isinstance(body, Graph):
        return None
    products = [each for each in body.walk() if each.op is linalg.matmul]
    given = dict(zip(body.inputs, node.inputs, strict=False))
    return given.get(products[0].inputs[1]) if products else None


def is_only_factor(node: Node, entry: Entry) -> bool:
    """Whether a fused node wants an entry only as the second operand of its product."""
    if factor(node) is not entry:
        return False
    body = node.params["body"]
    (inside,) = (b for b, e in zip(body.inputs, node.inputs, strict=True) if e is entry)
    reads = [(each, i) for each in body.walk() for i, e in enumerate(each.inputs) if e is inside]
    return [(each.op, i) for each, i in reads] == [(linalg.matmul, 1)]


class Epilogue:
    """What is computed from each finished sum: loads and stores at (batch, m, n)."""

    def __init__(self, dtype: DType) -> None:
        self.recorder = Recorder()
        self.accumulator = self.recorder.append("accumulator", dtype)
        self.operands: list[tuple[Place, str, tuple[int, ...]]] = []
        self.numbers: list[Number] = []

    def _operand(self, place: Place, strides: tuple[int, ...], role: str) -> int:
        self.operands.append((place, role, strides))
        return len(self.operands) - 1

    def load(self, place: Place, strides: tuple[int, ...]) -> Any:
        """The element of a place at (batch, m, n)."""
        for number, (other, role, running) in enumerate(self.operands):
            if other is place and role == INPUT and running == strides:
                return self.recorder.load(number, place.dtype)
        return self.recorder.load(self._operand(place, strides, INPUT), place.dtype)

    def scalar(self, number: Number) -> Any:
        """A number given at run time."""
        self.numbers.append(number)
        value = self.recorder.scalar(len(self.numbers) - 1, number.passed)
        return value.cast(bool_) if number.dtype is bool_ else value

    def store(self, place: Place, value: Any, strides: tuple[int, ...]) -> None:
        """Write a value at (batch, m, n)."""
        self.recorder.store(self._operand(place, strides, OUTPUT), value.cast(place.dtype))


class Axes:
    """The loops of a product: batch dimensions, rows, columns, and the strides along them."""

    def __init__(self, shape: tuple[int, ...], k: int, strides: list[tuple[int, ...]]) -> None:
        self.batch = list(shape[:-2])
        self.m, self.n = shape[-2:]
        self.k = k
        self.strides: list[list[Any]] = [
            list(s) for s in strides
        ]  # per operand: batch..., then its own two

    def merge(self) -> None:
        """Drop batch dimensions of length 1 and join those that run on without a gap."""
        for d in range(len(self.batch) - 1, -1, -1):
            if self.batch[d] == 1:
                self._drop(d)
        for d in range(len(self.batch) - 1, 0, -1):
            extent = self.batch[d]
            if all(s[d - 1] == s[d] * extent for s in self.strides):
                self.batch[d] *= self.batch[d - 1]
                self._drop(d - 1)

    def rows_take_batch(self) -> bool:
        """Whether the last batch dimension can be more rows: a runs on, b stays."""
        if not self.batch:
            return False
        a, b, *others = self.strides
        last = len(self.batch) - 1
        runs_on = all(s[last] == s[last + 1] * self.m for s in (a, *others))
        if b[last] != 0 or not runs_on:
            return False
        self.m *= self.batch[last]
        self._drop(last)
        return True

    def _drop(self, d: int) -> None:
        del self.batch[d]
        for s in self.strides:
            del s[d]


def write_product(
    body: Graph,
    given: dict[Entry, Any],
    outputs: list[Place],
    means: Means,
) -> list[Kernel]:
    """The kernels of a fused body made of one matrix product and what follows it."""
    node = next(n for n in body.walk() if n.op is linalg.matmul)
    result = node.entries[0]
    a, b = (given[entry] for entry in node.inputs)
    a = a if len(a.shape) > 1 else a.reshaped((1, *a.shape))
    b = b if len(b.shape) > 1 else b.reshaped((*b.shape, 1))
    batch = result.shape[: result.ndim - (node.inputs[0].ndim > 1) - (node.inputs[1].ndim > 1)]
    shape = (*batch, a.shape[-2], b.shape[-1])
    epilogue = _written(body, node, given, outputs)
    spread = [
        _strided(place, strides, result.shape, shape) for place, _, strides in epilogue.operands
    ]
    axes = Axes(shape, a.shape[-1], [_batched(a, batch), _batched(b, batch), *spread])
    axes.merge()
    while axes.rows_take_batch():
        pass
    if len(axes.batch) > 2:
        return _dense(body, given, outputs, means, node, shape)
    several = _several(axes, result.dtype, means.target)
    a = _adjusted(axes, 0, a, means.copy)
    if several is None:
        b = _adjusted(axes, 1, b, means.copy)
    return _kernels(axes, (a, b), epilogue, result.dtype, means, several)


def _written(body: Graph, node: Any, given: dict[Entry, Any], outputs: list[Place]) -> Epilogue:
    """The epilogue's recording: everything in the body but the product itself."""
    result = node.entries[0]
    domain = Domain(result.shape)
    domain.placements[result] = tuple(range(result.ndim))
    epilogue = Epilogue(result.dtype)
    writer = ElementWriter(epilogue, domain, given)
    writer.ready[result] = epilogue.accumulator
    everywhere = tuple(range(result.ndim))
    for entry, place in zip(body.outputs, outputs, strict=True):
        value = writer.value(entry, aligned(everywhere, entry))
        epilogue.store(place, value, writer.strides(place, everywhere))
    return epilogue


def _strided(
    place: Place, strides: tuple[int, ...], short: tuple[int, ...], full: tuple[int, ...]
) -> tuple[int, ...]:
    """Strides along the result's axes, with those a 1-d input leaves out put back as 0."""
    if len(short) == len(full):
        return strides
    missing = len(full) - len(short)
    if missing == 2:
        return (*strides, 0, 0)
    row_kept = len(short) and short[-1] == full[-2] and full[-1] == 1
    return (*strides, 0) if row_kept else (*strides[:-1], 0, strides[-1])


def _batched(place: Place, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Batch strides (0 where it broadcasts), then the two of the matrix."""
    lead = len(batch) - (len(place.shape) - 2)
    own = zip(place.shape[:-2], place.strides[:-2], strict=True)
    return (*[0] * lead, *(0 if n == 1 else s for n, s in own), *place.strides[-2:])


def _runs(axes: Axes, which: int) -> str | None:
    """The axis of an operand whose stride is 1, or None."""
    row, column = axes.strides[which][-2:]
    if isinstance(row, layouts.Several) or isinstance(column, layouts.Several):
        return None
    rows, columns = ((axes.m, axes.k), (axes.k, axes.n))[which]
    names = ("m", "k") if which == 0 else ("k", "n")
    if column == 1 or columns == 1:
        return names[1]
    return names[0] if row == 1 or rows == 1 else None


def _several(axes: Axes, dtype: DType, target: Target) -> Several | None:
    """How b lies where its k or its columns run along several axes; None where they do not."""
    pairs = zip(axes.strides[1][-2:], (axes.k, axes.n), strict=True)
    k, n = (
        stride.axes if isinstance(stride, layouts.Several) else [(extent, stride)]
        for stride, extent in pairs
    )
    return Several.of(k, n, target.width // dtype.itemsize) if len(k) + len(n) > 2 else None


def _adjusted(axes: Axes, which: int, place: Place, copy: Callable[[Place], Place]) -> Place:
    """The operand itself, or a dense copy when neither axis of its matrix has stride 1."""
    if _runs(axes, which) is not None:
        return place
    dense_place = copy(place)
    rows, columns = ((axes.m, axes.k), (axes.k, axes.n))[which]
    lead = axes.strides[which][:-2]
    step = rows * columns
    for d in range(len(lead) - 1, -1, -1):
        if lead[d]:
            lead[d] = step
            step *= axes.batch[d]
    axes.strides[which] = [*lead, columns, 1]
    return dense_place


def _kernels(
    axes: Axes,
    sources: tuple[Place, Place],
    epilogue: Epilogue,
    dtype: DType,
    means: Means,
    several: Several | None,
) -> list[Kernel]:
    a_last, b_last = _runs(axes, 0) or "k", _runs(axes, 1) or "n"
    operands = tuple(
        Operand(place.dtype, role, _column_class(role, axes.strides[2 + i][-1], axes.n))
        for i, (place, role, _) in enumerate(epilogue.operands)
    )
    scalars = tuple(number.passed for number in epilogue.numbers)
    code = tuple(epilogue.recorder.code)
    contraction = Contraction(dtype, a_last, b_last, "", operands, scalars, code)
    batch = [*[1] * (2 - len(axes.batch)), *axes.batch]

    def padded(strides: list[int]) -> list[int]:
        return [*[0] * (2 - len(axes.batch)), *strides[:-2]]

    a, b = axes.strides[0], axes.strides[1]
    planned = steps(
        contraction,
        means.target,
        axes.m,
        axes.n,
        axes.k,
        (a[-2] if a_last == "k" else a[-1], *padded(a)),
        (0 if several else b[-2] if b_last == "n" else b[-1], *padded(b)),
        [(s[-2], s[-1], *padded(s)) for s in axes.strides[2:]],
        (batch[0], batch[1]),
        means.often,
        several,
    )
    places: dict[str, Any] = {"a": sources[0], "b": sources[1]}
    planned = _without_known(planned, places, means)
    places.update({f"operand {i}": place for i, (place, _, _) in enumerate(epilogue.operands)})
    written = {f"operand {i}" for i, o in enumerate(operands) if o.role == OUTPUT} | {"scratch"}
    return [_kernel(step, places, written, epilogue.numbers) for step in planned]


def _without_known(planned: list[Any], places: dict[str, Any], means: Means) -> list[Any]:
    """The steps but those that make panels which are there already; and where scratch is."""
    known: dict[tuple[str, int], str] = {}
    kept = []
    for step in planned:
        if not step.packs:
            step.buffers = [(known.get(each, each[0]), each[1]) for each in step.buffers]
        key = _panels(step, places.get(step.packs))
        if step.packs and key in means.packed:
            buffer, offset = means.packed[key]
            known["scratch", step.buffers[1][1]] = step.packs + " in panels"
            places[step.packs + " in panels"] = buffer, offset
        else:
            kept.append(step)
    if any(role == "scratch" for step in kept for role, _ in step.buffers):
        places["scratch"] = means.reserve(planned[0].scratch)
        for step in kept:
            if step.packs:
                key = _panels(step, places[step.packs])
                means.packed[key] = places["scratch"], step.buffers[1][1]
    return kept


def _panels(step: Any, place: Any) -> str:
    """What panels are of, and how they are made: the same for the same contents."""
    if place is None:
        return ""
    layout = place.layout
    made = step.contraction.text, step.integers
    return repr((id(place.buffer), layout.offset, layout.strides, layout.shape, *made))


def _column_class(role: str, stride: int, n: int) -> int:
    """The stride class along n; a result of one column counts as contiguous."""
    return CONTIGUOUS if role == OUTPUT and n == 1 else stride_class(stride)


def _kernel(step: Any, places: dict[str, Any], written: set[str], numbers: list[Number]) -> Kernel:
    buffers = []
    for role, offset in step.buffers:
        place = places[role]
        buffers.append(place if isinstance(place, tuple) else (place, offset))
    writes = [role in written for role, _ in step.buffers]
    kernel = Kernel(step.contraction, buffers, writes, list(step.integers), step.extent, step.chunk)
    if step.scalars >= 0:
        kernel.scalars = [(step.scalars + i, number) for i, number in enumerate(numbers)]
    kernel.cost = step.cost
    kernel.packs = bool(step.packs)
    return kernel


def _dense(
    body: Graph,
    given: dict[Entry, Any],
    outputs: list[Place],
    means: Means,
    node: Any,
    shape: tuple[int, ...],
) -> list[Kernel]:
    """Batch axes that do not merge: both operands repeated in full, then they do."""
    again = dict(given)
    for entry in node.inputs:
        place = given[entry]
        matrix = place.shape[-2:] if len(place.shape) > 1 else place.shape
        full = (*shape[:-2], *matrix)
        lead = len(full) - len(place.shape)
        strides = (
            *[0] * lead,
            *(0 if n == 1 else s for n, s in zip(place.shape, place.strides, strict=True)),
        )
        again[entry] = means.copy(place.at(Layout(full, strides, place.layout.offset)))
    return write_product(body, again, outputs, means)
