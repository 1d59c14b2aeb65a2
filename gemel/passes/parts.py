"""in_parts: long reductions to few results, in two steps, so that all cores have a share.

A kernel is divided over cores along the results. A sum of a million elements is one result. Here it
becomes the sum of the sums of its parts. Which parts there are depends on the shape alone, so the
bits of the result do, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from gemel.extent import same_for_all
from gemel.ir.graph import Entry, Graph, Node, rewrite
from gemel.ir.op_kinds import Elementwise, Reduction
from gemel.ops import elementwise, shape
from gemel.passes.domain import is_mover, is_view
from gemel.passes.simplify import part_of
from gemel.spec import normalize_axes, product

#: From this many elements on, parts pay: one core takes some twenty microseconds for fewer.
LONG = 1 << 18
#: With fewer results than this, or up to this many bytes of them along contiguous columns, a kernel
#: cannot keep several cores busy, or reads short pieces of many lines.
FEW, NARROW = 8, 2048
#: How many parts an axis is cut into.
PARTS = 32
#: An axis of this many positions gives the parts, one for each, if each of them reduces so many
#: positions and has so many elements.
LEAST, MOST, DEPTH, ELEMENTS = 16, 4096, 16, 256
#: What joins the results of two parts, by what a reduction combines its elements with.
JOINED = {
    "sum": elementwise.add,
    "prod": elementwise.multiply,
    "max": elementwise.maximum,
    "min": elementwise.minimum,
}


#: Makes a part of an entry along an axis.
Part = Callable[[Entry, int], Entry]
#: The parts of entries so far, by what makes them. Reductions that read one array read the same
#: parts of it, so they can share kernels.
Parts = dict[tuple[str, Entry, int], Entry]


def in_parts(graph: Graph) -> Graph:
    """Replace long reductions to few results by reductions of parts, and one of their results."""
    uses = graph.uses()
    parts: Parts = {}

    def divided(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        if not isinstance(node.op, Reduction) or node.op.combine not in JOINED:
            return None
        (x,) = inputs
        axes = normalize_axes(node.op.name, node.params["axis"], x.ndim)
        if x.dtype.kind == "c" or not axes or not _pays(x, axes):
            return None
        with part_of(node):
            return _Division(node, x, axes, uses, parts).result()

    return rewrite(graph, divided)


def _pays(x: Entry, axes: tuple[int, ...]) -> bool:
    """Whether the results are too few for several cores, and the elements enough. For free sizes
    this sets a guard, unless what is known decides."""
    results = product([n for i, n in enumerate(x.shape) if i not in axes])
    columns = x.ndim - 1 not in axes
    few = NARROW // x.dtype.itemsize if columns else FEW - 1
    reduced = product([x.shape[i] for i in axes])
    if type(reduced) is int and reduced * few < LONG or type(results) is int and results > few:
        return False
    return bool(product(x.shape) >= LONG and results <= few)


class _Division:
    """A reduction of `x` over `axes` that is computed in parts."""

    def __init__(
        self, node: Node, x: Entry, axes: tuple[int, ...], uses: Counter[Entry], parts: Parts
    ) -> None:
        assert isinstance(node.op, Reduction)
        self.parts = parts
        self.op: Any = node.op
        self.source, self.uses = node.inputs[0], uses
        self.axes, self.keepdims = axes, node.params["keepdims"]
        self.spec = node.specs[0]
        #: Partial sums of float16 and bfloat16 are not rounded.
        self.wide = self.op.accumulator(x.dtype) if x.dtype.is_floating else x.dtype
        self.x = x

    def result(self) -> tuple[Entry, ...] | None:
        """The new result; None if no axis is long enough to be cut."""
        first, *others = self.axes
        if others and self._gives_parts(first, others):
            partial = self.op(self._widened(self.x), axis=tuple(others), keepdims=True)
            return (self._finished(self._reduced(partial)),)
        longest = first
        for axis in others:
            longest = axis if self.x.shape[axis] > self.x.shape[longest] else longest
        own = self._own(self.x.ndim - longest)
        if own is None or not self.x.shape[longest] >= PARTS * PARTS:
            return None
        return (self._finished(self._cut(longest, own)),)

    def _gives_parts(self, first: int, others: list[int]) -> bool:
        """Whether the first axis has parts enough, and each is long enough."""
        count, reduced = self.x.shape[first], product([self.x.shape[axis] for axis in others])
        if not count >= LEAST or not count <= MOST or not reduced >= DEPTH:
            return False
        return bool(product(self.x.shape) >= ELEMENTS * count)

    def _cut(self, axis: int, own: list[Entry]) -> Entry:
        """The reduction, by parts of an axis, and of what is left of it; `own` is computed for it
        alone."""
        length = self.x.shape[axis] // PARTS
        done = PARTS * length

        def in_rows(entry: Entry, place: int) -> Entry:
            whole = shape.narrow(entry, axis=place, start=0, length=done)
            return _reshaped(whole, place, 1, (PARTS, length))

        one = lambda x, place: _reshaped(x, place, 1, (1, 1))  # noqa: E731
        rows = self._taken(own, axis, self._once("rows", in_rows), self._once("one", one))
        inner = tuple(a + 1 if a >= axis else a for a in self.axes)
        partial = self.op(self._widened(rows), axis=inner, keepdims=True)
        found = self._reduced(_reshaped(partial, axis, 2, (PARTS,)))
        left = self.x.shape[axis] - done
        if left == 0:
            return found

        def behind(entry: Entry, place: int) -> Entry:
            part: Entry = shape.narrow(entry, axis=place, start=done, length=left)
            return part

        tail = self._taken(own, axis, self._once("rest", behind), lambda x, place: x)
        joined: Entry = JOINED[self.op.combine](found, self._reduced(self._widened(tail)))
        return joined

    def _once(self, name: str, make: Part) -> Part:
        """`make`, whose parts are made once and kept under a name."""

        def made(entry: Entry, place: int) -> Entry:
            key = name, entry, place
            if key not in self.parts:
                self.parts[key] = make(entry, place)
            return self.parts[key]

        return made

    def _reduced(self, x: Entry) -> Entry:
        found: Entry = self.op(x, axis=self.axes, keepdims=self.keepdims)
        return found

    def _widened(self, x: Entry) -> Entry:
        return x if x.dtype is self.wide else elementwise.cast(x, dtype=self.wide)

    def _finished(self, x: Entry) -> Entry:
        return x if x.dtype is self.spec.dtype else elementwise.cast(x, dtype=self.spec.dtype)

    def _taken(self, own: list[Entry], axis: int, part: Part, single: Part) -> Entry:
        """A part of `x` along an axis; `single` is what becomes of an axis of length 1.

        What is computed for this reduction alone (`own`) is computed from parts of its own inputs.
        So it still shares the reduction's kernel.
        """
        from_end = self.x.ndim - axis
        taken: dict[Entry, Entry] = {}

        def taken_of(entry: Entry) -> Entry:
            place = entry.ndim - from_end
            if entry in taken or place < 0:
                return taken.get(entry, entry)
            return (single if same_for_all(entry.shape[place], 1) else part)(entry, place)

        for entry in reversed(own):
            node = entry.node
            assert node.op is not None
            inputs = tuple(map(taken_of, node.inputs))
            made = node.op.node(inputs, node.params)
            made.name, made.origin, made.part = node.name, node.origin, node.part
            taken[entry] = made.entries[0]
        return taken_of(self.x)

    def _own(self, from_end: int) -> list[Entry] | None:
        """What is computed for this reduction alone, each before what it is computed from, as far
        as it has the axis so far from the end. None if some of it cannot be cut: without parts it
        needs no memory."""
        found = []
        following = [(self.source, self.x)]
        while following:
            # How `old` is used is known; `new` is the same in the new graph.
            old, new = following.pop()
            place = new.ndim - from_end
            if place < 0 or same_for_all(new.shape[place], 1) or self.uses[old] > 1:
                continue
            if _is_local(old.node):
                found.append(new)
                following += zip(old.node.inputs, new.node.inputs, strict=True)
            elif _is_of_elements(old.node):
                return None
        return found


def _is_local(node: Node) -> bool:
    """Whether an element of the only result depends on those of the inputs in its place alone."""
    op = node.op
    if not isinstance(op, Elementwise) or op.random or op.positional or op.fails:
        return False
    return "shape" not in op.parameters and len(node.entries) == 1


def _is_of_elements(node: Node) -> bool:
    """Whether the kernel that reads a result can compute its elements itself."""
    return isinstance(node.op, Elementwise) or is_mover(node) and not is_view(node)


def _reshaped(x: Entry, axis: int, count: int, extents: tuple[int, ...]) -> Entry:
    """`x` with other extents in place of `count` axes."""
    found: Entry = shape.reshape(x, shape=(*x.shape[:axis], *extents, *x.shape[axis + count :]))
    return found


__all__ = ["in_parts"]
