"""Traced programs: functions as graphs with free extents, and their forward and backward halves.

A `Program` comes from running a function once on symbols, for one kind of arguments (dtypes, ranks,
constants). Its graph takes the arguments' arrays, then its own arrays (parameters, closed-over
arrays), then the float arguments. It is valid for a call if its guards hold: those on sizes
(`guards`), on floats and array contents that the function used, and on the structure of its blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from gemel.dtype import is_large
from gemel.errors import OperandError, PythonGivenError, TraceError
from gemel.extent import NUMBER, Guards, evaluate
from gemel.ir import precision
from gemel.ir.closed import ClosedOver
from gemel.ir.graph import Entry, Graph, Node, captured, constant, inline, placeholder
from gemel.ir.layout import Layout
from gemel.ir.state import shows_another
from gemel.ir.trace import Trace
from gemel.ir.unavailable import name_symbol
from gemel.passes import gradient, mixed
from gemel.passes.bind import concretize_in_place
from gemel.passes.gradient import dependencies
from gemel.passes.loop_gradient import share_loops
from gemel.passes.saved import replaced, saved
from gemel.passes.simplify import drop, inline_light_composites, merge
from gemel.runtime.prepare import as_entry
from gemel.spec import Spec
from gemel.tape.views import check_apart
from gemel.tracing.foreign import written
from gemel.tracing.inner_gradients import InnerGradients
from gemel.tracing.manners import are_nd
from gemel.tracing.nested import called, checked, flatten, flatten_results, unflatten
from gemel.tracing.sized_plans import SizedPlans


class Traceable(Protocol):
    """The source of a program: a `Compiled`."""

    function: Callable[..., Any]
    name: str
    passes: tuple[Any, ...]
    recipes: tuple[Any, ...]
    symbolic: bool


class Arguments(NamedTuple):
    """The arguments of a call: how they are nested, their arrays, and their floats.

    `is_nd`: the arrays are NDArrays, and the results will be, too; see `tracing.manners`.
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
        """The arguments in a trace: entries for the arrays and floats, nested in the same way."""
        shown = [entry.as_nd_ndarray() for entry in entries] if self.is_nd else entries
        return unflatten(self.structure, iter(shown), iter(numbers))


# --- one traced program ---------------------------------------------------------------------


