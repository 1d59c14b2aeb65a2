"""Which traces are in progress on this thread, outermost first.

A trace is in progress inside of its `with` block; blocks may be nested::

    with Trace() as outer:
        with Trace() as inner:
            current_trace()         # inner
        with suspended():
            current_trace()         # None: operations on arrays are run
        current_trace()             # outer
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from gemel import _core

if TYPE_CHECKING:
    from gemel.ir.trace import Trace


class _Local(threading.local):
    """The traces in progress on this thread, outermost first."""

    def __init__(self) -> None:
        self.stack: list[Trace] = []


_local = _Local()


def current_trace() -> Trace | None:
    """The innermost trace in progress on this thread, or None."""
    stack = _local.stack
    return stack[-1] if stack else None


def recording_trace() -> Trace | None:
    """The innermost trace, or None; notes in all traces that the program depends on recording."""
    for trace in _local.stack:
        trace.recording.asked = True
    return current_trace()


def enter(trace: Trace) -> None:
    """Make a trace the innermost."""
    _local.stack.append(trace)
    _tell_core()


def leave() -> None:
    """End the innermost trace."""
    _local.stack.pop()
    _tell_core()


class suspended:  # noqa: N801 -- used as a function
    """A `with` block that runs outside of the traces in progress on this thread."""

    def __enter__(self) -> None:
        self._kept = _local.stack[:]
        _local.stack.clear()
        _tell_core()

    def __exit__(self, *error: object) -> None:
        _local.stack.extend(self._kept)
        _tell_core()


def _tell_core() -> None:
    """Tell the core how many traces are in progress, and whether the innermost takes arrays."""
    stack = _local.stack
    _core.set_tracing(len(stack), bool(stack) and stack[-1].inputs.closed is not None)


__all__ = ["current_trace", "enter", "leave", "recording_trace", "suspended"]
