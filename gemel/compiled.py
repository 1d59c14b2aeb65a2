"""Compiled functions: traced once, optimised, and run as one native plan.

`compile(f)` and a hybridized block are the same thing: a `Compiled`. Its first call with arguments
of a new kind traces the function with symbols; every axis of every array is left free, so that
other sizes bind the same program again instead of tracing anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import is_ as is_same
from typing import Any, overload

from gemel import _core, autograd, tape
from gemel.codegen.schedules import Recipe
from gemel.codegen.schedules import checked as checked_recipes
from gemel.device import current_device, elsewhere
from gemel.dtype import default_float
from gemel.errors import GradientError, TraceError
from gemel.extent import seen
from gemel.garbage import uncollected
from gemel.ir.graph import Entry, Graph, constant, inline, placeholder
from gemel.ir.interpret import spec_of
from gemel.ir.trace import Trace, current_trace, parameters_replaced
from gemel.kinds import Kind, Place, in_parts
from gemel.ndarray import ndarray
from gemel.nested import by_place, form_of, unflatten
from gemel.passes import Pass, gradient, pipeline
from gemel.passes.bind import concrete_graph
from gemel.passes.gradient import with_heads
from gemel.passes.simplify import fold
from gemel.programs import Arguments, Program, Unfit, check_apart
from gemel.runtime.backend import backend_for
from gemel.runtime.image import Image
from gemel.runtime.prepare import check_one_device
from gemel.spec import Spec

# --- a program bound to sizes -----------------------------------------------------------------


class Bound:
    """A program for arguments of known sizes."""

    def __init__(self, program: Program, values: dict[str, int]) -> None:
        self.program = program
        self.values = values
        self.plan: Any = None
        self.writing: Any = None
        self.training: dict[Any, BoundHalves] = {}
        self.structure = program.structure

    def parameter_arrays(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """The arrays of the parameters now, where the arguments are, in the plan's order.

        And those the function closes over.
        """
        program, device = self.program, leaves[0].device if leaves else None
        closed = [each.on(device) for each in program.closed.inputs.values()]
        if device is None:
            return (*[parameter.data() for parameter in program.parameters], *closed)
        return (*[parameter.array(device) for parameter in program.parameters], *closed)

    def inference(self, leaves: Sequence[Any], own: Sequence[Any] | None = None) -> Any:
        """The plan that computes the results, and so for arrays like these.

        `own` are the program's `parameter_arrays`, where they are known already.
        """
        if self.plan is None:
            arrays = (*leaves, *(self.parameter_arrays(leaves) if own is None else own))
            with uncollected:
                self.plan = self.program.inference().find(self.values, arrays)
        return self.plan

    def in_place(self, leaves: Sequence[Any], own: Sequence[Any]) -> Any:
        """The plan that overwrites arguments where they lie, for arrays like these; None: none."""
        if self.writing is None:
            plans = self.program.in_place()
            with uncollected:
                self.writing = plans is not None and plans.find(self.values, (*leaves, *own))
        if not self.writing:
            return None
        dense = all(leaves[position]._is_contiguous for position in self.program.written)
        return self.writing if dense else None

    def image(self, leaves: Sequence[Any]) -> Image:
        """The image of that plan, lowered anew, with the arrays the function closes over."""
        backend = backend_for((*leaves, *self.parameter_arrays(leaves)))
        return self.program.embedded().image(self.values, backend)

    def summary(self, leaves: list[Any]) -> str:
        """What the plan consists of, and its memory besides the results."""
        _, workspace = self.inference(leaves).bound(*leaves, *self.parameter_arrays(leaves))
        return f"{self.image(leaves).count()} kernels, {workspace} bytes of workspace"

    def run(self, given: Arguments, own: tuple[Any, ...]) -> Any:
        """The function's results on these arguments and the program's own arrays."""
        arrays = (*given.arrays, *own)
        written = self.program.written
        if written:
            check_apart(self.program.name, arrays, written)
        wanted = self._wanted(arrays) if _core.recording() else ()
        plan = self.in_place(given.arrays, own) if written and not _core.recording() else None
        if True in wanted:
            found = self._recorded(arrays, given.numbers, wanted)
        elif plan is not None:
            found, written = plan(*arrays, *given.numbers), []
        else:
            found = self.inference(given.arrays, own)(*arrays, *given.numbers)
        for position, value in zip(written, found[len(found) - len(written) :], strict=True):
            tape.overwrite(arrays[position], value)
        return found[0] if self.structure is None else unflatten(self.structure, iter(found))

    def _wanted(self, arrays: tuple[Any, ...]) -> tuple[bool, ...]:
        """For each array whether a gradient is to pass to what it was computed from."""
        pairs = zip(self.program.reached, arrays, strict=False)
        return tuple([bool(reached and array._is_tracked) for reached, array in pairs])

    def _recorded(
        self, arrays: tuple[Any, ...], numbers: list[float], wanted: tuple[bool, ...]
    ) -> tuple[Any, ...]:
        halves = self.training.get(wanted)
        if halves is None:
            with uncollected:
                halves = BoundHalves(self.program, wanted, self.values, arrays)
            self.training[wanted] = halves
        return halves.run((*arrays, *numbers))


class BoundHalves(Kind):
    """The two halves of a training call for known sizes: on the tape, a kind of call."""

    compiled = True

    def __init__(
        self,
        program: Program,
        wanted: tuple[bool, ...],
        values: dict[str, int],
        arrays: tuple[Any, ...],
    ) -> None:
        wanted = (*wanted, *[False] * len(program.numbers))
        halves = program.split(wanted)
        with Trace():
            self.plan = halves.plans.find(values, arrays)
            self.backward = concrete_graph(halves.backward, values)
            self.forward = concrete_graph(program.graph, values)
        outputs = tuple(entry.spec for entry in self.forward.outputs)
        super().__init__(program.name, tuple(e.spec for e in self.forward.inputs), outputs)
        self.wanted = wanted
        self.numbers = len(program.numbers)
        self.reached = program.reached if len(outputs) > 1 else None
        results = enumerate((*halves.outputs, *halves.kept))
        places: dict[Entry, Place] = {entry: ("output", i) for i, entry in results}
        places |= {entry: ("input", i) for i, entry in enumerate(program.graph.inputs)}
        #: Where each saved value comes from: an input of the call, or a result of the plan.
        self.saved: list[Place] = [places[entry] for entry in halves.saved]

    def stand_ins(self, again: bool) -> dict[Place, Entry]:
        """Entries for what was saved; for all inputs where the whole is differentiated."""
        if again:
            return super().stand_ins(again)
        return {
            place: placeholder(entry.spec)
            for place, entry in zip(self.saved, self.backward.inputs, strict=False)
        }

    def gradients(
        self, gs: tuple[Entry | None, ...], given: dict[Place, Entry], again: bool
    ) -> Sequence[Entry | None]:
        """By the backward half; by that of the whole program where it is differentiated in turn."""
        if again:
            return self._gradients_again(gs, given)
        saved = [given[place] for place in self.saved]
        heads = [g for g, floating in zip(gs, self.floating, strict=True) if floating]
        entries = self.backward.inputs[len(saved) :]
        found = iter(with_heads(self.backward, [*saved, *heads], entries))
        return [next(found) if want else None for want in self.wanted]

    def _gradients_again(
        self, gs: tuple[Entry | None, ...], given: dict[Place, Entry]
    ) -> Sequence[Entry | None]:
        if any(node.op is not None and node.op.random for node in self.forward.walk()):
            raise GradientError(
                f"grad: create_graph=True through {self.name}, a compiled function with random "
                "numbers: they would be drawn again; call the function itself"
            )
        inputs = [given["input", i] for i in range(len(self.inputs))]
        pairs = zip(inline(in_parts(self.forward), inputs), gs, strict=True)
        ends, heads = zip(*((y, g) for y, g in pairs if g is not None), strict=True)
        chosen = [x for x, want in zip(inputs, self.wanted, strict=True) if want]
        found = iter(gradient(ends, heads, chosen))
        return [next(found) if want else None for want in self.wanted]

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results, remembering this call on the tape."""
        found: tuple[Any, ...] = self.plan(*inputs)
        outputs = found[: len(self.outputs)]
        pairs = zip(inputs, self.wanted, strict=True)
        call = BoundCall(self, tuple(tape.current_source(a) if w else None for a, w in pairs))
        call.given = inputs
        call.versions = [a.version for a in inputs[: len(inputs) - self.numbers]]
        for index, value in enumerate(outputs):
            # A view of an input, or of another result, is on the tape with that.
            alone = value._history is None or not self._shows(value, inputs)
            if self.floating[index] and alone:
                value._track((call, index))
        call.keep(inputs, found)
        return outputs

    @staticmethod
    def _shows(result: Any, inputs: tuple[Any, ...]) -> bool:
        """Whether a result shows contents of an input, or part of another result's."""
        history = result._history
        return not result._is_base or any(
            history is x._history for x in inputs if isinstance(x, _core.Array)
        )


