"""Compiled functions: they are traced once, optimized, and run as one native plan.

`compile(f)` and a hybridized block are the same thing: a `Compiled`. The first call with arguments
of a new kind traces the function with symbols. Every axis of every array is left free, so that
other sizes bind the same program instead of being traced again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import is_ as is_same
from sys import modules
from types import MethodType
from typing import Any, TypeVar, overload

from gemel import _core, autograd
from gemel.codegen.schedules import Recipe
from gemel.codegen.schedules import checked as checked_recipes
from gemel.device import CPUS, Device, current_device, elsewhere
from gemel.dtype import default_float
from gemel.errors import TraceError, check_function
from gemel.extent import seen
from gemel.ir import precision
from gemel.ir.current import current_trace
from gemel.ir.graph import Graph, constant
from gemel.ir.trace import Trace, parameters_replaced
from gemel.ndarray import ndarray
from gemel.passes import Pass, in_parts, pipeline
from gemel.passes.simplify import fold
from gemel.process.urgent import urgent
from gemel.runtime.backend import backend_for, backend_of
from gemel.runtime.prepare import check_one_device
from gemel.spec import Spec
from gemel.tracing import nested
from gemel.tracing.bound import Bound
from gemel.tracing.manners import made_nd
from gemel.tracing.nested import by_place, called, form_of, unhashable, with_named
from gemel.tracing.programs import Arguments, Program
from gemel.tracing.sized_plans import Unfit

T = TypeVar("T")


class Compiled:
    """A function compiled for each kind of arguments it is called with.

    Arrays and floats are inputs. Other Python numbers are constants: a call with different ones
    traces the function again. (If `symbolic`, and there are no arrays, they are nodes of the graph,
    so that it can be looked at.) A float whose value the function uses, in a branch or in
    `math.sqrt`, is a constant, too. Without `fold` there is no constant folding. `traces` counts
    how often the function itself ran.
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
        check_function("compile", function)
        self.function = self.__wrapped__ = function
        #: The function to call instead while another function is being traced.
        self.inside = function
        self.__doc__ = function.__doc__
        self.name = self.__name__ = name or getattr(function, "__name__", "program")
        self.__module__ = getattr(function, "__module__", None) or __name__
        self._settings = (self.name, fold, symbolic, passes, recipes)
        self.passes = pipeline(fold, passes)
        self.recipes = checked_recipes(recipes) if recipes != () else ()
        self.symbolic = symbolic
        self.traces = 0
        #: Whether the caller guarantees that arguments share no memory with the program's arrays.
        self.apart = False
        #: Whether it is a block's `forward`, whose arguments are never parameters it overwrites.
        self.owns = False
        self._programs: dict[Any, list[Program]] = {}
        self._bound: dict[Any, Bound] = {}
        #: The fast path in C++: it calls the known plan for such arguments, or else `_slowly`.
        self.quick = _core.CallSite(self._slowly)
        #: The device on which calls without arrays take the fast path; None if none do yet.
        self._home: Device | None = None

    def __reduce__(self) -> Any:
        """Pickled by name like a function, if the name leads to it; else with its function."""
        name = getattr(self.function, "__qualname__", "")
        named = getattr(modules.get(self.__module__), name, None)
        return name if named is self else (Compiled, (self.function, *self._settings))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method, as of any function in a class. The object is a constant of the program, which
        keeps it until `KINDS` others have come."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The function's results, computed by the compiled program."""
        if named:
            from inspect import signature  # rarely needed

            placed = by_place(self.name, signature(self.function), arguments, named)
            arguments = with_named(*placed)
        if self._home is not None and self._home is not current_device():
            return self._slowly(*arguments)
        return self.quick(*arguments)

    def _slowly(self, *arguments: Any) -> Any:
        """A call that the call site has no plan for: with new arguments, or while recording."""
        if current_trace() is not None:
            return called(self.inside, arguments)
        return self._fitting(arguments, partial(self._run, self.quick.generation, arguments))

    def _run(
        self, generation: int, arguments: tuple[Any, ...], bound: Bound, flat: Arguments
    ) -> Any:
        """The results of a call by this program. Raises `Unfit`."""
        own = bound.program.own(flat.arrays)
        copies = bound.program.copies(arguments, flat.arrays)
        try:
            results = bound.run(flat, own)
        except TypeError:
            check_one_device(self.name, flat.arrays)  # names the devices; the core only has numbers
            raise
        for array, copy in copies:
            array[...] = copy.asnumpy()
        if not _core.recording():
            self._remember(generation, arguments, bound, flat, own)
        return results

    def _remember(
        self,
        generation: int,
        arguments: tuple[Any, ...],
        bound: Bound,
        flat: Arguments,
        own: tuple[Any, ...],
    ) -> None:
        """Let calls like this one take the fast path, if their arguments are arrays, then floats on
        whose values the program does not depend."""
        program, leaves = bound.program, flat.arrays
        values = (*leaves, *flat.numbers)
        if len(values) != len(arguments) or not all(map(is_same, arguments, values)):
            return
        if program.trace.inputs.specialized or not program.closed.is_plain or program.laid_out:
            return
        if not leaves and not self._at_home(own):
            return
        plan = bound.in_place(leaves, own) if program.written else bound.inference(leaves, own)
        if isinstance(plan, _core.Plan):
            form = form_of(bound.structure, made_nd if program.is_nd else None)
            decided = program.inner_gradients.is_decided_by(program.written, len(leaves))
            # Otherwise gradients depend on which arrays are the same variable.
            any_arrays = self.apart or (decided and (self.owns or not program.updated))
            if any_arrays or not program.inner_gradients.is_tied:
                known = len(flat.numbers), plan, own, form
                apart = not any_arrays
                self.quick.add(generation, _core.training(), apart, tuple(leaves), *known)

    def _at_home(self, own: tuple[Any, ...]) -> bool:
        """Whether a call without arrays may take the fast path on the current device.

        A plan without any arrays runs on the first device on that path.
        """
        here = current_device()
        if self.owns or (self._home or here) is not here or not (own or here.code == 0):
            return False
        self._home = here
        return True

    def _fitting(self, arguments: tuple[Any, ...], use: Callable[[Bound, Arguments], T]) -> T:
        """What `use` returns for the program that is bound to these arguments, and for the
        arguments taken apart; it may raise `Unfit`.

        Guards that passes add are known only once they have run, which may be in another thread.
        Each one that is broken rules out one program; one that is traced now fits.
        """
        while True:
            bound, flat = self._find(arguments)
            try:
                return use(bound, flat)
            except Unfit:
                for key, other in list(self._bound.items()):
                    if other is bound:
                        self._bound.pop(key, None)

    def _find(self, arguments: tuple[Any, ...]) -> tuple[Bound, Arguments]:
        """The bound program for these arguments, and the arguments taken apart."""
        if len(arguments) == 1 and type(arguments[0]) is ndarray:
            flat = Arguments(SINGLE, [arguments[0]], [])
        else:
            with nested.checked(self.name, "an argument"):
                flat = Arguments.of(arguments)
        shapes = ((a.shape, a._code) for a in flat.arrays)
        key = (flat.structure, _mode(flat), _core.recording(), *shapes)
        try:
            bound = self._bound.get(key)
        except TypeError:
            raise TraceError(
                f"{self.name}: arguments must be arrays, numbers, strings, or lists of these, not "
                f"a {unhashable(flat.structure)}"
            ) from None
        if bound is None or not bound.program.holds(flat):
            bound = self._bind(flat)
            make_room(self._bound, SIZES)
            self._bound[key] = bound
        return bound, flat

    def _bind(self, flat: Arguments) -> Bound:
        """Bind a program that fits these arguments, traced now if none does, to their sizes."""
        arrays = tuple((a.ndim, a._code) for a in flat.arrays)
        key = flat.structure, _mode(flat), arrays
        if key not in self._programs:
            make_room(self._programs, KINDS)
        programs = self._programs.setdefault(key, [])
        recorded = autograd.is_recording()
        programs[:] = [program for program in programs if program.lives]
        program = next((p for p in programs if p.fits(flat, recorded)), None)
        if program is None:
            there = elsewhere(flat.arrays) or current_device()
            with autograd.pause(train_mode=autograd.is_training()), there, urgent:
                program = Program(self, flat, recorded)
            self.traces += 1
            programs.insert(0, program)
            del programs[PROGRAMS:]
        return Bound(program, program.dims(flat.arrays))

    def kinds(self) -> list[Arguments]:
        """The kinds of arguments it was traced for, the latest last, with specs for arrays."""
        # A kind whose trace failed has no programs.
        return [traces[-1] for traces in self._traces() if traces]

    def variants(self) -> list[Arguments]:
        """What it was traced for: `kinds`, then earlier traces of the same kinds."""
        kinds = self._traces()
        return [*self.kinds(), *(before for traces in kinds for before in traces[-2::-1])]

    def _traces(self) -> list[list[Arguments]]:
        """What it was traced for, by kind, the latest last; with specs instead of arrays."""
        kinds = []
        for (structure, _, arrays), programs in self._programs.items():
            traces = []
            for program in reversed(programs):
                inputs = program.graph.inputs[: len(arrays)]
                specs = [Spec(tuple(map(seen, entry.shape)), entry.dtype) for entry in inputs]
                numbers = [number.seen for number in program.numbers]
                traces.append(Arguments(structure, specs, numbers, program.is_nd))
            kinds.append(traces)
        return kinds

    def last(self) -> Arguments | None:
        """The kind of arguments it was last traced for; None before the first call.

        Of several traces, the newest of those with the most extents above 1. Extents of 0 and 1 are
        never free, so a file would be valid for those alone.
        """
        newest = reversed(self._traces())
        traces: list[Arguments] = next((traces for traces in newest if traces), [])
        return max(reversed(traces), key=_above_one, default=None)

    # --- inspection -------------------------------------------------------------------------

    def graph(self, *arguments: Any, optimized: bool = False) -> Graph:
        """The graph for these arguments, before or after the passes."""
        if optimized:
            return self._fitting(arguments, lambda bound, _: bound.program.optimized(bound.values))
        bound, _ = self._find(arguments)
        return bound.program.graph

    def folded(self, *arguments: Any) -> Graph:
        """The graph for these arguments after constant folding alone (as the passes are set)."""
        graph = self.graph(*arguments)
        with Trace():
            return fold(graph) if fold in self.passes else graph

    def image(self, *arguments: Any) -> bytes:
        """The plan for arguments like these as bytes that need nothing else to run.

        Arrays the function closes over are in it as they are now; parameters are further inputs,
        after the arguments, in the order in which the function first reads them (a dense or
        convolutional layer its bias, then its weight). `docs/internals/plan-image.md` has the
        format, and says which other sizes an image takes: with matrix products few or none, not
        even smaller batches. gemel.h loads it.
        """
        bound, _ = self._for_all_sizes()._find(arguments)
        _core.wait_all()
        return bound.image(backend_of(CPUS[0])).write(embed=True)

    def _for_all_sizes(self) -> Compiled:
        """The same, traced anew: its plans ask as little of sizes as they can. Who has only an
        image cannot make another plan for other sizes."""
        made = Compiled(self.function, *self._settings)
        made.inside, made.apart, made.owns = self.inside, self.apart, self.owns
        made.passes = tuple(step for step in self.passes if step is not in_parts)
        return made

    def source(self, *arguments: Any) -> str:
        r"""The kernels of the plan for these arguments as C text, to be read (CUDA C++ for a GPU).

        Without arguments: of the plan for those it was last traced for. The text begins with the
        plan's steps; each kernel follows as one C function, after the functions it calls. It needs
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
            return self._fitting(arguments, Bound.source)
        traced = next(reversed(self._programs.values()), None)
        if not traced:
            raise TraceError(f"{self.name}.source: call it first, or give arguments as for a call")
        sizes = {name: seen(size) for name, size in traced[0].trace.extents.dims.items()}
        return traced[0].inference().source(sizes, backend_for(()))

    def plan_summary(self, *arguments: Any) -> str:
        """What the plan for these arguments consists of, and its memory besides the results."""
        return f"{self.name}: {self._fitting(arguments, Bound.summary)}"


def _mode(arguments: Arguments) -> tuple[Any, ...]:
    """What a trace depends on besides the structure of the arguments, their shapes and dtypes."""
    return _core.training(), default_float(), precision.current(), arguments.is_nd


def make_room(held: dict[Any, Any], limit: int) -> None:
    """Evict the oldest, so that one more fits; another thread may be doing the same."""
    for old in list(held)[: max(len(held) + 1 - limit, 0)]:
        held.pop(old, None)


def _above_one(arguments: Arguments) -> int:
    """How many extents of these arguments may be free."""
    return sum(n > 1 for x in arguments.arrays for n in x.shape)


#: How many bound programs (kinds and sizes of arguments) a function keeps.
SIZES = 1024
#: For how many kinds of arguments (dtypes, numbers, texts, objects of a method) it keeps traces.
KINDS = 1024
#: How many traces it keeps for one kind of arguments, the newest first.
PROGRAMS = 64
#: The structure of the arguments of a call with one array.
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
    """Compile a function into one native program, which computes the same results.

    The function is traced: for each kind of arguments (dtypes, numbers of dimensions, Python
    numbers) it runs once, with symbols in place of arrays. Whatever else it does, such as printing,
    happens only then. Each call also reads and writes the arrays that the function closes over, and
    gradients reach them; tracing finds out which arrays these are (docs/decisions/0061). If a
    result would be a view of an argument or of another result, it is a copy.

    `fold=False` switches constant folding off. With `script=True`, `if`, `while` and `for` may
    depend on the values of arrays (see `gemel.scripting`). `passes` are additional passes from
    graph to graph, which run before operations are fused. `recipes` are additional ways to compute
    loops (`codegen.schedules.Recipe`). docs/extending.md describes both.

    Without a function, it returns a decorator: `@compile(script=True)`. Raises `TypeError` if
    `function` cannot be called.

    >>> f = compile(lambda a, b, c, d: (a + b) + (c + d))
    >>> str(f.graph(1, 2, 3, 4))
    '(1 + 2) + (3 + 4)'
    """
    if function is ...:
        options = {"fold": fold, "script": script, "passes": passes, "recipes": recipes}
        return partial(compile, **options)
    if script:
        from gemel.scripting import script as scripted  # imported late, as few programs use it

        function = scripted(function)
    return Compiled(function, fold=fold, symbolic=True, passes=passes, recipes=recipes)


__all__ = [
    "Compiled",
    "compile",
    "constant",
    "current_trace",
    "make_room",
    "parameters_replaced",
]
