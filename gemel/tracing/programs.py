"""Traced programs: a function as a graph with free sizes, its two halves, and their plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from gemel import _core, config
from gemel.codegen.schedules import Recipe
from gemel.dtype import is_large
from gemel.errors import NoKernelError, PythonGivenError, TraceError
from gemel.extent import NUMBER, Dim, Guard, Guards, evaluate
from gemel.ir.closed import ClosedOver
from gemel.ir.graph import Entry, Graph, Node, captured, constant, inline, placeholder
from gemel.ir.text import signature
from gemel.ir.trace import Trace, shows_another
from gemel.passes import PIPELINE, gradient, optimize
from gemel.passes.backward import shared
from gemel.passes.bind import concrete_graph, settled
from gemel.passes.gradient import leading_to
from gemel.passes.saved import replaced, saved
from gemel.passes.simplify import drop, merge, opened
from gemel.runtime.backend import Backend, backend_for
from gemel.runtime.image import Image
from gemel.runtime.plans import plan_for, plan_of
from gemel.runtime.prepare import as_entry
from gemel.runtime.relay import Relay
from gemel.spec import Spec
from gemel.tape.views import check_apart
from gemel.tracing.manners import are_nd
from gemel.tracing.nested import flatten, flatten_results, unflatten
from gemel.tracing.wanted import Wanted

#: How many plans a graph keeps, the newest first.
PLANS = 64


class Traceable(Protocol):
    """What a program is traced from: a `Compiled`."""

    function: Callable[..., Any]
    name: str
    passes: tuple[Any, ...]
    recipes: tuple[Any, ...]
    symbolic: bool


class Arguments(NamedTuple):
    """The arguments of a call: how they are nested, the arrays and the floats in them.

    `is_nd`: they are given as MXNet 1's arrays, and so are the results, see `tracing.manners`.
    """

    structure: Any
    arrays: list[Any]
    numbers: list[float]
    is_nd: bool = False

    @classmethod
    def of(cls, arguments: tuple[Any, ...]) -> Arguments:
        """The arguments taken apart."""
        arrays: list[Any] = []
        numbers: list[float] = []
        structure = flatten(arguments, arrays, numbers)
        return cls(structure, arrays, numbers, are_nd(arguments))

    def symbols(self, entries: list[Entry], numbers: list[Any]) -> Any:
        """The arguments in a trace: what stands for the arrays and floats, nested as they are."""
        shown = [entry.as_nd_ndarray() for entry in entries] if self.is_nd else entries
        return unflatten(self.structure, iter(shown), iter(numbers))


# --- one traced program ---------------------------------------------------------------------


class Program:
    """A function traced for one kind of arguments: its graph and its plans."""

    def __init__(self, compiled: Traceable, given: Arguments, recorded: bool = False) -> None:
        """`recorded`: it is traced for calls that are recorded."""
        self.name, self.recorded = compiled.name, recorded
        self.passes = compiled.passes
        self.recipes = compiled.recipes
        self.is_nd = given.is_nd
        self._plans: Plans | None = None
        self._in_place: Plans | None = None
        self._halves: dict[Any, Halves] = {}
        traced = self._traced(compiled, given)
        if traced.strangers():
            # What stood for an element of a loop has left it, by way of a variable of the program.
            traced = self._traced(compiled, given, writes_out=True)
            for stranger in traced.strangers():
                raise stranger.entries[0].left_over(self.name)
        #: The blocks it ran, as they were then.
        self.met = [(own, own.version()) for own in self.trace.met.values()]
        #: What is asked of the free extents once those found equal have one name.
        self.guards = self.trace.guards
        self.guards.open = False
        self.asked_recording = self.trace.asked_recording
        self.trace.guards = Guards(self.guards)
        found = leading_to(traced.outputs, self._ends)
        #: For each input a bit for each output from which gradients may pass to it: otherwise none
        #: is left there, as without tracing.
        self.reached = tuple([found.get(entry, 0) for entry in traced.inputs])
        with self.trace:
            self.graph = settled(traced, self._settled())

    def _ends(self, node: Node) -> bool:
        """Whether nothing recorded leads through a node: `detach()`, or what `pause` has made."""
        if node.op is None or not node.op.recorded:
            return True
        paused = self.recorded and not self.trace.was_recorded(node)
        return paused and not shows_another(node)

    def _traced(self, compiled: Traceable, given: Arguments, writes_out: bool = False) -> Graph:
        """The graph of the function as it is."""
        self.closed = ClosedOver()
        self.trace = Trace(of_program=True, closed=self.closed)
        self.trace.recorded = self.trace.recording = self.recorded
        #: Of which argument's array a free extent is which axis.
        self.places: dict[str, tuple[int, int]] = {}
        self.trace.writes_out = writes_out
        several = len(given.arrays) > 1
        entries = [
            self._input(i, array, f"data{i if several else ''}")
            for i, array in enumerate(given.arrays)
        ]
        self.trace.given = dict(zip(entries, given.arrays, strict=True))
        self.numbers = [self.trace.number(f"number{i}", n) for i, n in enumerate(given.numbers)]
        results: list[Any] = []
        with self.trace:
            arguments = given.symbols(entries, self.numbers)
            if compiled.symbolic and not given.arrays:
                arguments = [
                    constant(a) if isinstance(a, NUMBER) and not is_large(a) else a
                    for a in arguments
                ]
            found = compiled.function(*arguments)
            self.structure = flatten_results(found, results)
            outputs = [_result(value, self.name) for value in results]
            contents = self.trace.contents
            self.parameters = [parameter for parameter, _ in self.trace.parameters.values()]
            own = dict.fromkeys(entry for _, entry in self.trace.parameters.values())
            inputs = [*entries, *own, *self.closed.inputs]
            #: Which inputs from outside are overwritten: new contents are further results.
            self.written = [
                i
                for i, entry in enumerate(inputs)
                if entry in contents and entry not in own and not self.closed.is_moved(entry)
            ]
            outputs += [contents[inputs[position]] for position in self.written]
            updates = self._updates(len(entries))
            # Loops which gradients of the function's own read are done once.
            every = shared([*outputs, *(entry for _, entry in updates)])
        places = [position for position, _ in updates]
        self.given = len(entries)
        self.wanted = Wanted(self.trace, inputs, lambda: self.arrays(given.arrays))
        self.trace.given = {}
        #: Which parameters are overwritten.
        self.updated = places
        inputs += self.numbers
        changed = zip(places, every[len(outputs) :], strict=True)
        return Graph(inputs, every[: len(outputs)], changed, self.name)

    def _input(self, position: int, array: Any, name: str) -> Entry:
        shape = list(array.shape)
        for axis, n in enumerate(shape):
            if n > 1:
                extent = f"n{position}_{axis}"
                self.places[extent] = position, axis
                shape[axis] = self.trace.free(extent, n)
        return placeholder(Spec(shape, array.dtype), name)

    def _settled(self) -> dict[str, int]:
        """The free extents after the trace: those it found equal have one name, or are a number."""
        found = names = self.trace.dims
        others = []
        for traced in self.trace.guards:
            guard = traced if found is names else traced.of(found)
            name, other = guard.equates() if guard else ("", 0)
            if name:
                sizes = {**names, name: other}
                found = {known: evaluate(size, sizes) for known, size in found.items()}
            else:
                others.append(traced)
        guards = [traced.of(found) for traced in others]
        self.guards[:] = [guard for guard in guards if guard]
        return found

    def _updates(self, offset: int) -> list[tuple[int, Entry]]:
        if not self.trace.updates:
            return []
        positions = {id(p): offset + i for i, p in enumerate(self.parameters)}
        return [(positions[id(p)], entry) for p, entry in self.trace.updates.values()]

    def dims(self, leaves: list[Any]) -> dict[str, int]:
        """The free extents of these arguments."""
        return {name: leaves[place].shape[axis] for name, (place, axis) in self.places.items()}

    def own(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """The arrays behind the arguments in the plan's order, where these are: of parameters, then
        those the function closes over.
        """
        device = leaves[0].device if leaves else None
        closed = [each.on(device) for each in self.closed.inputs.values()]
        if device is None:
            return (*[parameter.data() for parameter in self.parameters], *closed)
        return (*[parameter.array(device) for parameter in self.parameters], *closed)

    def arrays(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """All arrays of a call with these arguments."""
        return (*leaves, *self.own(leaves))

    def check_apart(self, arrays: Sequence[Any]) -> None:
        """Raises `TraceError` if an array that it writes shares elements with another one."""
        if self.written:
            check_apart(self.name, arrays, self.written)
        if self.updated:
            # Those of parameters share none with each other.
            storages = {arrays[position]._storage for position in self.updated}
            closed = range(self.given + len(self.parameters), len(arrays))
            if any(arrays[other]._storage in storages for other in (*range(self.given), *closed)):
                check_apart(self.name, arrays, self.updated)

    @property
    def lives(self) -> bool:
        """Whether the blocks it ran are what they were."""
        return all(own.state is version for own, version in self.met)

    def holds(self, given: Arguments) -> bool:
        """Whether the blocks it ran, and where the trace has asked the numbers, the arrays it
        closes over, and which arrays are the same, are what it was told.
        """
        if not self.lives:
            return False
        held = self.trace.held
        pairs = zip(self.numbers, given.numbers, strict=True)
        # As text 0.0 and -0.0 are two numbers, and NaN is one.
        same = all(e not in held or held[e].hex() == n.hex() for e, n in pairs)
        arrays = partial(self.arrays, given.arrays)
        return same and self.closed.holds() and self.wanted.holds(arrays)

    def fits(self, given: Arguments, recorded: bool) -> bool:
        """Whether the trace holds for arguments like these, in calls that are `recorded` or not."""
        if recorded != self.recorded and self.asked_recording:
            return False
        values = self.dims(given.arrays)
        for entry, array in zip(self.graph.inputs, given.arrays, strict=False):
            if any(evaluate(m, values) != n for m, n in zip(entry.shape, array.shape, strict=True)):
                return False
        if any(n < 2 for n in values.values()):
            return False
        guards = (*self.trace.guards, *self.guards)
        return self.holds(given) and all(guard.holds(values) for guard in guards)

    # --- inference --------------------------------------------------------------------------

    def optimized(self) -> Graph:
        """The graph after the passes."""
        return self.inference().optimized()

    def inference(self) -> Plans:
        """The plans that compute the results."""
        if self._plans is None:
            self._plans = self._planned(self.graph, self._still())
        return self._plans

    def _still(self) -> list[int]:
        """The positions of inputs that rarely change."""
        outside = range(self.given, len(self.graph.inputs) - len(self.numbers))
        return [position for position in outside if position not in self.written]

    def in_place(self) -> Plans | None:
        """The plans that compute the results and overwrite arguments where they lie.

        None where that might be seen: what could fail would leave some written, some not.
        """
        if self._in_place is None and self._may_write:
            count = len(self.graph.outputs) - len(self.written)
            outputs, contents = self.graph.outputs[:count], self.graph.outputs[count:]
            updates = [*self.graph.updates, *zip(self.written, contents, strict=True)]
            graph = Graph(self.graph.inputs, outputs, updates, self.graph.name)
            # As where they are copied: what cannot be computed fails, and is not what it was.
            self._in_place = self._planned(graph, self._still(), atomic=False)
        return self._in_place

    @property
    def _may_write(self) -> bool:
        """Whether what is written is of the arguments' own specs, and nothing can fail.

        Parameters are none of it: they stay as they were where arguments have failed.
        """
        contents = self.graph.outputs[len(self.graph.outputs) - len(self.written) :]
        pairs = zip(self.written, contents, strict=True)
        fits = all(self.graph.inputs[position].spec == entry.spec for position, entry in pairs)
        own = all(position < self.given for position in self.written)
        alone = own and not self.graph.updates
        return fits and alone and not any(node.fails for node in self.graph.walk())

    def embedded(self) -> Plans:
        """Plans that hold the arrays it closes over as they are now. Raises `TraceError`."""
        if any(position >= self.given for position in self.written):
            raise TraceError(
                f"{self.name}: it writes to an array it closes over; make it an argument"
            )
        stands = {entry: captured(closed.on(None)) for entry, closed in self.closed.inputs.items()}
        inputs = [entry for entry in self.graph.inputs if entry not in stands]
        updates = [index for index, _ in self.graph.updates]
        outputs = inline(
            Graph(self.graph.inputs, self.graph.results),
            [stands.get(entry, entry) for entry in self.graph.inputs],
        )
        count = len(self.graph.outputs)
        changed = zip(updates, outputs[count:], strict=True)
        graph = Graph(inputs, outputs[:count], changed, self.graph.name)
        still = range(self.given, self.given + len(self.parameters))
        return self._planned(graph, still)

    def _planned(self, graph: Graph, still: Sequence[int] | None, atomic: bool = True) -> Plans:
        calls = self.trace.random_calls
        return Plans(graph, self.passes, self.guards, self.recipes, still, calls, atomic)

    # --- training ---------------------------------------------------------------------------

    def split(self, wanted: tuple[bool, ...]) -> Halves:
        """The program as a forward half that saves what its backward half reads."""
        if wanted not in self._halves:
            self._halves[wanted] = Halves(self, wanted)
        return self._halves[wanted]


class Halves:
    """Forward with saved values, and backward from them: derived once by tracing the gradient."""

    def __init__(self, program: Program, wanted: tuple[bool, ...]) -> None:
        graph = program.graph
        self.wanted = [entry for entry, want in zip(graph.inputs, wanted, strict=True) if want]
        with Trace():
            self.heads = [
                placeholder(e.spec) if e.dtype.is_inexact else None for e in graph.outputs
            ]
            pairs = [
                (y, h) for y, h in zip(graph.outputs, self.heads, strict=True) if h is not None
            ]
            found = gradient([y for y, _ in pairs], [h for _, h in pairs], self.wanted)
            heads = [head for head in self.heads if head is not None]
            every = shared([*graph.results, *found])
            every = list(merge(drop(opened(Graph((*graph.inputs, *heads), every)))).outputs)
            count = len(graph.results)
            outputs, derived = every[: len(graph.outputs)], every[count:]
            changed = zip(graph.updates, every[len(outputs) : count], strict=True)
            updates = [(index, entry) for (index, _), entry in changed]
            self.saved = saved(every[:count], derived, heads)
            stands = {entry: placeholder(entry.spec) for entry in self.saved}
            gradients = replaced(derived, stands)
        self.backward = Graph((*stands.values(), *heads), gradients, name=f"{graph.name}_backward")
        self.outputs = outputs
        there = {*graph.inputs, *outputs}
        self.kept = [entry for entry in self.saved if entry not in there]
        forward = Graph(graph.inputs, (*outputs, *self.kept), updates, graph.name)
        self.plans = program._planned(forward, None)


def _result(value: Any, name: str) -> Entry:
    try:
        return as_entry(value)
    except TypeError as error:
        if type(error) is not TypeError:
            raise
        raise PythonGivenError(
            f"{name}: what is compiled gives arrays, numbers, None, and lists, tuples and "
            f"dictionaries of them; it gave a {type(value).__name__}"
        ) from error


# --- plans for sizes -------------------------------------------------------------------------


class Unfit(Exception):
    """The sizes of a call do not meet what has been asked of them since they were looked at."""


class Plans:
    """The plans of a graph with free extents: usually one, another where its guards do not hold.

    `still` are the positions of inputs that rarely change, `random` is how many call numbers a run
    takes, see `Lowering`, also for `atomic`.
    """

    def __init__(
        self,
        graph: Graph,
        passes: tuple[Any, ...],
        guards: list[Guard],
        recipes: tuple[Recipe, ...] = (),
        still: Sequence[int] | None = None,
        random: int = 0,
        atomic: bool = True,
    ) -> None:
        self.graph = graph
        self.random, self.atomic = random, atomic
        self.still = still
        self.keeper = _core.Keeper()
        self.passes = passes
        self.guards = guards
        self.recipes = recipes
        self._backends: dict[Backend, Backend] = {}
        self._optimized: Graph | None = None
        self._made: list[tuple[Backend, Any]] = []

    def optimized(self) -> Graph:
        """The graph after the passes, which may ask more of the free extents."""
        if self._optimized is None:
            self._optimized = optimize(self.graph, self.passes)
        return self._optimized

    def find(self, values: dict[str, int], arrays: Sequence[Any]) -> Any:
        """The plan for these extents, made if there is none. Raises `Unfit`."""
        backend = self._backend(backend_for(arrays))
        for known, plan in self._made:
            if known is backend and _fits(plan, arrays):
                return plan
        try:
            made = plan_for(
                self._text(values), backend, lambda: self.image(values, backend), self.keeper
            )
        except NoKernelError:
            others, atomic = self._others(), self.atomic
            planned = partial(plan_of, backend=backend, atomic=atomic, passes=others)
            made = Relay(concrete_graph(self.graph, values), planned)
        self._made = [(backend, made), *self._made[: PLANS - 1]]
        return made

    def _backend(self, backend: Backend) -> Backend:
        """A device's backend with the recipes there are."""
        if backend not in self._backends:
            self._backends[backend] = backend.extended(self.recipes)
        return self._backends[backend]

    def _others(self) -> tuple[Any, ...] | None:
        """The passes, if there are any from elsewhere."""
        if self.passes is PIPELINE or all(step in PIPELINE for step in self.passes):
            return None
        return self.passes

    def _text(self, values: dict[str, int]) -> str | None:
        """All that decides the plan made for these extents; None where a pass is from elsewhere."""
        if self._others():
            return None
        text = signature(self.graph)
        passes = [] if self.passes is PIPELINE else [step.__name__ for step in self.passes]
        kept = self.still, config.KEEP_BYTES.read(), self.random, self.atomic
        return text and f"{text}{passes} {values} {self.guards} {kept}"

    def image(self, values: dict[str, int], backend: Backend) -> Image:
        """The image of the plan for these extents. Raises `Unfit`."""
        with Trace():
            found: Image = self._lowering(values, backend).made()
        return found

    def _lowering(self, values: dict[str, int], backend: Backend) -> Any:
        from gemel.runtime.lower import Lowering

        optimized = self.optimized()
        if not all(guard.holds(values) for guard in self.guards):
            raise Unfit
        guards = list(self.guards)
        free = {name: Dim(value, name, guards) for name, value in values.items()}
        graph = concrete_graph(optimized, free)
        still, random, atomic = self.still, self.random, self.atomic
        return Lowering(graph, backend, guards=guards, still=still, random=random, atomic=atomic)

    def source(self, values: dict[str, int], backend: Backend) -> str:
        """The kernels of the plan for these extents as C text. Raises `Unfit`."""
        from gemel.runtime.lower import Lowering
        from gemel.runtime.reading import as_c

        def items(graph: Graph) -> list[Any]:
            lowering = Lowering(optimize(graph, self.passes), backend)
            lowering.run()
            return lowering.items

        try:
            with Trace():
                lowering = self._lowering(values, backend)
                lowering.run()
            found = lowering.items
        except NoKernelError:
            relay = Relay(concrete_graph(self.graph, values), items)
            found = [call for call, _, _ in relay.stages]
        return as_c(self.graph.name, found)


def _fits(plan: Any, arrays: Sequence[Any]) -> bool:
    try:
        plan.bound(*arrays)
    except TypeError:
        return False
    return True