class BoundCall(tape.Call):
    """A compiled call on the tape."""

    __slots__ = ("given", "versions")

    given: tuple[Any, ...]  # its inputs
    versions: list[int]  # those of the arrays among them

    @property
    def reached(self) -> Sequence[int] | None:  # type: ignore[override]
        """For each input from which outputs gradients pass to it, where the kind knows."""
        return self.kind.reached  # type: ignore[no-any-return]

    def kept(self, place: Place) -> Any:
        """What is kept, or a number among the inputs."""
        return super().kept(place) if place in self.reads else self.given[place[1]]

    def tracked(self, place: Place) -> Any:
        """An input of the call as an array that gradients pass through."""
        array, source = self.given[place[1]], self.sources[place[1]]
        if array.version != self.versions[place[1]]:
            raise GradientError(
                f"grad: create_graph=True: an argument of {self.kind.name} ({spec_of(array)}) was "
                "overwritten in place after the call; write to a new array instead"
            )
        array = array._detached()
        if source is not None:
            array._track(source)
        return array

    def free(self) -> None:
        """Give back what was saved, and what led here."""
        super().free()
        self.given = ()


# --- what users hold ------------------------------------------------------------------------


class Compiled:
    """A function compiled for each kind of arguments it is called with.

    Arrays and floats are inputs; other Python numbers are constants of the program: plain ones, or,
    if `symbolic` and there are no arrays, nodes of the graph. A float whose value the function
    asks for (by a branch, or `math.sqrt`) is a constant, too. Without `fold` no arithmetic is done
    at compile time. `traces` counts how often the function itself ran.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str = "",
        fold: bool = True,
        symbolic: bool = False,
        passes: Sequence[Pass] = (),
        recipes: Sequence[Recipe] = (),
    ) -> None:
        if not callable(function):
            raise TypeError(f"compile: {function!r} is no function")
        self.function = self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.name = self.__name__ = name or getattr(function, "__name__", "program")
        self.passes = pipeline(fold, passes)
        self.recipes = checked_recipes(recipes) if recipes != () else ()
        self.symbolic = symbolic
        self.traces = 0
        self._programs: dict[Any, list[Program]] = {}
        self._bound: dict[Any, Bound] = {}
        #: Does the same as a call: goes straight from arrays seen before to their plan.
        self.quick = _core.CallSite(self._slowly)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The function's results, by the compiled program."""
        if named:
            from inspect import signature  # seldom needed

            rule = f"{self.name} is compiled and takes no keyword-only arguments"
            arguments = by_place(rule, signature(self.function), arguments, named)
        return self.quick(*arguments)

    def _slowly(self, *arguments: Any) -> Any:
        """A call the site has no plan for: other arguments, or one that is being recorded."""
        if current_trace() is not None:
            return self.function(*arguments)
        generation = self.quick.generation
        bound, given = self._find(arguments)
        own = bound.parameter_arrays(given.arrays)
        try:
            found = bound.run(given, own)
        except Unfit:
            self._bound = {key: other for key, other in self._bound.items() if other is not bound}
            bound, given = self._find(arguments)
            own = bound.parameter_arrays(given.arrays)
            found = bound.run(given, own)
        except TypeError:
            check_one_device(self.name, given.arrays)  # the core knows the devices' numbers only
            raise
        leaves = given.arrays
        alone = len(leaves) == len(arguments) and all(map(is_same, arguments, leaves))
        if bound.program.closed.is_plain and alone and not _core.recording():
            writes = bool(bound.program.written)
            plan = bound.in_place(leaves, own) if writes else bound.inference(leaves, own)
            if isinstance(plan, _core.Plan):
                form = form_of(bound.structure)
                self.quick.add(generation, _core.training(), tuple(leaves), plan, own, form)
        return found

    def _find(self, arguments: tuple[Any, ...]) -> tuple[Bound, Arguments]:
        """The bound program for these arguments, and what is in them."""
        if len(arguments) == 1 and type(arguments[0]) is ndarray:
            given = Arguments(SINGLE, [arguments[0]], [])
        else:
            given = Arguments.of(arguments)
        shapes = ((a.shape, a._code) for a in given.arrays)
        key = (given.structure, _mode(), _core.recording(), *shapes)
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
        programs = self._programs.setdefault((given.structure, _mode(), arrays), [])
        recorded = autograd.is_recording()
        program = next((p for p in programs if p.fits(given, recorded)), None)
        if program is None:
            there = elsewhere(given.arrays) or current_device()
            with autograd.pause(train_mode=autograd.is_training()), there, uncollected:
                program = Program(self, given, recorded)
            self.traces += 1
            programs.insert(0, program)
            del programs[PROGRAMS:]
        return Bound(program, program.dims(given.arrays))

    def kinds(self) -> list[Arguments]:
        """The kinds of arguments it was traced for, the last one last; specs in place of arrays."""
        # Without programs there the trace failed.
        return [traces[-1] for traces in self._traces() if traces]

    def variants(self) -> list[Arguments]:
        """What it was traced for: `kinds`, then what of these kinds was traced before."""
        found = self._traces()
        return [*self.kinds(), *(given for traces in found for given in traces[-2::-1])]

    def _traces(self) -> list[list[Arguments]]:
        """What it was traced for, by kind, the last one last; specs in place of arrays."""
        found = []
        for (structure, _, arrays), programs in self._programs.items():
            traces = []
            for program in reversed(programs):
                inputs = program.graph.inputs[: len(arrays)]
                specs = [Spec(tuple(map(seen, entry.shape)), entry.dtype) for entry in inputs]
                numbers = [number.seen for number in program.numbers]
                traces.append(Arguments(structure, specs, numbers))
            found.append(traces)
        return found

    def last(self) -> Arguments | None:
        """The kind of arguments it was traced for last; None before the first call."""
        return next(reversed(self.kinds()), None)

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
        bound, given = self._find(arguments)
        _core.wait_all()
        return bound.image(given.arrays).write(embed=True)

    def source(self, *arguments: Any) -> str:
        r"""The kernels of the plan for these arguments as C text, to be read.

        Without arguments: of the plan for those it was last traced for. The text begins with the
        plan's steps; each kernel follows as one C function, behind the functions it calls. It needs
        nothing but a C11 compiler (``cc -ffp-contract=off -lm``) and computes what the machine code
        computes, with loops and sums in plain order: vectors, caches and threads are left out.
        Raises `TraceError` without arguments before the first call.

        >>> f = compile(lambda x, y: np.maximum(x, y) * x)
        >>> print("\n".join(f.source(np.ones(3), np.ones(3)).splitlines()[-9:-2]))
            for (int64_t i0 = begin; i0 < end; i0++) {
                const float v0 = x0[i0];
                const float v1 = x1[i0];
                const float v2 = v0 > v1 || v0 != v0 ? v0 : v1;
                const float v3 = v2 * v0;
                y2[i0] = v3;
            }
        """
        if arguments:
            bound, given = self._find(arguments)
            backend = backend_for((*given.arrays, *bound.parameter_arrays(given.arrays)))
            return bound.program.inference().source(bound.values, backend)
        traced = next(reversed(self._programs.values()), None)
        if not traced:
            raise TraceError(f"{self.name}.source: call it first, or give arguments as for a call")
        sizes = {name: seen(size) for name, size in traced[0].trace.dims.items()}
        return traced[0].inference().source(sizes, backend_for(()))

    def plan_summary(self, *arguments: Any) -> str:
        """What the plan for these arguments consists of, and its memory besides the results."""
        bound, given = self._find(arguments)
        return f"{self.name}: {bound.summary(given.arrays)}"


