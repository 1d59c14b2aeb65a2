"""Mixed precision: which operations of a program are computed in two-byte dtypes.

An operation's declaration says what it is suited to (`Op.precision`). A `Precision` is in force on
a thread, within `scope`, or by default in the whole process. Nodes that are traced meanwhile carry
it, and `passes.precision` applies it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ContextDecorator, nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gemel import _core
from gemel.dtype import DType
from gemel.errors import named_as, unknown_name
from gemel.ir.current import current_trace

if TYPE_CHECKING:
    from gemel.ir.graph import Node

Called = TypeVar("Called", bound=Callable[..., Any])

#: What an operation may be suited to. LOW: products that are computed in the low dtype. WIDE:
#: computed in float32, and the results are not rounded. WIDEST: computes little; its results may be
#: rounded where a product reads them.
LOW, WIDE, WIDEST = "low", "wide", "widest"


def declared(way: str) -> str:
    """The declared precision of an operation; empty: that of all operations of its kind.

    Raises `UnknownNameError`.
    """
    if way not in ("", LOW, WIDE, WIDEST):
        raise unknown_name("precision of an operation", way, (LOW, WIDE, WIDEST))
    return way


class Precision(NamedTuple):
    """Products are computed in `dtype`, and so are operations named in `low`, but none in `wide`.
    The dtype of a block may be float32: it is computed as written, whatever is in force outside.

    `conditional` are operations that are wide if a parameter has one of some values; `excluded` are
    names of steps or blocks that are computed as written.
    """

    dtype: DType
    low: frozenset[str] = frozenset()
    wide: frozenset[str] = frozenset()
    conditional: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    excluded: tuple[str, ...] = ()

    def of(self, node: Node) -> str:
        """How a node is computed: `LOW`, `WIDE` or `WIDEST`."""
        op = node.op
        assert op is not None
        if self.leaves(node) or op.name in self.wide:
            return WIDE
        for name, parameter, values in self.conditional:
            if name == op.name and str(node.params.get(parameter)) in values:
                return WIDE
        return LOW if op.name in self.low else op.precision

    def leaves(self, node: Node) -> bool:
        """Whether a node belongs to an excluded step or block."""
        return bool(node.name) and self.excludes(node.name)

    def excludes(self, name: str) -> bool:
        """Whether a step, a block or a node of a symbol with this name is computed as written.

        In MXNet's symbols, the operation of a block has the block's name with ``_fwd`` appended.
        """
        return any(
            each in (name, f"{name}_fwd") or name.startswith(f"{each}_") for each in self.excluded
        )

    def asks(self, node: Node) -> bool:
        """Whether this precision names the node's operation, which overrides its declaration."""
        assert node.op is not None
        named = node.op.name in self.low or node.op.name in self.wide
        return named or self.leaves(node) or any(e[0] == node.op.name for e in self.conditional)


class _Scopes(threading.local):
    """What is in force on this thread, outermost first, and what to restore at the end of a
    scope."""

    def __init__(self) -> None:
        self.stack: list[Precision | None] = []
        self.before: list[tuple[int, object, Precision | None]] = []


_scopes = _Scopes()
_lock = threading.Lock()
_default: Precision | None = None
#: The numbers of precisions in the core; 0 is none.
_numbers: dict[Precision | None, int] = {None: 0}


def _number(precision: Precision | None) -> int:
    with _lock:
        return _numbers.setdefault(precision, len(_numbers))


def current() -> Precision | None:
    """The precision in force on this thread; None: everything is computed as written."""
    return _scopes.stack[-1] if _scopes.stack else _default


def set_default(precision: Precision | None) -> None:
    """Set the precision that is in force outside of scopes, on all threads."""
    global _default
    _default = precision
    _core.set_default_mixing(_number(precision))


class scope(ContextDecorator):  # noqa: N801 -- used as a function
    """A block of code, or a decorated function, in which `precision` is in force on this thread;
    None switches it off. Several threads may be in one scope."""

    def __init__(self, precision: Precision | None) -> None:
        self.precision = precision

    def __enter__(self) -> scope:
        number = _core.set_mixing(_number(self.precision))
        _scopes.stack.append(self.precision)
        trace = current_trace()
        before = trace.precision if trace is not None else None
        _scopes.before.append((number, trace, before))
        if trace is not None:
            trace.precision = self.precision
        return self

    def __exit__(self, *error: object) -> None:
        number, trace, before = _scopes.before.pop()
        if trace is not None:
            trace.precision = before  # type: ignore[attr-defined]
        _scopes.stack.pop()
        _core.set_mixing(number)


def part(name: str) -> AbstractContextManager[object]:
    """A block of code that traces a part called `name`, which is computed as written if
    excluded."""
    trace = current_trace()
    if trace is None or trace.precision is None or not trace.precision.excludes(name):
        return nullcontext()
    return scope(None)


def as_written(function: Called) -> Called:
    """A function whose operations are computed as written: its products are not sums that a network
    learns, but positions, colours, means or statistics, for which two bytes are not precise
    enough."""

    @wraps(function)
    def call(*inputs: Any, **named: Any) -> Any:
        trace = current_trace()
        if trace is None or trace.precision is None:
            return function(*inputs, **named)
        with scope(None):
            return function(*inputs, **named)

    return named_as(function, call)


__all__ = [
    "LOW",
    "WIDE",
    "WIDEST",
    "Precision",
    "as_written",
    "current",
    "declared",
    "part",
    "scope",
    "set_default",
]
