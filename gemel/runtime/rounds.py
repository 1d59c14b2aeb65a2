"""Lowering of loops (`loop` nodes, which are scans) and of branches.

The body of a loop is lowered once for all rounds. Whatever moves from round to round is a `Window`,
a buffer whose address changes: element t of the data, element t of an output. A state has two
places that are used in turn (`DoubleBuffer`); or, if an output stacks it, each round reads what the
round before stacked (`Stacked`). A loop without states becomes two loops that run side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gemel.codegen.language.launch import Launch, Place
from gemel.extent import same_for_all, seen
from gemel.ir.graph import Entry, Graph, Node
from gemel.ir.layout import Layout, dense
from gemel.ir.loops import LoopSpec
from gemel.runtime.concurrent import WORTH, Branch, Concurrent, flat
from gemel.runtime.image import TEMPORARY, WINDOW, Buffer
from gemel.spec import product

if TYPE_CHECKING:
    from gemel.runtime.emission import Emission
    from gemel.runtime.lower import Lowering

#: The distance between the two places of a state is a multiple of this many elements.
APART = 64


class Window(Buffer):
    """A buffer that moves by `step` bytes in each round; with a `period` n, over n places in turn.

    With a `start` it equals that window in the first round, and lags one round behind from then on.
    """

    __slots__ = ("depth", "of", "offset", "period", "start", "step")

    def __init__(self, of: Buffer, offset: int, step: int, period: int, depth: int) -> None:
        super().__init__(WINDOW, -1, strided=of.strided)
        self.of = of
        self.offset = offset
        self.step = step
        self.period = period
        self.depth = depth
        self.start: Window | None = None

    @property
    def root(self) -> Buffer:
        """The block of memory it moves over."""
        return self.of.root


class Repeat:
    """Items that run `length` times, and the windows they use; becomes an `image.Loop`.

    With a condition a round runs only if that byte is not 0, and `after` runs once at the end.
    """

    __slots__ = ("after", "condition", "items", "length", "node", "time", "windows")

    def __init__(
        self,
        length: int,
        windows: list[Window],
        items: list[Any],
        node: Node,
        time: int,
        condition: Place | None,
        after: list[Any],
    ) -> None:
        self.length = length
        self.windows = windows
        self.items = items
        self.condition = condition
        self.after = after
        self.node = node
        self.time = time

    def numbered(self, first: int) -> int:
        """Number the windows from `first` on. Returns the next number."""
        for index, window in enumerate(self.windows, start=first):
            window.index = index
        return first + len(self.windows)

    def period_of(self, window: Window) -> int:
        """A window's period in the format of images: see `image.Loop`."""
        if window.start is None:
            return window.period
        return -1 - self.windows.index(window.start)

    @property
    def fails(self) -> bool:
        """Whether one of its items may fail."""
        return any(item.fails for item in flat(self.items))

    @property
    def fills_cores(self) -> bool:
        """Whether one of its items fills all cores."""
        return any(item.fills_cores for item in flat([*self.items, *self.after]))

    @property
    def cost(self) -> int:
        """The nanoseconds that all rounds take at most, for the traced sizes."""
        once: int = sum(item.cost for item in flat(self.items))
        return seen(self.length) * once

    def touches(self) -> Iterator[tuple[Any, bool]]:
        """The buffers its items use, and whether they are written."""
        for item in flat([*self.items, *self.after]):
            yield from item.touches()
        if self.condition is not None:
            yield self.condition.buffer.root, False
        for window in self.windows:
            if window.start is not None:
                yield window.start.root, False


