"""Lowering: an optimized graph to a plan, a list of kernel launches with memory for each.

The nodes are emitted as they are `arranged`: a view becomes strides over its input's memory (no
kernel); a fused node is written by `gemel.codegen` as one or more launches; another operation's
`lower` rule writes its own. Results are computed directly in the output's memory where possible
(`claimed`). Everything else goes to temporaries, whose life spans (`Buffer.first` to `last`) let
the core share one workspace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from gemel.codegen.contract.product import OFTEN, Workspace, factor, is_only_factor, write_product
from gemel.codegen.language.body import read_across
from gemel.codegen.language.lane import naming
from gemel.codegen.language.launch import Number, Place
from gemel.codegen.language.nest import Nest
from gemel.dtype import DType, float64
from gemel.errors import FormulaError, NoKernelError
from gemel.extent import Guard, same_for_all
from gemel.ir.graph import Entry, Graph, Node
from gemel.ir.layout import Layout, MixedStride, broadcast_strides, dense, mixed_strides
from gemel.passes.arrange import arranged
from gemel.passes.domain import gathers, is_product, joins
from gemel.passes.fuse import can_fail, fused
from gemel.runtime.backend import Backend
from gemel.runtime.cache import Compilation
from gemel.runtime.concurrent import behind, flat
from gemel.runtime.emission import Emission
from gemel.runtime.image import (
    CAPTURED,
    FAILS,
    INPUT,
    OUTPUT,
    READ,
    WRITTEN,
    Buffer,
    Image,
    Input,
    Kept,
    Output,
    Result,
    Temporary,
    free_sizes,
    spanned,
)
from gemel.runtime.items import Items
from gemel.runtime.kept import made_of, split
from gemel.runtime.overwriting import InputReaders
from gemel.runtime.reuse import LaunchCache, OptimizedCache
from gemel.runtime.rounds import lower_branch, lower_rounds
from gemel.runtime.rule_nest import RuleNest
from gemel.runtime.sites import Site, find_sites
from gemel.spec import product

#: A part of a concatenation is computed in its place if runs of this many elements are contiguous.
RUN = 16


class Lowering:
    """The lowering of one optimized graph for a backend.

    `layouts` has the layouts of inputs that are not dense, by position. Extents may be free;
    `guards` has the guards on them, and collects more. `atomic`: an updated input keeps its old
    contents if the new ones cannot be computed; otherwise it fails as results do. `stable` are the
    positions of inputs that rarely change: what depends on them alone is kept from run to run
    (`runtime.kept`); None keeps nothing. A run uses at least `random` call numbers, including those
    of draws that are not read. `early` outputs are to be ready before the plan ends.
    """

    def __init__(
        self,
        graph: Graph,
        backend: Backend,
        layouts: dict[int, Layout] | None = None,
        guards: Sequence[Guard] = (),
        atomic: bool = True,
        stable: Sequence[int] | None = None,
        random: int = 0,
        early: Sequence[int] = (),
    ) -> None:
        self.graph, self.early = graph, frozenset(early)
        self.order = arranged(graph)
        self.fixed = None if stable is None else made_of(graph, stable)
        self.guards = guards
        self.atomic = atomic
        self.backend = backend
        self.where: dict[Entry, Any] = {}
        self.captured: list[Any] = []
        self.emission = Emission(random)
        self.scalars = 0
        #: How many products have each entry as second operand.
        self.factors = Counter(factor(node) for node in graph.walk())
        self.users = graph.readers()
        self.results = set(graph.results)
        self.launches, self.inner_graphs = LaunchCache(), OptimizedCache(backend.passes())
        self.inputs: list[Input] = []
        self._take_inputs(layouts or {})
        self.outputs = [Buffer(OUTPUT, i) for i in range(len(graph.outputs))]
        #: Where entries are to be computed, if not in a temporary.
        self.claimed: dict[Entry, Place] = {}
        self._claim_results()

    # --- what comes in and goes out ---------------------------------------------------------

    def _take_inputs(self, layouts: dict[int, Layout]) -> None:
        for position, entry in enumerate(self.graph.inputs):
            if entry.spec.weak:
                self.where[entry] = Number(("argument", self.scalars), entry.dtype)
                self.scalars += 1
                continue
            layout = layouts.get(position) or dense(entry.shape)
            buffer = Buffer(INPUT, len(self.inputs), strided=position in layouts)
            strides = None if position not in layouts else layout.strides
            self.inputs.append(Input(entry.dtype.code, entry.shape, strides))
            self.where[entry] = Place(buffer, entry.dtype, Layout(layout.shape, layout.strides, 0))

    def _claim_results(self) -> None:
        """Let results be computed in the memory of outputs and updated inputs, where possible."""
        for buffer, entry in zip(self.outputs, self.graph.outputs, strict=True):
            root = self._root(entry)
            if self._computed(root) and root not in self.claimed and root.dtype is entry.dtype:
                self.claimed[root] = Place(buffer, root.dtype, dense(root.shape))
        read = {*self.users, *self.results}
        readers = InputReaders(self.graph, self.order)
        for index, entry in self.graph.updates:
            old, root = self.graph.inputs[index], self._root(entry)
            if self.atomic and root.node.op is fused and can_fail(root.node):
                continue  # it must keep its old contents on failure: it is written in a later step
            if old not in read and self._computed(root) and root not in self.claimed:
                # The old contents are never read (a gradient): compute the new ones over them.
                self.claimed[root] = Place(self.where[old].buffer, root.dtype, dense(root.shape))
            elif entry not in self.claimed and readers.can_overwrite(old, entry):
                self.claimed[entry] = self.where[old]

    def _computed(self, entry: Entry) -> bool:
        """Whether a kernel computes an entry: it is not an input, constant or view."""
        op = entry.node.op
        return op is not None and op.rules.view is None

    def _root(self, entry: Entry) -> Entry:
        """The entry behind reshapes."""
        while entry.node.op is not None and entry.node.op.alignment == "reshape":
            entry = entry.node.inputs[0]
        return entry

    # --- nodes ------------------------------------------------------------------------------

    def made(self) -> Image:
        """The image of the plan. Kernels are compiled by threads while others are emitted."""
        with Compilation(self.backend) as compilation:
            self.emission.compilation = compilation
            self.run()
            return self.image()

    def run(self) -> None:
        """Emit every node, then move results that were not computed in place."""
        self.emit(self.graph)
        for buffer, entry in zip(self.outputs, self.graph.outputs, strict=True):
            place = self.claimed.get(self._root(entry))
            if place is None or place.buffer is not buffer:
                self.emission.node = entry.node
                self._deliver(entry, Place(buffer, entry.dtype, dense(entry.shape)))
        self._write_updates()

    def _write_updates(self) -> None:
        """Write the updates that were not computed in place.

        If the new value is itself an input that is written (x, y = y, x), it is copied before.
        """
        moves = []
        written = {self.where[self.graph.inputs[index]].buffer for index, _ in self.graph.updates}
        for index, entry in self.graph.updates:
            target = self.where[self.graph.inputs[index]]
            claimed = self.claimed.get(self._root(entry))
            if claimed is not None and claimed.buffer is target.buffer:
                continue
            self.emission.node = entry.node
            source = self.place_of(entry)
            if source.buffer in written:
                source = self.temporary(entry.dtype, entry.shape)
                self.copy(self.place_of(entry), source)
            moves.append((entry.node, source, target))
        for node, source, target in moves:
            self.emission.node = node
            self.copy(source, target)

    def _writers(self, entry: Entry, index: int) -> set[Node]:
        """The nodes whose kernels write an update's target directly; none if it is copied there."""
        target = self.where[self.graph.inputs[index]]
        entries = {self._root(entry), entry}
        return {
            e.node for e in entries if e in self.claimed and self.claimed[e].buffer is target.buffer
        }

    def emit(self, graph: Graph) -> None:
        """Emit every node of a graph whose inputs have their places, as they are `arranged`."""
        parts = self._claim_parts(graph)
        for node in self.order if graph is self.graph else arranged(graph):
            if node.is_constant:
                if node.entries[0] not in self.where:  # a loop's body may be emitted twice
                    self._constant(node)
            elif node.op is not None:
                self._emit(node)
        for entry in parts:
            del self.claimed[entry]

    def emit_into(self, graph: Graph, targets: Sequence[Place]) -> None:
        """Emit a graph: its results are computed at the targets, or moved there."""
        claimed: dict[Entry, Place] = {}
        for entry, target in zip(graph.outputs, targets, strict=True):
            root = self._root(entry)
            if self._computed(root) and root.dtype is entry.dtype:
                claimed.setdefault(root, target.at(dense(root.shape)))
        self.claimed.update(claimed)
        self.emit(graph)
        for entry, target in zip(graph.outputs, targets, strict=True):
            place = claimed.get(self._root(entry))
            if place is None or place.buffer is not target.buffer:
                self.emission.node = entry.node
                self._deliver(entry, target)
        for entry in claimed:
            del self.claimed[entry]

    def _claim_parts(self, graph: Graph) -> list[Entry]:
        """Let the inputs of concatenations be computed in their parts of the result.

        Returns the entries that were claimed.
        """
        claimed: list[Entry] = []
        uses = graph.uses()
        for node in graph.walk():
            joined = joins(node)
            (whole, *_) = node.entries
            # Nodes that write parts of one buffer could not run side by side.
            makers = {entry.node for entry in node.inputs if self._made(entry)}
            if not (gathers(node) or (joined and len(makers) == 1)):
                continue
            if whole not in self.claimed:
                self.claimed[whole] = self.temporary(whole.dtype, whole.shape)
                claimed.append(whole)
            places = self._parts(node, self.claimed[whole])
            for part, there in zip(node.inputs, places, strict=True):
                fits = self._made(part) and part.dtype is whole.dtype
                fits = fits and not (joined and (uses[part] > 1 or not there.layout.in_runs(RUN)))
                if fits:
                    self.claimed[part] = there
                    claimed.append(part)
        return claimed

    def _made(self, entry: Entry) -> bool:
        """Whether a fused node computes an entry, and no place is claimed for it yet."""
        return entry.node.op is fused and entry not in self.claimed

    def _parts(self, node: Node, whole: Place) -> list[Place]:
        """The places in the result `whole` of the inputs of a concatenation."""
        while node.op is fused:
            node = node.params["body"].outputs[0].node
        assert node.op is not None
        specs = [entry.spec for entry in node.inputs]
        return [whole.at(layout) for layout, _ in node.op.parts(whole.layout, specs, node.params)]

    def _constant(self, node: Node) -> None:
        entry = node.entries[0]
        if node.is_number:
            self.where[entry] = Number(("constant", node.value), entry.dtype)
            return
        buffer = Buffer(CAPTURED, len(self.captured))
        memory, offset = spanned(node.value)
        self.captured.append(memory)
        self.where[entry] = Place(
            buffer, entry.dtype, Layout(entry.shape, node.value._element_strides, offset)
        )

    def _emit(self, node: Node) -> None:
        """Emit one operation: a view, a fused node, or one with a rule of its own."""
        op = node.op
        assert op is not None
        self.emission.node = node
        if op is not fused and not node.has_kernel:
            raise NoKernelError(f"{op.name} is computed by NumPy, so it cannot be part of an image")
        if op.rules.view is not None:
            self._view(node)
            return
        outputs = [self._new(entry) for entry in node.entries]
        if op is fused:
            self._fused(node, outputs)
        else:
            self._by_rule(node, outputs)
        for entry, place in zip(node.entries, outputs, strict=True):
            self.where[entry] = place

    def _by_rule(self, node: Node, outputs: list[Place]) -> None:
        """What an operation's `lower` rule writes. Raises `FormulaError` if it leaves an output
        without a value, and see `naming`."""
        op = node.op
        assert op is not None and op.rules.lower is not None
        with naming(op.name, Place, RuleNest):
            op.rules.lower(self, outputs, [self.place_of(e) for e in node.inputs], **node.params)
        for spec, place in zip(node.specs, outputs, strict=True):
            # Parts of a result may have been computed in their places before.
            if place.buffer.root.last < 0 and not same_for_all(spec.size, 0):
                raise FormulaError(
                    f"{op.name}: its lower rule writes nothing to its result {spec}; store each "
                    "element in a loop, and finish the loop"
                )

    def _new(self, entry: Entry) -> Place:
        return self.claimed.get(entry) or self.temporary(entry.dtype, entry.shape)

    def _view(self, node: Node) -> None:
        assert node.op is not None
        source = self.place_of(node.inputs[0])
        layouts = node.op.layouts(source.layout, node.specs, node.params)
        if layouts is None:
            layouts = self._mixed_layout(node, source.layout)
        if layouts is None:
            source = self.contiguous(source)
            layouts = node.op.layouts(source.layout, node.specs, node.params)
            assert layouts is not None
        for entry, layout in zip(node.entries, layouts, strict=True):
            self.where[entry] = source.at(layout)

    def _mixed_layout(self, node: Node, layout: Layout) -> tuple[Layout] | None:
        """The layout of a reshape that merges strided axes (`MixedStride`), if only products that
        can read such a layout use it; else None, and the elements are copied."""
        (entry,) = node.entries
        users = self.users.get(entry, [])
        if entry in self.results or entry.ndim < 2 or not users:
            return None
        if not all(is_only_factor(node, entry) for node in users):
            return None
        strides = mixed_strides(layout, entry.shape)
        if strides is None or any(isinstance(stride, MixedStride) for stride in strides[:-2]):
            return None
        return (Layout(entry.shape, strides, layout.offset),)

    def _fused(self, node: Node, outputs: list[Place]) -> None:
        """Emit the launches of a fused node: a matrix product with its epilogue, or loops."""
        body: Graph = node.params["body"]
        places = dict(zip(body.inputs, (self.where[e] for e in node.inputs), strict=True))
        if any(map(is_product, body.walk())):
            first, second = factor(node, 0), factor(node, 1)
            often = self.factors[second] >= OFTEN or self._is_stable(second)
            workspace = Workspace(
                self.backend.target,
                self.contiguous,
                self.emission.scratch,
                self.emission.packed,
                often=often,
                still=self._is_stable(first),
            )
            launches = write_product(body, places, outputs, workspace)
        else:
            places.update({e: self.contiguous(places[e]) for e in read_across(body, places)})
            launches = self.launches.loops(body, places, outputs)
        for launch in launches:
            self.emission.launch(launch)

    def _is_stable(self, entry: Entry | None) -> bool:
        """Whether a value stays the same from run to run of the plan, or from round to round."""
        if self.fixed and entry in self.fixed:
            return True
        loop = self.emission.inside
        if entry is None or loop is None:
            return False
        where = self.where.get(entry)
        return isinstance(where, Place) and loop.is_invariant(where.buffer)

    def place_of(self, entry: Entry) -> Place:
        """The place of an entry in memory; a number is stored in a temporary first."""
        where = self.where[entry]
        if isinstance(where, Place):
            return where
        place = self.temporary(entry.dtype, ())
        self._deliver(entry, place)
        return place

    def _deliver(self, entry: Entry, target: Place) -> None:
        """Store an entry's value at a place."""
        where = self.where[entry]
        if isinstance(where, Place):
            self.copy(where, target)
            return
        nest = Nest(())
        nest.store(target, nest.scalar(where), ())
        self.emission.launch(nest.finish())

    # --- what `lower` rules use -------------------------------------------------------------

    def temporary(self, dtype: DType, shape: tuple[int, ...]) -> Place:
        """A place in new scratch memory."""
        buffer = self.emission.scratch(product(shape) * dtype.itemsize)
        return Place(buffer, dtype, dense(shape))

    def loop(
        self,
        shape: tuple[int, ...],
        failure: tuple[Any, ...] | None = None,
        parallel: bool = True,
        reduced: frozenset[int] = frozenset(),
    ) -> RuleNest:
        """A loop nest over a shape, for a `lower` rule to fill and finish."""
        return RuleNest(self.emission, shape, failure, parallel, reduced)

    def copy(self, source: Place, target: Place) -> None:
        """Copy elements, converting and broadcasting as needed."""
        nest = Nest(target.shape)
        strides = broadcast_strides(source.shape, source.strides, len(target.shape))
        nest.store(target, nest.load(source, strides))
        self.emission.launch(nest.finish())

    def gather(self, target: Place, sources: Sequence[Place]) -> None:
        """Copy sources to their parts of the result, unless they were computed there."""
        for part, source in zip(self._parts(self.emission.node, target), sources, strict=True):
            there = source.buffer is part.buffer
            if not (there and same_for_all(source.layout.offset, part.layout.offset)):
                self.copy(source, part)

    def fill(self, target: Place, value: float) -> None:
        """Set every element to a number."""
        nest = Nest(target.shape)
        nest.store(target, nest.scalar(Number(("constant", value), float64)))
        self.emission.launch(nest.finish())

    def contiguous(self, source: Place) -> Place:
        """The place itself when it is dense, else a dense copy of it."""
        if source.layout.contiguous:
            return source
        whole = source.at(source.layout.expanded)
        target = self.temporary(source.dtype, whole.shape)
        self.copy(whole, target)
        return target.reshaped(source.shape)

    #: Branches and loops, see `runtime.rounds`.
    branch, rounds = lower_branch, lower_rounds

    # --- the plan ---------------------------------------------------------------------------

    def image(self) -> Image:
        """The finished image. Its bytes are written while its kernels are compiled."""
        image = Image(self.graph.name, self.backend.target.text)
        image.guards = [*free_sizes(array.shape for array in self.inputs), *self.guards]
        image.inputs = self._inputs()
        image.outputs = [Output(e.dtype.code, e.shape) for e in self.graph.outputs]
        emission = self.emission
        image.scalars, image.random = self.scalars, emission.random
        parts = split(emission.items, self.fixed, self.where)
        items = parts.rest if self.early else emission.side_by_side(parts.rest)
        temporaries = emission.temporaries = parts.placed(emission.temporaries)
        image.temporaries = [Temporary(b.size, b.first, b.last) for b in temporaries]
        image.captured = self.captured
        written = Items(image, self.backend)
        if parts.values:
            image.items.append(Kept(*parts.reads(), written.of(parts.first)))
        for item, done in zip(items, behind(items, self.early), strict=True):
            image.items += [*written.of([item]), *map(Result, done)]
        image.sites = self._sites(list(flat(items)))
        image.early = image.write()
        if emission.compilation is not None:
            emission.compilation.finish()
        written.load()
        return image

    def _inputs(self) -> list[Input]:
        """The arrays the plan takes, with flags for those that are overwritten and read before."""
        read = {*self.users, *self.results}
        written = {self.graph.inputs[index] for index, _ in self.graph.updates}
        arrays = [entry for entry in self.graph.inputs if not entry.spec.weak]
        updated = WRITTEN if self.atomic else WRITTEN | FAILS
        return [
            array._replace(flags=updated | READ * (entry in read)) if entry in written else array
            for array, entry in zip(self.inputs, arrays, strict=True)
        ]

    def _sites(self, items: list[Any]) -> list[Site]:
        def position(index: int) -> int:
            return int(self.where[self.graph.inputs[index]].buffer.index)

        writers = self._writers if self.atomic else None
        return find_sites(self.graph, items, attrgetter("fails"), writers, position)


def lowered(
    graph: Graph, backend: Backend, atomic: bool = True, early: Sequence[int] = ()
) -> Image:
    """The image of an optimized graph with known extents; see `Lowering`."""
    return Lowering(graph, backend, atomic=atomic, early=early).made()
