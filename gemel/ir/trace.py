"""The trace in progress on this thread: who gives out random numbers, parameters and guards."""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType
from typing import Any

from gemel import _core
from gemel.dtype import weak
from gemel.errors import TraceError
from gemel.extent import Dim, Guard
from gemel.ir.graph import Entry, placeholder
from gemel.spec import Spec


class Scalar(Entry):
    """A number given at run time. Who asks for its value gets the one seen, and holds it."""

    __slots__ = ("seen", "trace")

    trace: Trace
    seen: float

    def _value(self, what: str) -> float:
        self.trace.held[self] = self.seen
        return self.seen


class Trace:
    """What a function being traced has asked for so far.

    `of_program`: it is the user's function, so nodes remember the line that made them; the nodes
    gemel makes itself come from `line`.
    """

    def __init__(self, of_program: bool = False) -> None:
        self.of_program = of_program
        self.line = ""
        self.guards: list[Guard] = []
        self.random_calls = 0
        self.parameters: dict[int, tuple[Any, Entry]] = {}
        self.updates: dict[int, tuple[Any, Entry]] = {}  # what a parameter is to hold
        self._holders: dict[Entry, Any] = {}  # the parameter an entry stands for
        self.dims: dict[str, int] = {}
        self.held: dict[Scalar, float] = {}

    def origin(self) -> str:
        """Where a node made now comes from."""
        return program_line() if self.of_program else self.line

    def next_call(self) -> int:
        """The number of the next random call, in trace order."""
        self.random_calls += 1
        return self.random_calls - 1

    def free(self, name: str, value: int) -> Dim:
        """A free extent called `name`, now `value`."""
        self.dims[name] = value
        return Dim(value, name, self.guards)

    def number(self, name: str, value: float) -> Scalar:
        """A number given at run time, now `value`."""
        node = placeholder(Spec((), weak(value), weak=True), name).node
        scalar = Scalar(node, 0)
        scalar.trace, scalar.seen = self, value
        node.entries = (scalar,)
        return scalar

    def parameter(self, parameter: Any) -> Entry:
        """The symbol that stands for a parameter; its array becomes an input of the program."""
        found = self.parameters.get(id(parameter))
        if found is None:
            array = parameter.array()
            entry = placeholder(Spec(array.shape, array.dtype), getattr(parameter, "name", ""))
            found = self.parameters[id(parameter)] = (parameter, entry)
            self._holders[entry] = parameter
        return self.updates.get(id(parameter), found)[1]

    def update(self, parameter: Any, value: Entry) -> None:
        """The parameter holds `value` once the program has run, and already for later reads."""
        self.parameter(parameter)
        self.updates[id(parameter)] = (parameter, value)
        self._holders[value] = parameter

    def overwrite(self, name: str, old: Entry, new: Entry) -> None:
        """What an operation with `updates=` asks for. `TraceError` for other than parameters."""
        if old in self._holders:
            self.update(self._holders[old], new)
            return
        raise TraceError(
            f"{name}: in a traced function only parameters can be overwritten, not {old!r}; "
            "make it a Parameter with grad_req='null'"
        )

    def __enter__(self) -> Trace:
        _stack().append(self)
        _core.set_tracing(len(_stack()))
        return self

    def __exit__(self, *error: object) -> None:
        _stack().pop()
        _core.set_tracing(len(_stack()))


def parameters_replaced() -> None:
    """Tell every compiled function that a parameter has got another array."""
    _core.forget_call_sites()


class suspended:  # noqa: N801 -- used as a function
    """A block of code that is no part of the traces in progress on this thread."""

    def __enter__(self) -> None:
        self._kept = _stack()[:]
        _stack().clear()
        _core.set_tracing(0)

    def __exit__(self, *error: object) -> None:
        _stack().extend(self._kept)
        _core.set_tracing(len(self._kept))


#: Where frames of this package lie.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def program_line() -> str:
    """Where the innermost frame outside this package is: "file:line"."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    if frame is None:
        return ""
    return f"{_core.shown_file(frame.f_code.co_filename)}:{frame.f_lineno}"


_local = threading.local()


def _stack() -> list[Trace]:
    if not hasattr(_local, "stack"):
        _local.stack = []
    stack: list[Trace] = _local.stack
    return stack


def current_trace() -> Trace | None:
    """The innermost trace in progress on this thread, or None."""
    stack = getattr(_local, "stack", None)
    return stack[-1] if stack else None
