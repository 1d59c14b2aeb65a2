"""Calls of `autograd.Function` in a traced function: operations, and the gradient that it defines.

Both `forward` and `backward` run when the function is called in the trace. What `backward` computes
becomes the gradient of the results; what it reads is saved as for any other operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gemel import _core
from gemel.errors import PythonGivenError, SymbolGivenError, TraceError
from gemel.ir.above import above
from gemel.ir.current import recording_trace
from gemel.ir.graph import Entry, next_serial, placeholder
from gemel.ir.trace import Trace
from gemel.ops.control import with_own_gradient
from gemel.ops.elementwise import full
from gemel.spec import Spec

#: Checks what `backward` returned: a gradient or None for each of these specs.
Check = Callable[[Any, Sequence[Spec | None]], list[Any]]


def in_trace(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    inputs: Sequence[Any],
    returned: Callable[[Any], tuple[Any, ...]],
    checked: Check,
) -> Any:
    """What `forward` returns, with the gradient that `backward` computes if calls are recorded.

    `returned` and `checked` check what the two return. Raises `PythonGivenError` if one of them
    does what cannot be traced.
    """
    trace = recording_trace()
    assert trace is not None
    is_on = trace.recording.is_on
    given = [_symbol(value) if isinstance(value, _core.Array) else value for value in inputs]
    # What forward writes to its arguments has no part in their gradients.
    variables = [above.as_entry(e) if _is_variable(e) else None for e in given]
    trace.recording.switch(False)
    try:
        with _explained(forward):
            found = forward(*given)
    finally:
        trace.recording.switch(is_on)
    results = tuple(map(above.as_entry, returned(found)))
    is_nd = next((each._is_nd for each in given if isinstance(each, Entry)), False)
    if is_on:
        results = _with_backward(trace, backward, results, variables, is_nd, checked)
    results = tuple(map(_as_nd, results)) if is_nd else results
    return results if isinstance(found, (tuple, list)) else results[0]


def _as_nd(entry: Any) -> Any:
    return entry.as_nd_ndarray()


def _symbol(value: Any) -> Any:
    """The entry that stands for an array, with the same interface."""
    entry = above.as_entry(value)
    return entry.as_nd_ndarray() if value._is_nd else entry


def _is_variable(value: Any) -> bool:
    return isinstance(value, Entry) and value.dtype.is_inexact and not value.spec.weak


def _with_backward(
    trace: Trace,
    backward: Callable[..., Any],
    results: Sequence[Entry],
    variables: Sequence[Entry | None],
    is_nd: bool,
    checked: Check,
) -> tuple[Entry, ...]:
    """The results, whose gradients reach the variables as `backward` says."""
    before, began, part = trace.state.save(), next_serial(), trace.part
    heads = [placeholder(e.spec) if e.dtype.is_inexact else _zeros(e) for e in results]
    trace.part = part or backward.__qualname__
    try:
        with _explained(backward):
            found = backward(*(map(_as_nd, heads) if is_nd else heads))
            if not trace.state.writes_inside(before, began):
                raise TraceError(
                    "it must not update a parameter, nor write to an array from outside"
                )
        gradients = checked(found, [None if e is None else e.spec for e in variables])
    finally:
        trace.part = part
    floating = [head for head in heads if head.dtype.is_inexact]
    arrived = [
        None if g is None else above.as_entry(g)
        for e, g in zip(variables, gradients, strict=True)
        if e is not None
    ]
    return with_own_gradient(results, floating, [e for e in variables if e is not None], arrived)


def _zeros(entry: Entry) -> Any:
    return full(0, shape=entry.shape, dtype=entry.dtype)


@contextmanager
def _explained(method: Callable[..., Any]) -> Iterator[None]:
    """A block of code that runs a method of the user's. Its `TraceError`s say so."""
    try:
        yield
    except SymbolGivenError:
        raise
    except (TraceError, ValueError) as error:
        # NumPy raises a `ValueError` in place of what asking for an element raised.
        reason = error if isinstance(error, TraceError) else error.__cause__
        if not isinstance(reason, TraceError):
            raise
        name = method.__qualname__
        raise PythonGivenError(
            f"{name} is traced once as a part of the hybridized function, so that it may only use "
            f"gemel's operations: {reason}"
        ) from error


__all__ = ["in_trace"]