class Rounds:
    """A loop being lowered, perhaps inside of another one.

    Buffers from before the loop that a round uses stay alive until the loop's end. Panels of
    factors that are the same in all rounds are packed before the loop (`ahead`).
    """

    def __init__(self, emission: Emission) -> None:
        self.emission = emission
        self.outer: Rounds | None = emission.inside
        self.depth: int = 0 if self.outer is None else self.outer.depth + 1
        self.known = len(emission.temporaries)
        self.used: set[Buffer] = set()
        self.moved: set[Buffer] = set()
        self.before: list[Any] = []
        self.items: list[Any] = []
        self.windows: list[Window] = []
        self.start = emission.tick()
        self.outside = emission.begin()
        emission.inside = self

    def is_invariant(self, buffer: Buffer) -> bool:
        """Whether a buffer has the same contents in all rounds."""
        if isinstance(buffer, Window):
            return buffer.depth < self.depth
        return buffer in self.moved or buffer.space != TEMPORARY or buffer.index < self.known

    def use(self, buffer: Buffer) -> None:
        """Note that a round uses a block of memory."""
        if self.is_invariant(buffer):
            self.used.add(buffer)
        if self.outer is not None:
            self.outer.use(buffer)

    def ahead(self, launch: Launch) -> bool:
        """Whether a launch that packs panels can run before the loop; if so, notes its buffers."""
        source = launch.places[0]
        if not isinstance(source, Place) or not self.is_invariant(source.buffer):
            return False
        (panels,) = (place for place, w in zip(launch.places, launch.written, strict=True) if w)
        self.moved.add(panels)
        self.used.add(panels)
        return True

    def window(self, of: Buffer, offset: int, step: int, period: int = 0) -> Window:
        """A new window."""
        self.windows.append(Window(of, offset, step, period, self.depth))
        return self.windows[-1]

    def along(self, place: Place, length: int, reverse: bool) -> Place:
        """A window over the first axis of a place: one element in each round."""
        size, (stride, *strides) = place.dtype.itemsize, place.strides
        first = place.layout.offset + ((length - 1) * stride if reverse else 0)
        step = (-stride if reverse else stride) * size
        window = self.window(place.buffer, first * size, step)
        return Place(window, place.dtype, Layout(place.shape[1:], strides, 0))

    def round_ends(self) -> None:
        """End the body: what is emitted from now on runs once, after all rounds."""
        self.items = self.emission.taken()

    def finish(self, length: int, node: Node, condition: Place | None = None) -> Repeat:
        """The loop as an item. Panels that were packed before it remain available after it."""
        emission = self.emission
        panels = {key: made for key, made in emission.packed.items() if made in self.moved}
        items, after = emission.side_by_side(self.items), emission.taken()
        if condition is not None:
            emission.touch(condition.buffer, emission.time)
        time = emission.tick()
        emission.resume(self.outside)
        emission.inside = self.outer
        for buffer in self.used:
            emission.touch(buffer, self.start)
            emission.touch(buffer, time)
        emission.items += self.before
        emission.packed.update(panels)
        return Repeat(length, self.windows, items, node, time, condition, after)


class Stacked:
    """A state that an output stacks: a round reads it where the round before stacked it."""

    def __init__(self, lowering: Lowering, first: Place, place: Place, reverse: bool) -> None:
        self.emission, self.place, self.reverse = lowering.emission, place, reverse
        self.first = lowering.contiguous(first)

    def after(self, rounds: int) -> Place:
        """Its place after `rounds` rounds, at least one."""
        return _element(self.place, 0 if self.reverse else rounds - 1)

    def found(self, loop: Rounds, rounds: int) -> Place:
        """The place where a round reads it."""
        offset = self.first.layout.offset * self.first.dtype.itemsize
        begin = loop.window(self.first.buffer, offset, 0)
        self.emission.touch(begin, self.emission.time)
        window = loop.along(self.place, rounds, self.reverse)
        window.buffer.start = begin
        return window


def _element(place: Place, number: int) -> Place:
    """One element along the first axis."""
    stride, *strides = place.strides
    return place.at(Layout(place.shape[1:], strides, place.layout.offset + number * stride))


