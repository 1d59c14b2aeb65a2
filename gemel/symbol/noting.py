"""A trace that notes which calls of `np` and `npx` produced which entries, for export.

Most layers call functions that consist of several operations. A declaration in `gemel.legacy` says
how such a call is written in MXNet. During an export the interpreter reports the calls
(`sys.setprofile`, on this thread only), so noting costs nothing at other times.
"""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from inspect import unwrap
from types import CodeType, FrameType
from typing import Any, NamedTuple

from gemel import _core, np, npx
from gemel.extent import Guard, Guards
from gemel.ir.closed import ClosedOver
from gemel.ir.extents import Extents
from gemel.ir.graph import Entry, Node, walk
from gemel.ir.op import Op
from gemel.ir.trace import Trace
from gemel.legacy.declare import WRITERS, Written, load
from gemel.ops import indexing, keys, keywords, subscripts
from gemel.symbol.outside import Outside
from gemel.symbol.sizes import depends_on_batch

#: The rules that write calls of functions, by the functions' names.
Rules = Mapping[str, Callable[..., Written | None]]


class Note(NamedTuple):
    """A call in MXNet's terms, and the name of its node."""

    written: Written
    name: str


class Questions(Guards):
    """The guards of free extents, without those that are evaluated again wherever the file runs."""

    def __init__(self, notes: Notes) -> None:
        super().__init__(tracing=True)
        self._notes = notes

    def append(self, guard: Guard) -> None:
        """Keep a guard if the file depends on its answer."""
        if not self._notes.asks_anew(guard):
            super().append(guard)


class Noting(Trace):
    """A trace with notes of the calls that files have operations for.

    `own`: for gemel's files rather than MXNet's. `notes` is the class of its notes. `least` is a
    lower bound of all free extents. A file must also run for one example, so with the default of 1,
    comparisons of an extent with 1 have to be kept. With 2, more computations with sizes can be
    expressed in MXNet's files.
    """

    notes: Notes

    def __init__(self, own: bool, least: int = 1, notes: type[Notes] | None = None) -> None:
        closed = ClosedOver(constant=True)
        super().__init__(of_program=True, closed=closed)
        self.outside = Outside(closed)
        # MXNet's files have no such loops; `Notes.whole` keeps its own.
        self.least_rounds = 1 if own else None
        self.notes = (notes or Notes)(self, own)
        self.extents = Extents(least, Questions(self.notes))

    def leaves_open(self, extents: tuple[Any, ...]) -> bool:
        """In MXNet's files the batch size: three rows, or what there is, are `minimum(3, n)`."""
        return not self.notes.own and any(map(depends_on_batch, extents))


