"""Calls while tracing whose operands already have values: closed-over arrays, or only numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel.errors import ValuesNeededError
from gemel.ir.above import above
from gemel.ir.current import current_trace, suspended
from gemel.ir.graph import Entry
from gemel.ir.methods import call
from gemel.ir.trace import Trace

if TYPE_CHECKING:
    from gemel.ir.op import Op


def of_known(op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any]) -> tuple[Any, ...]:
    """Run a call at once, while tracing, whose result's shape depends on values (`nonzero`).

    That is possible if the values depend only on closed-over arrays; the program is then guarded by
    their contents. Raises `ValuesNeededError` if they depend on arguments.
    """
    trace = current_trace()
    closed = None if trace is None else trace.inputs.closed
    arrays = [] if trace is None or closed is None else _arrays(trace, inputs)
    if closed is None or any(array is None for array in arrays):
        raise ValuesNeededError(
            f"{op.name}: the shape of its result depends on values, which are known only when "
            "the program runs; call it outside of the hybridized function, or use np.where"
        )
    with suspended():
        found: tuple[Any, ...] = above.run(op, tuple(arrays), parameters)
    for array in found:
        closed.made(array)
    return found


def _arrays(trace: Trace, inputs: tuple[Any, ...]) -> list[Any]:
    """The values of the inputs: arrays and numbers, or None for an unknown value."""
    entries = [above.as_entry(value, inputs) for value in inputs]
    return [
        each.node.value if each.node.is_number else trace.inputs.known(each) for each in entries
    ]


def of_numbers(trace: Trace, op: Op, found: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The results of a traced call; they are made arrays if all its inputs were Python numbers.

    `np.sin(1.0)` is an array, as without tracing. Python's operators on number arguments (`s + 1`,
    `Op.operated`) return numbers. So do operations in a gradient's rule: 2 / n takes the dtype of
    what it scales.
    """
    if trace.inputs.closed is None or op.dynamic or not found[0].node.specs[0].weak:
        return found
    if trace.part:  # a gradient's rule makes the nodes, not the program
        return found
    return tuple([call("cast", entry, dtype=entry.dtype) for entry in found])