class DoubleBuffer:
    """A state with two places: a round reads one and writes the other, in turn."""

    def __init__(self, lowering: Lowering, first: Place) -> None:
        self.dtype, self.shape = first.dtype, first.shape
        self.apart = -(-product(first.shape) // APART) * APART
        self.buffer = lowering.emission.scratch(2 * self.apart * first.dtype.itemsize)
        lowering.copy(first, self.after(0))

    def after(self, rounds: int) -> Place:
        """Its place after `rounds` rounds."""
        layout = dense(self.shape)
        offset = (rounds % 2) * self.apart
        return Place(self.buffer, self.dtype, Layout(layout.shape, layout.strides, offset))

    def windows(self, loop: Rounds) -> tuple[Place, Place]:
        """The places where a round reads it, and where it writes it for the next round."""
        step, layout = self.apart * self.dtype.itemsize, dense(self.shape)
        windows = loop.window(self.buffer, 0, step, 2), loop.window(self.buffer, step, -step, 2)
        return Place(windows[0], self.dtype, layout), Place(windows[1], self.dtype, layout)


def lower_rounds(
    lowering: Lowering,
    outputs: list[Place],
    inputs: list[Place],
    spec: LoopSpec,
) -> None:
    """Emit a loop: the `loop` node being lowered, with its parameters."""
    emission = lowering.emission
    node, length, reverse = emission.node, spec.length, spec.reverse
    spec = spec._replace(step=lowering.inner_graphs.of(spec.step))
    all_rounds, count = spec.asked is None, len(spec.outputs)
    shared = [lowering.where[entry] for entry in node.inputs[spec.data + spec.states :]]
    if all_rounds and not spec.states and emission.inside is None:
        emission.add(_independent(lowering, outputs, inputs[: spec.data], spec, shared))
        return
    stacked = _stacked(spec.outputs) if all_rounds else {}
    carried = [
        Stacked(lowering, place, outputs[stacked[after]], reverse)
        if after in stacked
        else DoubleBuffer(lowering, place)
        for place, after in zip(inputs[spec.data :], spec.after, strict=False)
    ]
    for place in outputs[:count] if not all_rounds else ():
        lowering.fill(place, 0)  # rounds that are not run leave zeros
    loop = Rounds(emission)
    elements = [loop.along(place, length, reverse) for place in inputs[: spec.data]]
    targets = [loop.along(place, length, reverse) for place in outputs[:count]]
    pairs = [
        (state.found(loop, length), targets[stacked[after]])
        if isinstance(state, Stacked)
        else state.windows(loop)
        for state, after in zip(carried, spec.after, strict=True)
    ]
    given = (*elements, *(read for read, _ in pairs), *shared)
    _emit_round(lowering, loop, spec, given, [*targets, *(left for _, left in pairs)])
    if all_rounds:
        emission.add(loop.finish(length, node))
    for state, (read, _), place in zip(carried, pairs, outputs[count:], strict=True):
        lowering.copy(state.after(length) if all_rounds else read, place)
    if spec.asked is not None:
        emission.add(loop.finish(length, node, lowering.where[spec.asked]))


def _emit_round(
    lowering: Lowering, loop: Rounds, spec: LoopSpec, given: Sequence[Any], targets: list[Place]
) -> None:
    """Emit the body of a loop, for these inputs of a round."""
    node = lowering.emission.node
    lowering.where.update(zip(spec.step.inputs, given, strict=True))
    lowering.emit_into(spec.step, targets)
    lowering.emission.node = node
    loop.round_ends()


def _independent(
    lowering: Lowering, outputs: list[Place], inputs: list[Place], spec: LoopSpec, shared: list[Any]
) -> Any:
    """A loop without states, in two halves that run side by side with memory of their own; as one
    item if that is not worth it. An item that may fail must not run beside another one of its node.
    All rounds go forwards, so that the first half can become the whole: the order does not matter.
    """
    emission = lowering.emission
    begun, half = emission.time, (spec.length + 1) // 2

    def part(first: int, count: int) -> Repeat:
        loop = Rounds(emission)
        given, targets = (
            [loop.along(place.narrow(0, first, count), count, False) for place in places]
            for places in (inputs, outputs)
        )
        _emit_round(lowering, loop, spec, (*given, *shared), targets)
        return loop.finish(count, emission.node)

    found = part(0, half)
    if same_for_all(half, spec.length) or found.fails or found.cost < WORTH:
        found.length = spec.length
        return found
    both = Concurrent([[found], [part(half, spec.length - half)]])
    emission.span(both, begun + 1, emission.time)
    return both


def _stacked(outputs: Sequence[Entry]) -> dict[Entry, int]:
    """For each entry that outputs stack, the number of the first such output."""
    numbers: dict[Entry, int] = {}
    for number, entry in enumerate(outputs):
        if entry.node.op is not None:
            numbers.setdefault(entry, number)
    return numbers


# --- branches -------------------------------------------------------------------------------


def lower_branch(
    lowering: Lowering,
    predicate: Place,
    sides: tuple[Graph, Graph],
    inputs: list[Place],
    outputs: list[Place],
) -> None:
    """Emit a branch: one of two graphs on the same inputs, chosen when the plan runs."""
    emission = lowering.emission
    start, node = emission.time, emission.node
    first, second = (_side(lowering, graph, inputs, outputs) for graph in sides)
    emission.node = node
    emission.items.append(Branch(predicate, first, second, node, emission.time))
    # Buffers of both sides stay alive throughout: only one side runs, but both have memory.
    emission.touch(predicate.buffer, start)
    for place in (*inputs, *outputs):
        emission.touch(place.buffer, start)
        emission.touch(place.buffer, emission.time)


def _side(lowering: Lowering, graph: Graph, inputs: list[Place], outputs: list[Place]) -> list[Any]:
    outside = lowering.emission.begin()  # what one side packs does not exist if the other runs
    graph = lowering.inner_graphs.of(graph)
    lowering.where.update(zip(graph.inputs, inputs, strict=True))
    lowering.emit(graph)
    for entry, place in zip(graph.outputs, outputs, strict=True):
        lowering.copy(lowering.place_of(entry), place)
    side = lowering.emission.taken()
    lowering.emission.resume(outside)
    return side


__all__ = ["Repeat", "Rounds", "Window", "lower_branch", "lower_rounds"]
