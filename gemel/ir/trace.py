"""The trace in progress on this thread: what a function asks for while it runs on symbols.

Tracing runs a Python function once with entries in place of arrays; each operation adds a node.
Everything other than operations goes through a part of the innermost `Trace`::

    inputs      what arrays and floats the inputs stand for                 (`ir.inputs`)
    state       writes in place, parameters read and set, random calls      (`ir.state`)
    extents     free sizes and the guards on them                           (`ir.extents`)
    recording   whether `autograd` records calls, and where it pauses       (`ir.recording`)
    scopes      the blocks being run, and the names of nodes                (`ir.scopes`)
    notes       what a file should say of it, while one is written          (`symbol.noting`)
"""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel.extent import Dim, is_left_over
from gemel.ir.closed import ClosedOver
from gemel.ir.current import current_trace, enter, leave
from gemel.ir.extents import Extents
from gemel.ir.inputs import Inputs
from gemel.ir.recording import Recording
from gemel.ir.scopes import Scopes
from gemel.ir.state import State


class Trace:
    """What a function being traced has asked for so far.

    `of_program`: a user's function is traced, and nodes get the line of it that made them. In other
    traces, in which gemel itself makes nodes, they get `line` and `part`. With `closed`, operations
    on arrays from outside become nodes, too; without it they are run at once.
    """

    #: Loops with fewer rounds are unrolled: their kernels can then be fused across rounds, without
    #: copies. None: all are unrolled.
    least_rounds: int | None = 4
    #: Whether only the results' shapes are needed, so that parameters need shapes but no arrays.
    shapes_only = False
    #: For exporters: the calls for which files have an operator (`symbol.noting.Notes`).
    notes: Any = None

    def __init__(
        self,
        of_program: bool = False,
        closed: ClosedOver | None = None,
        state: type[State] = State,
    ) -> None:
        self.of_program = of_program
        self.line = self.part = ""
        outer: Trace | None = current_trace()
        #: The mixed precision of what is being traced, see `ir.precision`.
        self.precision: Any = None if outer is None else outer.precision
        self.recording: Recording = Recording(None if outer is None else outer.recording)
        self.state = state(self.recording)
        self.inputs = Inputs(closed, self.state)
        self.extents = Extents()
        self.scopes = Scopes()

    def leaves_open(self, extents: tuple[Any, ...]) -> bool:
        """Whether the bounds of a slice, computed from these, stay expressions of free extents.

        Otherwise they are numbers or sums, which guards hold for.
        """
        return False

    def origin(self) -> str:
        """The line of the program that a new node comes from."""
        return _core.program_line() if self.of_program else self.line

    def __enter__(self) -> Trace:
        enter(self)
        return self

    def __exit__(self, *error: object) -> None:
        leave()


def own(value: Any) -> Any:
    """The value itself; a free extent of a trace that has ended becomes a plain number."""
    if not isinstance(value, Dim):
        return value
    trace = current_trace()
    if trace is None:
        return value.value if is_left_over(value) else value
    same = value.guards is trace.extents.guards
    return value if same or not trace.of_program else value.value


def kept_whole(name: str) -> Any:
    """For exporters: a handler that keeps a loop or branch of `npx` as one node; or None."""
    trace = current_trace()
    return None if trace is None or trace.notes is None else trace.notes.whole(name)


class StateArray:
    """Mutable state of programs other than parameters: optimizer states, random generators.

    It has the two methods by which programs read parameters.
    """

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def array(self, device: Any = None) -> Any:
        """The array, which stays on the device where it was made."""
        return self.value

    data = array


def parameters_replaced() -> None:
    """Make every compiled function look its parameters' arrays up again."""
    _core.forget_call_sites()


__all__ = ["StateArray", "Trace", "kept_whole", "own", "parameters_replaced"]
