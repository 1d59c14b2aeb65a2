"""Compiled functions: traced once, optimised, and run as one native plan.

`compile(f)` and a hybridized block are the same thing: a `Compiled`. Its first call with arguments
of a new kind traces the function with symbols; every axis of every array is left free, so that
other sizes bind the same program again instead of tracing anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_ as is_same
from typing import Any, ClassVar

from gemel import _core, autograd, tape
from gemel.errors import TraceError
from gemel.ir.graph import Entry, Graph, constant, inline, placeholder
from gemel.ir.trace import Trace, current_trace, parameters_replaced
from gemel.ndarray import ndarray
from gemel.nested import unflatten
from gemel.ops.elementwise import full
from gemel.passes import PIPELINE
from gemel.passes.bind import concrete_graph
from gemel.passes.simplify import fold
from gemel.programs import Arguments, Program, Unfit
from gemel.runtime.image import Image
from gemel.runtime.plans import plan_of
from gemel.runtime.prepare import spec_of
from gemel.spec import Spec

# --- a program bound to sizes -----------------------------------------------------------------


class Bound:
    """A program for arguments of known sizes."""

    def __init__(self, program: Program, values: dict[str, int]) -> None:
        self.program = program
        self.values = values
        self.plan: Any = None
        self.training: dict[Any, BoundHalves] = {}
        self.structure = program.structure

    def parameter_arrays(self) -> tuple[Any, ...]:
        """The arrays of the parameters now, in the order of the plan's inputs."""
        return tuple(parameter.array() for parameter in self.program.parameters)

    def inference(self, leaves: Sequence[Any]) -> Any:
        """The plan that computes the results, and so for arrays like these."""
        if self.plan is None:
            arrays = (*leaves, *self.parameter_arrays())
            self.plan = self.program.inference().find(self.values, arrays)
        return self.plan

    def image(self) -> Image:
        """The image of that plan, lowered anew."""
        return self.program.inference().image(self.values)

    def summary(self, leaves: list[Any]) -> str:
        """What the plan consists of, and its memory besides the results."""
        _, workspace = self.inference(leaves).bound(*leaves, *self.parameter_arrays())
        return f"{self.image().count()} kernels, {workspace} bytes of workspace"

    def run(self, given: Arguments) -> Any:
        """The function's results on these arguments."""
        arrays = (*given.arrays, *self.parameter_arrays())
        if _core.recording() and tape.tracked(*arrays):
            found = self._recorded(arrays, given.numbers)
        else:
            found = self.inference(given.arrays)(*arrays, *given.numbers)
        return found[0] if self.structure is None else unflatten(self.structure, iter(found))

    def _recorded(self, arrays: tuple[Any, ...], numbers: list[float]) -> tuple[Any, ...]:
        wanted = tuple(a.dtype.is_floating and a._tape is not None for a in arrays)
        halves = self.training.get(wanted)
        if halves is None:
            halves = self.training[wanted] = BoundHalves(self.program, wanted, self.values, arrays)
        return halves.run((*arrays, *numbers))


_numbers = [0]


