"""Shape inference: a network runs on symbols, and its parameters are symbols of known shapes.

A user-defined layer that does not specify its parameters' shapes gets those that its operations
accept: for each unknown size, the sizes of the inputs are tried (`fitting_shapes`).
"""

from __future__ import annotations

from itertools import islice, product
from typing import TYPE_CHECKING, Any

from gemel import autograd
from gemel.errors import DeferredInitializationError, GemelError
from gemel.ir.closed import ClosedOver
from gemel.ir.graph import Entry, placeholder
from gemel.ir.state import State
from gemel.ir.trace import Trace
from gemel.spec import Spec
from gemel.tracing.nested import flatten
from gemel.tracing.programs import Arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from gemel.gluon.block import Block


class ShapeState(State):
    """Parameters represented by their shapes alone."""

    def _spec(self, parameter: Any) -> Spec:
        if not parameter.is_shape_known:
            raise DeferredInitializationError(
                f"parameter {parameter.name} has shape {parameter.shape}, which no layer can "
                "infer; give it"
            )
        return Spec(parameter.shape, parameter.dtype)


class ShapeTrace(Trace):
    """A trace in which parameters need only shapes, and no arrays."""

    shapes_only = True

    def __init__(self) -> None:
        super().__init__(closed=ClosedOver(constant=True), state=ShapeState)


def run_with_symbols(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Entry]:
    """Run a block or its forward; returns the results, and the values set to parameters, as
    symbols."""
    given = Arguments.of(arguments)
    symbols = [placeholder(Spec(_sizes(a), a.dtype)) for a in given.arrays]
    with autograd.pause(), ShapeTrace() as trace:
        found = function(*given.symbols(symbols, given.numbers))
        results: list[Any] = []
        flatten(found, results, [])
        return [*results, *(entry for _, entry in trace.state.updates.values())]


def _sizes(array: Any) -> tuple[int, ...]:
    """The shape as numbers, without the guards that int() of a free extent would add."""
    return tuple(getattr(n, "value", n) for n in array.shape)


class Unknown:
    """The parameters inside a block whose shapes are unknown before a call.

    If the call fails, they get what they had before: shapes that follow from the inputs of a call
    that failed need not be right.
    """

    def __init__(self, block: Block) -> None:
        self._before = [
            (parameter, parameter._shape, parameter._waiting)
            for _, parameter in block._walk("")
            if not parameter.is_shape_known
        ]

    @property
    def remain(self) -> bool:
        """Whether some have no arrays still: a trial gives them shapes only for a while."""
        return any(not parameter._arrays for parameter, _, _ in self._before)

    def restore(self) -> None:
        """Forget the shapes, and the arrays created since."""
        for parameter, shape, waiting in self._before:
            if parameter._shape != shape:
                parameter._shape, parameter._waiting = shape, waiting
                parameter._adopt(())


#: The most combinations of sizes that are tried.
TRIALS = 200


def fitting_shapes(
    block: Block, unknown: list[Any], arguments: tuple[Any, ...]
) -> tuple[tuple[int, ...], ...] | None:
    """The shapes of unknown parameters with which the block accepts these arguments, if unique.

    Candidates for a size are the extents of the arguments, and the product of all but the first.
    Each combination is tried on symbols: the operations accept or refuse it.
    """
    arrays: list[Any] = []
    flatten(arguments, arrays, [])
    sizes: set[int] = set()
    for shape in map(_sizes, arrays):
        whole = 1
        for n in shape[1:]:
            whole *= n
        sizes.update((*shape[1:], whole))
    if any(p.shape is None or p.shape.count(-1) != 1 for p in unknown):
        return None
    choices = [
        [tuple(size if n == -1 else n for n in p.shape) for size in sorted(sizes)] for p in unknown
    ]
    every = {id(p): p for p in (*unknown, *block.collect_params().values())}.values()
    before = [(p, p._shape) for p in every]
    fitting = []
    for shapes in islice(product(*choices), TRIALS):
        for parameter, shape in zip(unknown, shapes, strict=True):
            parameter._shape = shape
        try:
            run_with_symbols(block.forward, arguments)
            fitting.append(shapes)
        except GemelError:
            pass
        finally:
            for parameter, shape in before:
                parameter._shape = shape
    return fitting[0] if len(fitting) == 1 else None
