"""The rules of an operation: which there are, their arguments and results, and how to declare them.

A rule is a function in the operation's paragraph of `gemel.ops`. It is declared by the decorator of
the rule's name, and kept as `Op.rules.<name>`, which is None without a declaration::

    @transpose.view                                 # now transpose.rules.view(layout, *results,
    def _(layout, result, *, axes):                 # axes=...) gives the layout of the result
        return Layout(result.shape, (layout.strides[axis] for axis in axes), layout.offset)

Only some are needed: an elementwise operation gets its specs and its kernel from its body, a view
needs `spec` and `view`. All rules get the static parameters by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gemel.ir.layout import Layout
from gemel.spec import Spec

if TYPE_CHECKING:
    from gemel.dtype import DType
    from gemel.ir.graph import Entry, Graph, Node
    from gemel.ir.loops import LoopSpec
    from gemel.ir.op import Op
    from gemel.ir.position import At


# Each operation has its own inputs and parameters, so the protocols end in ``*inputs: Any`` and
# ``**parameters: Any``, with which type checkers accept any. The arguments before are checked.


class SpecRule(Protocol):
    """The specs of the results, given those of the inputs. Raises `ShapeError` or `DTypeError`."""

    def __call__(self, *inputs: Any, **parameters: Any) -> Spec | Iterable[Spec]: ...


class GradientRule(Protocol):
    """One entry or None per input: the gradients of the inputs.

    y are the results, g the gradients that arrived at them. With several outputs both are tuples,
    and g is None for an output at which none arrived.
    """

    def __call__(
        self, g: Any, y: Any, /, *inputs: Any, **parameters: Any
    ) -> Sequence[Entry | None]: ...


class BackwardRule(Protocol):
    """The gradients, by a rule that is told which inputs need one.

    `gs` are the gradients of the outputs. It returns one entry or None per input.
    """

    def __call__(
        self, node: Node, gs: Sequence[Entry | None], wanted: Sequence[bool], /
    ) -> Sequence[Entry | None]: ...


class ElementRule(Protocol):
    """The element of the result at a position, for kernels.

    `at` has an `At` (`ir.position`) for each axis of the result. ``x.at(...)`` reads an input,
    given an `At` or a number computed in the loop for each of its axes; `loop.checked` and
    `loop.limited` keep such numbers in range.
    """

    def __call__(
        self, loop: Any, at: tuple[At, ...], /, *inputs: Any, **parameters: Any
    ) -> Any: ...


#: A part of a result: its layout in the result's memory, and its source. The source is the position
#: of an input, which is broadcast to the part, or a float that fills the part.
Part = tuple[Layout, float]


class PiecesRule(Protocol):
    """The parts that a result consists of, given its layout and the specs of the inputs.

    Later parts overwrite earlier ones.
    """

    def __call__(self, layout: Layout, /, *inputs: Any, **parameters: Any) -> Iterable[Part]: ...


class Emitter(Protocol):
    """What `lower` rules write kernels with (`runtime.lower`); places are `codegen.nest.Place`s."""

    def temporary(self, dtype: DType, shape: tuple[int, ...]) -> Any:
        """A place in new scratch memory."""

    def fill(self, target: Any, value: float) -> None:
        """Set every element to a number."""

    def copy(self, source: Any, target: Any) -> None:
        """Copy elements, converting and broadcasting as needed."""

    def contiguous(self, source: Any) -> Any:
        """The place itself when it is dense, else a dense copy of it."""

    def gather(self, target: Any, sources: Sequence[Any]) -> None:
        """Copy sources to their parts of the result (`pieces`), unless they were computed there."""

    def loop(
        self,
        shape: tuple[int, ...],
        failure: tuple[Any, ...] | None = None,
        parallel: bool = True,
        reduced: frozenset[int] = frozenset(),
    ) -> Any:
        """A loop nest over a shape, to be filled and finished.

        `failure` is what a failing check raises: (name of the error, message, sizes in it).
        """

    def branch(
        self, predicate: Any, sides: tuple[Graph, Graph], inputs: list[Any], outputs: list[Any]
    ) -> None:
        """One of two graphs on the same inputs, chosen when the plan runs."""

    def rounds(self, outputs: list[Any], inputs: list[Any], spec: LoopSpec) -> None:
        """The rounds of a loop."""


class LowerRule(Protocol):
    """The kernels: writes them with `emit`, from the places of the inputs to those of the
    outputs."""

    def __call__(
        self,
        emit: Emitter,
        outputs: list[Any],
        inputs: list[Any],
        /,
        *_: Any,
        **parameters: Any,
    ) -> None: ...


class ViewRule(Protocol):
    """The layouts of the results, which are views of input 0, given its layout and their specs.

    None if strides cannot express a result, so that the elements have to be copied.
    """

    def __call__(
        self, layout: Layout, /, *results: Any, **parameters: Any
    ) -> Layout | tuple[Layout, ...] | None: ...


class PutRule(Protocol):
    """A write through a view: x, with `value` in place of the elements that result `index`
    shows."""

    def __call__(self, x: Any, value: Any, index: int, /, *_: Any, **parameters: Any) -> Entry: ...


class StepRule(Protocol):
    """Work that the C++ core does itself on dense arrays of the host, given the inputs' specs.

    Returns `_core.SortedRows`, or None to leave it to NumPy.
    """

    def __call__(self, *inputs: Any, **parameters: Any) -> Any: ...


class IssueRule(Protocol):
    """Runs a call that neither a kernel nor NumPy can do; returns an array. Not recorded."""

    def __call__(self, *arrays: Any, **parameters: Any) -> Any: ...


class ControlRule(Protocol):
    """Runs graphs that are parameters; returns the results.

    ``run(graph, *values)`` is what NumPy (`interpret`) or compiled programs compute. The rule waits
    for the values it asks for.
    """

    def __call__(self, run: Any, /, *inputs: Any, **parameters: Any) -> Sequence[Any]: ...


class MaskedRule(Protocol):
    """What `where=` means for a reduction: its result for the elements where the mask holds."""

    def __call__(self, mask: Any, x: Any, /, *others: Any, **parameters: Any) -> Any: ...


class PlannedRule(Protocol):
    """What plans compute instead of a composite's body, on entries: one result or a tuple."""

    def __call__(self, *inputs: Any, **parameters: Any) -> Entry | tuple[Entry, ...]: ...