class Notes:
    """What a trace notes for a file: the calls, while `watching`, that files have operations for.

    `rules` say how calls are written, by the functions' names; by default as MXNet's operations.

    A call of `npx.fully_connected`, for example, creates several nodes. The note for its result
    says that the entry is one ``FullyConnected`` named ``dense0_fwd``.
    """

    def __init__(self, trace: Noting, own: bool, rules: Rules | None = None) -> None:
        self._trace = trace
        self.own = own
        #: Whether the function has returned and the file is being written.
        self.writes = False
        #: For each result: its call, and its position among the results.
        self.made: dict[Entry, tuple[Note, int]] = {}
        #: The free extents that the file holds as the numbers seen.
        self.held: set[str] = set()
        #: Checks of operations that sizes fit; the program that runs the file makes them again.
        self.fits: list[Guard] = []
        #: The argument and the axis that each free extent is named after.
        self.sources: dict[str, tuple[Entry, int]] = {}
        #: The indices that the function gave, by the identity of the parameters of their nodes.
        self._indices: dict[int, tuple[Any, Any]] = {}
        self._codes = _watched(rules)
        self._open: tuple[FrameType, Note] | None = None
        self._least_rounds = trace.least_rounds

    def note_name(self, hint: str) -> str:
        """The name of a call's node: ``dense0_fwd`` for the operation of a layer."""
        scopes = self._trace.scopes
        block = scopes.open[-1] if scopes.open else None
        if block is not None and type(block).__module__.startswith("gemel."):
            name = f"{block.prefix}fwd"
            number = scopes.number(name)
            return name if not number else f"{name}{number}"
        return scopes.named(hint)

    def note(self, entry: Entry, written: Written) -> None:
        """Note how an entry is written as a call of an MXNet operation."""
        self.made[entry] = Note(written, self.note_name(written.name.lower())), 0

    def results(self) -> dict[int, list[tuple[Entry, int]]]:
        """The results of each call, with their positions, by the identity of its settings."""
        found: dict[int, list[tuple[Entry, int]]] = {}
        for entry, (note, index) in self.made.items():
            found.setdefault(id(note.written.settings), []).append((entry, index))
        return found

    def taken_out(self, entries: Iterable[Entry], stands: Iterable[Entry]) -> None:
        """Entries are computed before the loop in whose round they were made: forget the calls that
        read the round's stand-ins, as `np.ones_like(state)` does, though its result does not."""
        inside = {stand.node for stand in stands}
        for entry in entries:
            note = self.made.get(entry)
            read = () if note is None else _leaves(note[0].written.inputs)
            given = [each for each in read if isinstance(each, Entry)]
            if not inside.isdisjoint(walk(given)):
                del self.made[entry]

    def argument(self, name: str, value: float) -> Any:
        """A number among the function's arguments: a constant in MXNet's files."""
        return self._trace.inputs.number(name, value) if self.own else value

    def whole(self, name: str) -> Any:
        """A handler that keeps a loop or conditional of `npx` as one node, or None.

        MXNet has operations for loops and conditionals, which contain programs.
        """
        if self._open is not None or self.own:
            return None
        from gemel.symbol import loops  # it imports this module

        return partial(getattr(loops, name), self._trace)

    def asks_anew(self, guard: Guard) -> bool:
        """Whether a guard comes from an operation that evaluates it again when the file runs.

        For gemel's own files guards are kept, except those of broadcasting, and those inside of
        calls that are written as they are: recurrent layers, for example, run any number of steps.
        """
        of_broadcast = guard.relation == "==" and not guard.answer and guard.right == 1
        if self.own and not of_broadcast:
            return self._open is not None
        if in_operation():
            self.fits.append(guard)
            return True
        return (self.writes and of_broadcast) or self._open is not None

    def watching(self) -> _Watch:
        """A context manager: calls in its block are noted."""
        return _Watch(self._event)

    def index_of(self, node: Node) -> Any:
        """The index that the function gave, if a node is what it selects; else None.

        The parameters of the node are the index in a form that is right for the sizes seen.
        """
        return self._indices.get(id(node.params), (None, None))[1]

    def _event(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "return" and frame.f_code is INDEX and isinstance(value, Entry):
            node = value.node  # that of a key with arrays is a `gather`
            if node.op is indexing.basic_index:
                self._indices[id(node.params)] = node.params, frame.f_locals["key"]
        if event == "call" and self._open is None:
            rule = self._codes.get(frame.f_code)
            if rule is not None:
                self._opened(frame, rule)
        elif event == "return" and self._open is not None and self._open[0] is frame:
            note, self._open = self._open[1], None
            self._trace.least_rounds = self._least_rounds
            found = value if isinstance(value, (tuple, list)) else (value,)
            for index, entry in enumerate(found):
                if isinstance(entry, Entry):
                    # With `out=`, the current entry of the output holds the result.
                    self.made.setdefault(self._trace.state.current(entry), (note, index))

    def _opened(self, frame: FrameType, rule: Callable[..., Written | None]) -> None:
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4)
        given = {name: frame.f_locals[name] for name in code.co_varnames[:count]}
        now = {name: self._now(each) for name, each in given.items()}
        if not any(map(self._is_computed, _leaves(now.values()))):
            return
        written = rule(**now)
        if written is not None:
            hint = code.co_name if code.co_name != "_" else written.name.lower()
            self._open = frame, Note(written, self.note_name(hint.lower()))
            self._trace.least_rounds = 1  # the rounds are not written, and their number stays free

    def _is_computed(self, value: Any) -> bool:
        """Whether an argument is an array that the file has to compute."""
        return isinstance(value, Entry) and not self._trace.outside.decides(value.node)

    def _now(self, value: Any) -> Any:
        """An argument with the current entries of its arrays, which may be overwritten later."""
        if isinstance(value, Entry):
            return self._trace.state.current(value)
        if isinstance(value, _core.Array):
            return self._trace.inputs.captured(value)
        if type(value) in (tuple, list):
            return type(value)(map(self._now, value))
        return value


#: The code that indexes an array.
INDEX = subscripts.getitem.__code__
#: The code that infers an operation's results or a slice's bounds, and runs again with the file.
ANEW = Op.node.__code__, keys._slice.__code__, keywords._computed_in.__code__


def in_operation(codes: tuple[CodeType, ...] = ANEW) -> bool:
    """Whether the caller is an operation that is inferring its results."""
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
    """Sets the interpreter's profile function, and restores the one before."""

    def __init__(self, event: Callable[..., None]) -> None:
        self._event = event

    def __enter__(self) -> None:
        self._before: Any = sys.getprofile()
        sys.setprofile(self._event)

    def __exit__(self, *error: object) -> None:
        # Before Python 3.12 `cProfile` uses the same hook, in C, and only it can restore itself.
        if isinstance(self._before, cProfile.Profile):
            sys.setprofile(None)
            self._before.enable()
        else:
            sys.setprofile(self._before)


def _watched(rules: Rules | None) -> dict[CodeType, Callable[..., Written | None]]:
    """The rules of the public functions whose calls are written, by the functions' code."""
    load()
    found = {}
    for name, rule in (WRITERS if rules is None else rules).items():
        for module in (np, npx):
            # `beside_arrays` wraps the function whose parameters the rule takes, so unwrap it.
            public = getattr(module, name, None)
            code = getattr(unwrap(public), "__code__", None) if callable(public) else None
            if code is not None:
                found[code] = rule
    return found
