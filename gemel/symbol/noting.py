"""A trace that notes which calls of `np` and `npx` made what, so that they can be written down.

Most layers call functions that compute by several operations. What such a call is in MXNet, its
declaration in `gemel.legacy` says; while a program is exported the interpreter tells of the calls
(`sys.setprofile`, on this thread only), so that they cost nothing otherwise.
"""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Callable, Mapping
from functools import partial
from inspect import unwrap
from types import CodeType, FrameType
from typing import Any, NamedTuple

from gemel import np, npx
from gemel.extent import Guard, Guards
from gemel.ir.extents import Extents
from gemel.ir.graph import Entry
from gemel.ir.op import Op
from gemel.ir.trace import Trace
from gemel.legacy.declare import WRITERS, Written, load
from gemel.ops import keys

#: How calls of functions are written, by the functions' names.
Rules = Mapping[str, Callable[..., Written | None]]


class Note(NamedTuple):
    """A call as MXNet's, and what the node is called."""

    written: Written
    name: str


class Questions(Guards):
    """What is asked of free extents, less what is asked anew wherever the file runs."""

    def __init__(self, notes: Notes) -> None:
        super().__init__()
        self._notes = notes

    def append(self, guard: Guard) -> None:
        """Keep a guard, if the file depends on its answer."""
        if not self._notes.asks_anew(guard):
            super().append(guard)


class Noting(Trace):
    """A trace with notes of the calls that files have a word for.

    `own`: for gemel's files rather than MXNet's. `notes` is the class of its notes. `least`: what
    no free extent is below. A file is run for one example, too, so that whether there are more is a
    question that has to be kept; of what a program computes with sizes less can be written down for
    MXNet then than from 2 on.
    """

    writes_out = True
    notes: Notes

    def __init__(self, own: bool, least: int = 1, notes: type[Notes] | None = None) -> None:
        super().__init__(of_program=True)
        self.notes = (notes or Notes)(self, own)
        self.extents = Extents(least, Questions(self.notes))


class Notes:
    """What a trace has noted for a file: while `watching`, calls that the file has a word for.

    `rules` says how calls of functions are written, by the functions' names; by default as MXNet's
    operations.

    A call of `npx.fully_connected`, say, makes several nodes; the note on what it gave says that
    the entry is one ``FullyConnected``, called ``dense0_fwd``.
    """

    def __init__(self, trace: Noting, own: bool, rules: Rules | None = None) -> None:
        self._trace = trace
        self.own = own
        #: Whether the function has returned, and what it did is being written down.
        self.writes = False
        #: By what it gave: the call, and which of its results this is.
        self.made: dict[Entry, tuple[Note, int]] = {}
        #: The arguments and their axes that free extents are called after.
        self.sources: dict[str, tuple[Entry, int]] = {}
        self._codes = _watched(rules)
        self._open: tuple[FrameType, Note] | None = None

    def note_name(self, hint: str) -> str:
        """What the node of a call is called: ``dense0_fwd`` for what a layer consists in."""
        scopes = self._trace.scopes
        block = scopes.open[-1] if scopes.open else None
        if block is not None and type(block).__module__.startswith("gemel."):
            name = f"{block.prefix}fwd"
            number = scopes.number(name)
            return name if not number else f"{name}{number}"
        return scopes.named(hint)

    def note(self, entry: Entry, written: Written) -> None:
        """Say what an entry is as a call of MXNet's."""
        self.made[entry] = Note(written, self.note_name(written.name.lower())), 0

    def argument(self, name: str, value: float) -> Any:
        """A number the function is called with: a constant in MXNet's files."""
        return self._trace.inputs.number(name, value) if self.own else value

    def whole(self, name: str) -> Any:
        """A handler that keeps a loop or branch of `npx` as one node; or None.

        Loops and choices are kept: MXNet has operations for them, which hold programs.
        """
        if self._open is not None or self.own:
            return None
        from gemel.symbol import loops

        return partial(getattr(loops, name), self._trace)

    def asks_anew(self, guard: Guard) -> bool:
        """Whether a guard is a question of operations, which they ask again where they are run.

        gemel's are asked beforehand whether sizes fit, except for what is broadcast, and by calls
        that are written down as they are: layers of recurrent networks run any number of steps.
        """
        of_broadcast = guard.relation == "==" and not guard.answer and guard.right == 1
        if self.own and not of_broadcast:
            return self._open is not None
        return (self.writes and of_broadcast) or self._open is not None or in_operation()

    def watching(self) -> _Watch:
        """A block of code whose calls are noted."""
        return _Watch(self._event)

    def _event(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "call" and self._open is None:
            rule = self._codes.get(frame.f_code)
            if rule is not None:
                self._opened(frame, rule)
        elif event == "return" and self._open is not None and self._open[0] is frame:
            note, self._open = self._open[1], None
            found = value if isinstance(value, (tuple, list)) else (value,)
            for index, entry in enumerate(found):
                if isinstance(entry, Entry):
                    # What `out=` names holds the result; what it held before is something else.
                    self.made.setdefault(self._trace.state.current(entry), (note, index))

    def _opened(self, frame: FrameType, rule: Callable[..., Written | None]) -> None:
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4)
        given = {name: frame.f_locals[name] for name in code.co_varnames[:count]}
        if not any(isinstance(each, Entry) for each in _leaves(given.values())):
            return
        written = rule(**{name: self._now(each) for name, each in given.items()})
        if written is not None:
            hint = code.co_name if code.co_name != "_" else written.name.lower()
            self._open = frame, Note(written, self.note_name(hint.lower()))

    def _now(self, value: Any) -> Any:
        """An argument with what its arrays stand for when it is given: they may be overwritten."""
        if isinstance(value, Entry):
            return self._trace.state.current(value)
        if type(value) in (tuple, list):
            return type(value)(map(self._now, value))
        return value


#: What finds the results of an operation, and where a slice lies: both limit it where they run.
ANEW = Op.node.__code__, keys._slice.__code__


def in_operation(codes: tuple[CodeType, ...] = ANEW) -> bool:
    """Whether it is an operation, finding what its results are, that we were called by."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


def _leaves(values: Any) -> Any:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from value
        else:
            yield value


class _Watch:
    """Sets what the interpreter tells of calls, and puts back what was there."""

    def __init__(self, event: Callable[..., None]) -> None:
        self._event = event

    def __enter__(self) -> None:
        self._before: Any = sys.getprofile()
        sys.setprofile(self._event)

    def __exit__(self, *error: object) -> None:
        # Before Python 3.12 `cProfile` sits in the same place, in C: only it can put itself back.
        if isinstance(self._before, cProfile.Profile):
            sys.setprofile(None)
            self._before.enable()
        else:
            sys.setprofile(self._before)


def _watched(rules: Rules | None) -> dict[CodeType, Callable[..., Written | None]]:
    """The public functions whose calls are written down, by their code."""
    load()
    found = {}
    for name, rule in (WRITERS if rules is None else rules).items():
        for module in (np, npx):
            # What is called beside its arrays is a function around the one with the rule's names.
            public = getattr(module, name, None)
            code = getattr(unwrap(public), "__code__", None) if callable(public) else None
            if code is not None:
                found[code] = rule
    return found