class BoundHalves:
    """The two halves of a training call for known sizes; on the tape it acts as an operation."""

    rules: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        program: Program,
        wanted: tuple[bool, ...],
        values: dict[str, int],
        arrays: tuple[Any, ...],
    ) -> None:
        _numbers[0] += 1
        self.name = f"{program.name}#{_numbers[0]}"
        wanted = (*wanted, *[False] * len(program.numbers))
        halves = program.split(wanted)
        with Trace():
            self.plan = halves.plans.find(values, arrays)
            self.backward = concrete_graph(halves.backward, values)
        self.outputs = len(program.graph.outputs)
        self.wanted = wanted
        self.heads = [head is not None for head in halves.heads]
        positions = {entry: i for i, entry in enumerate(program.graph.inputs)}
        kept = iter(range(self.outputs, self.outputs + len(halves.kept)))
        #: Where each saved value comes from: an input of the call, or a result of the plan.
        self.saved = [
            ("input", positions[entry]) if entry in positions else ("output", next(kept))
            for entry in halves.saved
        ]

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results, remembering this call on the tape."""
        found: tuple[Any, ...] = self.plan(*inputs)
        outputs = found[: self.outputs]
        sources = tuple(
            tape.source_of(a) if w else None for a, w in zip(inputs, self.wanted, strict=True)
        )
        call = BoundCall(
            self, sources, tuple(map(spec_of, inputs)), tuple(spec_of(value) for value in outputs)
        )
        for side, index in self.saved:
            value = inputs[index] if side == "input" else found[index]
            if isinstance(value, float):
                call.numbers[index] = value
            else:
                call.saved[side, index] = tape.Saved(value)
        for index, value in enumerate(outputs):
            if value.dtype.is_floating:
                value._tape = (call, index)
        return outputs


class BoundCall(tape.Call):
    """A compiled call on the tape: its gradient is the backward half, written into the step's."""

    __slots__ = ()

    @property
    def key(self) -> Any:
        return self.op.name

    def backward(
        self, gs: tuple[Entry | None, ...], given: dict[tuple[str, int], Entry]
    ) -> Sequence[Any]:
        """Entries for the gradients of the inputs, from those of the outputs."""
        halves: BoundHalves = self.op
        heads = []
        for g, spec, floating in zip(gs, self.outputs, halves.heads, strict=True):
            if floating:
                heads.append(full(0, shape=spec.shape, dtype=spec.dtype) if g is None else g)
        found = iter(inline(halves.backward, [*(given[key] for key in halves.saved), *heads]))
        return [next(found) if want else None for want in halves.wanted]


# --- what users hold ------------------------------------------------------------------------


class Compiled:
    """A function compiled for each kind of arguments it is called with.

    Arrays and floats are inputs; other Python numbers are constants of the program: plain ones, or,
    if `symbolic`, nodes of the graph. A float whose value the function asks for (by a branch, or
    `math.sqrt`) is a constant, too. Without `fold` no arithmetic is done at compile time. `traces`
    counts how often the function itself ran.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str = "",
        fold: bool = True,
        symbolic: bool = False,
    ) -> None:
        self.function = function
        self.name = name or getattr(function, "__name__", "program")
        self.passes = PIPELINE if fold else without_folding()
        self.symbolic = symbolic
        self.traces = 0
        self._programs: dict[Any, list[Program]] = {}
        self._bound: dict[Any, Bound] = {}
        #: Does the same as a call: goes straight from arrays seen before to their plan.
        self.quick = _core.CallSite(self._slowly)

    def __call__(self, *arguments: Any) -> Any:
        """The function's results, by the compiled program."""
        return self.quick(*arguments)

    def _slowly(self, *arguments: Any) -> Any:
        """A call the site has no plan for: other arguments, or one that is being recorded."""
        if current_trace() is not None:
            return self.function(*arguments)
        generation = self.quick.generation
        bound, given = self._find(arguments)
        try:
            found = bound.run(given)
        except Unfit:
            self._bound = {key: other for key, other in self._bound.items() if other is not bound}
            bound, given = self._find(arguments)
            found = bound.run(given)
        leaves = given.arrays
        plain = bound.structure is None and len(leaves) == len(arguments)
        if plain and not _core.recording() and all(map(is_same, arguments, leaves)):
            plan, arrays = bound.inference(leaves), bound.parameter_arrays()
            if isinstance(plan, _core.Plan):
                self.quick.add(generation, _core.training(), tuple(leaves), plan, arrays)
        return found

    def _find(self, arguments: tuple[Any, ...]) -> tuple[Bound, Arguments]:
        """The bound program for these arguments, and what is in them."""
        if len(arguments) == 1 and type(arguments[0]) is ndarray:
            given = Arguments(SINGLE, [arguments[0]], [])
        else:
            given = Arguments.of(arguments)
        key = (given.structure, _core.training(), *((a.shape, a._code) for a in given.arrays))
        try:
            bound = self._bound.get(key)
        except TypeError:
            raise TraceError(
                f"{self.name}: arguments must be arrays, numbers, strings or lists of them"
            ) from None
        if bound is None or not bound.program.holds(given.numbers):
            bound = self._bind(given)
            # The oldest one goes; another thread may be at it, too.
            for old in list(self._bound)[: len(self._bound) + 1 - SIZES]:
                self._bound.pop(old, None)
            self._bound[key] = bound
        return bound, given

    def _bind(self, given: Arguments) -> Bound:
        arrays = tuple((a.ndim, a._code) for a in given.arrays)
        programs = self._programs.setdefault((given.structure, _core.training(), arrays), [])
        program = next((p for p in programs if p.fits(given)), None)
        if program is None:
            with autograd.pause(train_mode=autograd.is_training()):
                program = Program(self, given)
            self.traces += 1
            programs.insert(0, program)
            del programs[PROGRAMS:]
        return Bound(program, program.dims(given.arrays))

    # --- looking at it ----------------------------------------------------------------------

    def graph(self, *arguments: Any, optimized: bool = False) -> Graph:
        """The graph for these arguments, before or after the passes."""
        bound, _ = self._find(arguments)
        return bound.program.optimized() if optimized else bound.program.graph

    def folded(self, *arguments: Any) -> Graph:
        """The graph for these arguments after constant folding alone (as the passes are set)."""
        graph = self.graph(*arguments)
        with Trace():
            return fold(graph) if fold in self.passes else graph

    def image(self, *arguments: Any) -> bytes:
        """The plan for arguments like these as bytes that need nothing else to run.

        Arrays the function closes over are in it as they are now; parameters are further inputs,
        behind the arguments. `docs/internals/plan-image.md` has the format, gemel.h loads it.
        """
        bound, _ = self._find(arguments)
        _core.wait_all()
        return bound.image().write(embed=True)

    def plan_summary(self, *arguments: Any) -> str:
        """What the plan for these arguments consists of, and its memory besides the results."""
        bound, given = self._find(arguments)
        return f"{self.name}: {bound.summary(given.arrays)}"