class Program:
    """A function traced for one kind of arguments: its graph and its plans."""

    def __init__(self, compiled: Traceable, arguments: Arguments, recorded: bool = False) -> None:
        """`recorded`: for calls under `autograd.record()`."""
        self.name, self.recorded = compiled.name, recorded
        self.passes = compiled.passes
        self.recipes = compiled.recipes
        self.is_nd = arguments.is_nd
        self._plans: SizedPlans | None = None
        self._in_place: SizedPlans | None = None
        self._halves: dict[Any, Halves] = {}
        #: The strides of arguments that are not dense, if the program depends on them.
        self.strides: dict[int, tuple[int, ...]] = {}
        traced = self._traced(compiled, arguments)
        if not self._lie_alike(arguments.arrays):
            pairs = enumerate(arguments.arrays)
            self.strides = {i: x._element_strides for i, x in pairs if not x._is_contiguous}
            traced = self._traced(compiled, arguments)
        if traced.unbound_inputs():
            # A symbol from a loop's body was used after the loop. An unrolled loop has no such
            # symbols; if one is still left, it came from another trace.
            traced = self._traced(compiled, arguments, unrolled=True)
            for stranger in traced.unbound_inputs():
                raise stranger.entries[0].left_over(self.name)
        #: The blocks that the function ran, with their structure at that time.
        self.blocks = [(own, own.version()) for own in self.trace.scopes.blocks.values()]
        #: The guards on free extents; extents that were found to be equal share one name.
        self.guards = self.trace.extents.guards
        self.guards.tracing = False
        self.asked_recording = self.trace.recording.asked
        self.trace.extents.guards = Guards(self.guards, tracing=True)
        reaching = dependencies(traced.outputs, self._ends)
        #: For each input, a bit set of the outputs whose gradients may reach it. An input that no
        #: gradient reaches keeps its old gradient, as without tracing.
        self.reached = tuple([reaching.get(entry, 0) for entry in traced.inputs])
        with self.trace:
            dims, self.guards[:] = self.trace.extents.unified(self.trace.extents.guards)
            self.graph = concretize_in_place(traced, dims)
        self.graph = mixed(self.graph)
        #: How many of the guards the trace has asked; passes may add others.
        self.traced = len(self.guards)

    def _ends(self, node: Node) -> bool:
        """Whether gradients stop at a node: at `detach()`, or under `autograd.pause()`."""
        if node.op is None or not node.op.recorded:
            return True
        paused = self.recorded and not self.trace.recording.was_on(node)
        return paused and not shows_another(node)

    def _traced(self, compiled: Traceable, arguments: Arguments, unrolled: bool = False) -> Graph:
        """Run the function on symbols and return the graph, with free extents."""
        self.closed = ClosedOver()
        self.trace = Trace(of_program=True, closed=self.closed)
        self.trace.recording.begin(self.recorded)
        self.trace.precision = precision.current()
        if unrolled:
            self.trace.least_rounds = None
        #: For each free extent, the position of the argument's array and the axis.
        self.places: dict[str, tuple[int, int]] = {}
        several = len(arguments.arrays) > 1
        entries = [
            self._input(i, array, f"data{i if several else ''}")
            for i, array in enumerate(arguments.arrays)
        ]
        self.argument_count = len(entries)
        self.trace.inputs.arguments = dict(zip(entries, arguments.arrays, strict=True))
        self.numbers = [
            self.trace.inputs.number(f"number{i}", n) for i, n in enumerate(arguments.numbers)
        ]
        with self.trace:
            graph = self._graph(entries, self._run(compiled, arguments, entries))
        arrays = partial(self.arrays, arguments.arrays)
        self.inner_gradients = InnerGradients(self.trace, graph.inputs, arrays)
        self.trace.inputs.arguments = {}
        return graph

    def _run(self, compiled: Traceable, arguments: Arguments, entries: list[Entry]) -> list[Entry]:
        """The results of the function on these entries, flattened."""
        symbols = arguments.symbols(entries, self.numbers)
        if compiled.symbolic and not arguments.arrays:
            symbols = [
                constant(a) if isinstance(a, NUMBER) and not is_large(a) else a for a in symbols
            ]
        results: list[Any] = []
        try:
            found = called(compiled.function, symbols)
        except AttributeError as error:
            name_symbol(error)
            raise
        except ValueError as error:  # NumPy's, in place of what asking for an element raised
            if isinstance(error.__cause__, TraceError):
                raise error.__cause__ from None
            raise
        with checked(self.name, "its result"):
            self.structure = flatten_results(found, results)
        if not arguments.arrays:
            self.is_nd = are_nd(results)  # without arguments, the results decide
        return [_result(value, self.name) for value in results]

    def _graph(self, entries: list[Entry], outputs: list[Entry]) -> Graph:
        """The graph of the trace. Its inputs are the arguments' arrays, the parameters' arrays,
        closed-over arrays and numbers, in this order."""
        contents = self.trace.state.contents
        self.parameters = [parameter for parameter, _ in self.trace.state.parameters.values()]
        #: The positions of the arguments whose layouts the program depends on (`State.laid_out`).
        self.laid_out = [i for i, e in enumerate(entries) if e in self.trace.state.laid_out]
        own = dict.fromkeys(entry for _, entry in self.trace.state.parameters.values())
        inputs = [*entries, *own, *self.closed.inputs]
        #: The overwritten inputs, except parameters. Their new contents are additional outputs.
        self.written = [
            i
            for i, entry in enumerate(inputs)
            if entry in contents and entry not in own and not self.closed.is_moved(entry)
        ]
        outputs = [*outputs, *(contents[inputs[position]] for position in self.written)]
        updates = self._updates(len(entries))
        every = share_loops([*outputs, *(entry for _, entry in updates)])
        #: The positions of inputs that are overwritten parameters.
        self.updated = [position for position, _ in updates]
        changed = zip(self.updated, every[len(outputs) :], strict=True)
        return Graph([*inputs, *self.numbers], every[: len(outputs)], changed, self.name)

    def _input(self, position: int, array: Any, name: str) -> Entry:
        shape = list(array.shape)
        strides = self.strides.get(position)
        for axis, n in enumerate(shape):
            if n > 1 and strides is None:
                extent = f"n{position}_{axis}"
                self.places[extent] = position, axis
                shape[axis] = self.trace.extents.free(extent, n)
        found = placeholder(Spec(shape, array.dtype), name)
        if strides is not None:
            self.trace.state.layouts[found] = Layout(shape, strides)
        return found

    def _updates(self, offset: int) -> list[tuple[int, Entry]]:
        if not self.trace.state.updates:
            return []
        positions = {id(p): offset + i for i, p in enumerate(self.parameters)}
        return [(positions[id(p)], entry) for p, entry in self.trace.state.updates.values()]

    def dims(self, leaves: list[Any]) -> dict[str, int]:
        """The values of the free extents for these arguments."""
        return {name: leaves[place].shape[axis] for name, (place, axis) in self.places.items()}

    def own(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """The parameters' arrays, then the closed-over arrays, on the device of the arguments."""
        device = leaves[0].device if leaves else None
        closed = [outside.on(device) for outside in self.closed.inputs.values()]
        if device is None:
            return (*[parameter.data() for parameter in self.parameters], *closed)
        return (*[parameter.array(device) for parameter in self.parameters], *closed)

    def arrays(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """All arrays of a call with these arguments."""
        return (*leaves, *self.own(leaves))

    def copies(self, arguments: tuple[Any, ...], arrays: Sequence[Any]) -> list[tuple[Any, Any]]:
        """The arguments of NumPy's that it writes to, each with its copy among `arrays`."""
        return written(self.name, arguments, arrays, self.written) if self.written else []

    def check_apart(self, arrays: Sequence[Any]) -> None:
        """Raises `TraceError` if an array that the program writes shares elements with another."""
        if self.written:
            check_apart(self.name, arrays, self.written)
        if self.updated:
            # Parameters share no memory with each other; they are checked against all others.
            storages = {arrays[position]._storage for position in self.updated}
            closed = range(self.argument_count + len(self.parameters), len(arrays))
            if any(
                arrays[other]._storage in storages
                for other in (*range(self.argument_count), *closed)
            ):
                check_apart(self.name, arrays, self.updated)

    @property
    def lives(self) -> bool:
        """Whether the blocks that the function ran still have the same structure."""
        return all(own.state is version for own, version in self.blocks)

    def holds(self, arguments: Arguments) -> bool:
        """Whether all guards except those on sizes hold: blocks, floats and contents that the trace
        used, and which arrays are the same variable.
        """
        if not self.lives:
            return False
        known = self.trace.inputs.specialized
        pairs = zip(self.numbers, arguments.numbers, strict=True)
        # Compared as text, so that 0.0 and -0.0 differ and NaN equals itself.
        same = all(e not in known or known[e].hex() == n.hex() for e, n in pairs)
        if not self._lie_alike(arguments.arrays):
            return False
        arrays = partial(self.arrays, arguments.arrays)
        return same and self.closed.holds() and self.inner_gradients.holds(arrays)

    def _lie_alike(self, arrays: Sequence[Any]) -> bool:
        """Whether the arguments on whose layouts the program depends lie as it assumes."""
        for position in self.laid_out:
            array, strides = arrays[position], self.strides.get(position)
            if not (array._is_contiguous if strides is None else array._element_strides == strides):
                return False
        return True

    def fits(self, arguments: Arguments, recorded: bool) -> bool:
        """Whether the program is valid for these arguments, in calls `recorded` or not."""
        if recorded != self.recorded and self.asked_recording:
            return False
        values = self.dims(arguments.arrays)
        for entry, array in zip(self.graph.inputs, arguments.arrays, strict=False):
            if any(evaluate(m, values) != n for m, n in zip(entry.shape, array.shape, strict=True)):
                return False
        if any(n < 2 for n in values.values()):
            return False
        guards = (*self.trace.extents.guards, *self.guards)
        return self.holds(arguments) and all(guard.holds(values) for guard in guards)

    # --- inference --------------------------------------------------------------------------

    def optimized(self, values: dict[str, int]) -> Graph:
        """The graph after the passes, for these extents. Raises `Unfit`."""
        return self.inference().optimized_for(values)

    def inference(self) -> SizedPlans:
        """The plans that compute the results."""
        if self._plans is None:
            self._plans = self._planned(self.graph, self._stable())
        return self._plans

    def _stable(self) -> list[int]:
        """The positions of inputs that rarely change."""
        outside = range(self.argument_count, len(self.graph.inputs) - len(self.numbers))
        return [position for position in outside if position not in self.written]

    def in_place(self) -> SizedPlans | None:
        """The plans that compute the results and overwrite arguments in place.

        None if a failure could leave some arguments written and others not (`_may_write`).
        """
        if self._in_place is None and self._may_write:
            count = len(self.graph.outputs) - len(self.written)
            outputs, contents = self.graph.outputs[:count], self.graph.outputs[count:]
            updates = [*self.graph.updates, *zip(self.written, contents, strict=True)]
            graph = Graph(self.graph.inputs, outputs, updates, self.graph.name)
            # Not atomic, as in imperative code: if a new value fails, so does its argument.
            self._in_place = self._planned(graph, self._stable(), atomic=False)
        return self._in_place

    @property
    def _may_write(self) -> bool:
        """Whether only arguments are written, with values of their specs, and nothing can fail.

        Parameters must not be written, since they must keep their values if arguments have failed.
        """
        contents = self.graph.outputs[len(self.graph.outputs) - len(self.written) :]
        pairs = zip(self.written, contents, strict=True)
        fits = all(self.graph.inputs[position].spec == entry.spec for position, entry in pairs)
        own = all(position < self.argument_count for position in self.written)
        alone = own and not self.graph.updates
        return fits and alone and not any(node.fails for node in self.graph.walk())

    def embedded(self) -> SizedPlans:
        """Plans with closed-over arrays as constants. Raises `TraceError` if one is written."""
        if any(position >= self.argument_count for position in self.written):
            raise TraceError(
                f"{self.name}: it writes to an array it closes over; pass that array as an argument"
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
        stable = range(self.argument_count, self.argument_count + len(self.parameters))
        return self._planned(graph, stable)

    def _planned(
        self, graph: Graph, stable: Sequence[int] | None, atomic: bool = True
    ) -> SizedPlans:
        calls = self.trace.state.random_calls
        guards = self.guards, self.traced
        return SizedPlans(graph, self.passes, *guards, self.recipes, stable, calls, atomic)

    # --- training ---------------------------------------------------------------------------

    def split(self, wanted: tuple[bool, ...]) -> Halves:
        """The program as a forward half that saves values and a backward half that reads them."""
        if wanted not in self._halves:
            self._halves[wanted] = Halves(self, wanted)
        return self._halves[wanted]


class Halves:
    """The forward graph, which also returns saved values, and the backward graph that reads them.

    `saved` are the values that the backward graph takes before the heads. `kept` are those of them
    that are neither inputs nor outputs, and so are additional results of the forward plans.
    """

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
            grads = gradient([y for y, _ in pairs], [h for _, h in pairs], self.wanted)
            heads = [head for head in self.heads if head is not None]
            every = share_loops([*graph.results, *grads])
            every = list(
                merge(drop(inline_light_composites(Graph((*graph.inputs, *heads), every)))).outputs
            )
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
    except OperandError as error:
        raise PythonGivenError(
            f"{name}: a compiled function must return arrays, numbers, None, or lists, tuples "
            f"and dictionaries of these; it returned a {type(value).__name__}"
        ) from error