class WholeRule(Protocol):
    """Whether plans for a device without large caches compute a composite's body after all, for
    inputs of these specs."""

    def __call__(self, *specs: Any, **parameters: Any) -> bool: ...


class Rules:
    """The rules an operation has declared. Its attributes are all the rules there are."""

    # --- meaning
    spec: SpecRule | None = None
    gradient: GradientRule | None = None
    backward: BackwardRule | None = None
    #: For composites.
    planned: PlannedRule | None = None
    whole: WholeRule | None = None
    #: For contractions: the operation that computes the same sums without rounding to two bytes.
    unrounded: Op | None = None

    # --- kernels
    element: ElementRule | None = None
    pieces: PiecesRule | None = None
    lower: LowerRule | None = None

    # --- views
    view: ViewRule | None = None
    put: PutRule | None = None

    # --- what is run otherwise
    step: StepRule | None = None
    issue: IssueRule | None = None
    control: ControlRule | None = None

    # --- calls
    masked: MaskedRule | None = None
    #: A function for calls with arguments that the operation does not have.
    extended: Callable[..., Any] | None = None


#: Decorators return the function they are given, with its own type.
Rule = TypeVar("Rule", bound=Callable[..., Any])


class RuleDecorators:
    """The decorators by which a paragraph of `gemel.ops` adds rules to an operation."""

    name: str
    rules: Rules
    #: Whether it becomes machine code. NumPy runs the others, in the engine's Python lane.
    has_kernel = False
    moves: int
    complex: bool
    is_holomorphic = False

    def _declare(self, kind: str, rule: Rule) -> Rule:
        """Keep a rule. Raises `ValueError` if there is one: calls may have used it, and what was
        made with it is kept."""
        if getattr(self.rules, kind) is not None:
            raise ValueError(
                f"{self.name}: its rule {kind!r} is declared twice; to change it, declare the "
                "operation again, too"
            )
        setattr(self.rules, kind, rule)
        return rule

    def spec(self, rule: SpecRule) -> SpecRule:
        """Declare the specs of the results."""
        return self._declare("spec", rule)

    def gradient(self, rule: GradientRule) -> GradientRule:
        """Declare the gradient."""
        return self._declare("gradient", rule)

    def holomorphic(self, rule: GradientRule) -> GradientRule:
        """Declare the gradient of a holomorphic function by its formula for reals, g * f'(x).

        `passes.gradient` makes it g * conj(f'(x)) for complex numbers.
        """
        self.complex = self.is_holomorphic = True
        return self.gradient(rule)

    def backward(self, rule: BackwardRule) -> BackwardRule:
        """Declare the gradient by a rule that is told which inputs need it."""
        return self._declare("backward", rule)

    def element(self, rule: ElementRule) -> ElementRule:
        """Declare the element of the result at a position."""
        self.has_kernel = True
        return self._declare("element", rule)

    def pieces(self, rule: PiecesRule) -> PiecesRule:
        """Declare a result that consists of parts."""
        self.has_kernel = True
        return self._declare("pieces", rule)

    def lower(self, rule: LowerRule) -> LowerRule:
        """Declare the kernels."""
        self.has_kernel = True
        return self._declare("lower", rule)

    def step(self, rule: StepRule) -> StepRule:
        """Declare work that the C++ core does itself, on dense arrays of the host."""
        return self._declare("step", rule)

    def issue(self, rule: IssueRule) -> IssueRule:
        """Declare a function that runs calls that neither a kernel nor NumPy can do."""
        return self._declare("issue", rule)

    def control(self, rule: ControlRule) -> ControlRule:
        """Declare which of the graphs that are parameters run, and on which values."""
        return self._declare("control", rule)

    def view(self, rule: ViewRule) -> ViewRule:
        """Declare that the results are views of input 0."""
        self.has_kernel, self.moves = True, 1
        return self._declare("view", rule)

    def masked(self, rule: MaskedRule) -> MaskedRule:
        """Declare what `where=` means for a reduction."""
        return self._declare("masked", rule)

    def put(self, rule: PutRule) -> PutRule:
        """Declare a write through a view."""
        return self._declare("put", rule)

    def extended(self, function: Rule) -> Rule:
        """Declare a function for calls with arguments that the operation does not have.

        Calls without such arguments go to the operation, and so can bypass Python.
        """
        function.__name__ = function.__qualname__ = self.name
        self.__doc__ = function.__doc__ or self.__doc__
        self.rules.extended = function
        return function


__all__ = ["Emitter", "Part", "RuleDecorators", "Rules"]