#: How many kinds and sizes of arguments a function remembers the program of.
SIZES = 1024
#: How many traces it keeps for arguments of one kind, the newest first.
PROGRAMS = 64
#: The structure of a call with one array.
SINGLE = (tuple, (None,))


def without_folding() -> tuple[Any, ...]:
    """The pipeline with constant folding left out."""
    return tuple(step for step in PIPELINE if step is not fold)


def compile(function: Callable[..., Any], *, fold: bool = True) -> Compiled:  # noqa: A001
    """Compile a function: the same results, computed by one native program.

    The function runs once with symbols for each kind of arguments (dtypes, numbers of dimensions,
    Python numbers); what it does besides operations on them happens only then.

    >>> f = compile(lambda a, b, c, d: (a + b) + (c + d))
    >>> str(f.graph(1, 2, 3, 4))
    '(1 + 2) + (3 + 4)'
    """
    return Compiled(function, fold=fold, symbolic=True)


class Update:
    """An in-place step over many arrays, as one plan.

    `function(arrays, scalars)` gives the new values of the first arrays. Numbers are run-time
    values: another learning rate compiles nothing.
    """

    def __init__(self, function: Callable[..., Any], name: str = "update") -> None:
        self.function = function
        self.name = name
        self._plans: dict[Any, Any] = {}

    def __call__(self, arrays: Sequence[Any], scalars: Sequence[float]) -> None:
        """Run the step on these arrays, in place."""
        key = (len(scalars), tuple((a.shape, a._code) for a in arrays))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(arrays, len(scalars))
        with autograd.pause():
            plan(*arrays, *map(float, scalars))

    def _plan(self, arrays: Sequence[Any], count: int) -> Any:
        entries = [placeholder(spec_of(array)) for array in arrays]
        numbers = [placeholder(Spec((), "float32", weak=True)) for _ in range(count)]
        with Trace():
            found = list(self.function(entries, numbers))
            pairs = list(zip(entries, found, strict=False))
            news = [new if new.dtype is old.dtype else new.astype(old.dtype) for old, new in pairs]
        updates = list(enumerate(news))
        return plan_of(Graph([*entries, *numbers], (), updates, self.name))


__all__ = ["Compiled", "Update", "compile", "constant", "current_trace", "parameters_replaced"]