def _mode() -> tuple[Any, ...]:
    """What a trace depends on besides the arguments."""
    return _core.training(), default_float()


#: How many kinds and sizes of arguments a function remembers the program of.
SIZES = 1024
#: How many traces it keeps for arguments of one kind, the newest first.
PROGRAMS = 64
#: The structure of a call with one array.
SINGLE = (tuple, (None,))


@overload
def compile(  # noqa: A001
    function: Callable[..., Any],
    *,
    fold: bool = True,
    script: bool = False,
    passes: Sequence[Pass] = (),
    recipes: Sequence[Recipe] = (),
) -> Compiled: ...


@overload
def compile(  # noqa: A001
    *,
    fold: bool = True,
    script: bool = False,
    passes: Sequence[Pass] = (),
    recipes: Sequence[Recipe] = (),
) -> Callable[[Callable[..., Any]], Compiled]: ...


def compile(  # noqa: A001
    function: Any = ...,
    *,
    fold: bool = True,
    script: bool = False,
    passes: Sequence[Pass] = (),
    recipes: Sequence[Recipe] = (),
) -> Compiled | Callable[[Callable[..., Any]], Compiled]:
    """Compile a function: the same results, computed by one native program.

    The function runs once with symbols for each kind of arguments (dtypes, numbers of dimensions,
    Python numbers); what it does besides operations on arrays happens only then. Arrays it closes
    over are read, written and differentiated in each call; which ones they are is found out when
    it is traced (docs/decisions/0061). A result that is a view of an argument, or of another
    result, is a copy of it here. With `script`, `if`, `while` and `for` may depend on values of
    arrays, see `gemel.scripting`. `passes` are more steps from graph to graph, done before
    operations are fused; `recipes` are other ways to do loops (`codegen.schedules.Recipe`): see
    docs/extending.md. Without a function it gives a decorator: `@compile(script=True)`.

    >>> f = compile(lambda a, b, c, d: (a + b) + (c + d))
    >>> str(f.graph(1, 2, 3, 4))
    '(1 + 2) + (3 + 4)'
    """
    if function is ...:
        options = {"fold": fold, "script": script, "passes": passes, "recipes": recipes}
        return partial(compile, **options)
    if script:
        from gemel.scripting import script as scripted  # few programs use it

        function = scripted(function)
    return Compiled(function, fold=fold, symbolic=True, passes=passes, recipes=recipes)


__all__ = ["Compiled", "compile", "constant", "current_trace", "parameters_replaced"]
