"""Traces a network or function for a file, which cannot store conditions on sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from gemel.extent import Guard, seen
from gemel.forms import Atom, Form, added, names_of
from gemel.ir.graph import Entry, placeholder
from gemel.legacy.declare import Written
from gemel.onnx.write.rules import CALLS
from gemel.ops import keys
from gemel.runtime.prepare import as_entry
from gemel.spec import Spec
from gemel.symbol.noting import ANEW, Note, Notes, Noting, in_operation
from gemel.symbol.own import named_extents
from gemel.symbol.traced import Traced
from gemel.tracing.programs import Arguments

#: Code that checks whether sizes fit; the program that runs the file makes these checks again.
CHECKS = (*ANEW, keys._axis_item.__code__)


class CallNotes(Notes):
    """Notes on calls that ONNX has an operator for, and on conditions on free extents."""

    def __init__(self, trace: Noting, own: bool) -> None:
        rules = {name: partial(_noted, name) for name in CALLS if name != "rnn"}
        super().__init__(trace, own, rules)

    def argument(self, name: str, value: float) -> Any:
        """An argument that is a number becomes a constant."""
        return value

    def asks_anew(self, guard: Guard) -> bool:
        """Whether a guard comes from a check in an operation, or from a call that is written
        whole."""
        if in_operation(CHECKS):
            self.fits.append(guard)
            return True
        return self._open is not None

    def whole(self, name: str) -> Any:
        """Keep recurrent layers whole: ONNX has operators for them, for any length."""
        return self._recurrent if name == "rnn" and self._open is None else None

    def _recurrent(
        self, data: Any, weights: Any, states: Any, lengths: Any, how: Any, with_states: bool
    ) -> Any:
        time, batch, _ = data.shape
        first, *_ = states
        shapes = [(time, batch, how.directions * how.width), *(each.shape for each in states)]
        found = [placeholder(Spec(shape, first.dtype)) for shape in shapes]
        given = {
            "data": as_entry(data),
            "weights": [type(w)(*map(_entry, w)) for w in weights],
            "states": [as_entry(each) for each in states],
            "lengths": _entry(lengths),
        }
        written = Written("rnn", (), {**given, "how": how}, len(found))
        note = Note(written, self.note_name("rnn"))
        self.made.update({entry: (note, index) for index, entry in enumerate(found)})
        return found if with_states else found[0]


def _entry(x: Any) -> Any:
    return None if x is None else as_entry(x)


def _noted(name: str, **given: Any) -> Written | None:
    return Written(name, (), given)


class Program(Traced):
    """A function traced for ONNX.

    `equal` maps free extents to others that the function's conditions make equal; `held` are those
    that have to be fixed. `asked` describes, as text, the other conditions, which no file can
    store.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Arguments,
        names: Sequence[str],
        held: set[str],
    ) -> None:
        trace = Noting(own=True, notes=CallNotes)
        super().__init__(trace, function, arguments, names, held)
        notes = trace.notes
        assert isinstance(notes, CallNotes)
        self.equal: dict[str, str] = {}
        self.asked: list[str] = []
        self.held: set[str] = set()
        self._read = 0
        for guard in notes.fits:
            if guard.relation == "==" and guard.answer:
                self._holds(guard, again=True)
        self.read_guards()

    def read_guards(self) -> None:
        """Take in the guards since the last time. Writing adds some, where ONNX needs a number that
        the file cannot compute."""
        unread = self.guards[self._read :]
        self._read = len(self.guards)
        for guard in unread:
            if guard.relation == "==" and guard.answer:
                self._holds(guard)
            elif self._settled(guard):
                self.ask([guard])

    def ask(self, guards: Iterable[Guard]) -> None:
        """Describe conditions that no file can store."""
        self.asked += [named_extents(repr(guard), self.inputs) for guard in guards]

    def _holds(self, guard: Guard, again: bool = False) -> None:
        """Fix the extents of an equality, unless it makes two of them equal.

        One that is checked `again` when the file runs fixes none, either, if sizes are on both
        sides: for all sizes that fit, the program is the same.
        """
        settled = self._settled(guard)
        if settled is None:
            return
        rest = _rest(settled)
        equal = _equal_names(rest)
        if equal:
            one, two = sorted(map(self.first, equal))
            if one != two:
                self.equal[two] = one
            return
        if not again or not all(_atoms(rest) & _atoms(side) for side in settled.forms()):
            self.held |= names_of(rest)

    def _settled(self, guard: Guard) -> Guard | None:
        """A condition in which extents known to be equal are one; None if it holds for all values
        then."""
        if not self.equal:
            return guard
        dims = self.trace.extents.dims
        return guard.of({name: dims[self.first(name)] for name in dims})

    def first(self, name: str) -> str:
        """The extent that represents all those equal to this one."""
        while name in self.equal:
            name = self.equal[name]
        return name


def _atoms(form: Form) -> set[Atom]:
    return {atom for product, _ in form for atom in product}


def _rest(guard: Guard) -> Form:
    """The difference of both sides of an equality, without factors that all its terms have."""
    terms = added(*guard.forms(), -1)
    common = set.intersection(*(set(product) for product, _ in terms)) if terms else set()
    return tuple((tuple(a for a in product if a not in common), count) for product, count in terms)


def _equal_names(rest: Form) -> list[str]:
    """The names of the two extents that are equal if this difference is 0, or none."""
    counts = [count for _, count in rest]
    if len(counts) != 2 or counts[0] != -counts[1]:
        return []
    names = [str(a) for product, _ in rest if len(product) == 1 for a in product if not a.operator]
    return names if len(names) == 2 else []


def program(
    function: Callable[..., Any],
    arguments: Arguments,
    names: Sequence[str] = (),
    held: set[str] | None = None,
) -> Program:
    """Trace a function as a program whose sizes are free, as far as a file can leave them free.

    An extent of 1 cannot be free. So axes of one element, such as a batch of one example, are
    traced as longer ones, if the function does the same for both.
    """
    held = held or set()
    found, free = _held(function, arguments, names, held), frozenset[Place]()
    for places in _alone(arguments.arrays, held):
        if places <= free:
            continue
        longer = _lengthened(function, arguments, names, held, free | places)
        if longer is not None:
            found, free = longer, free | places
    return found


#: An axis of an argument: the argument's position and the axis.
Place = tuple[int, int]


def _alone(arrays: Sequence[Any], held: set[str]) -> list[frozenset[Place]]:
    """The axes of one element that may be free: those of all arguments together, since they often
    mean the same (a batch), then each alone."""
    places = [
        (axis, position)
        for position, x in enumerate(arrays)
        for axis, n in enumerate(x.shape)
        if n == 1 and f"n{position}_{axis}" not in held
    ]
    found = []
    for axis in sorted({axis for axis, _ in places}):
        same = [(position, axis) for other, position in places if other == axis]
        found.append(frozenset(same))
        found += [frozenset([each]) for each in same if len(same) > 1]
    return found


def _lengthened(
    function: Callable[..., Any],
    arguments: Arguments,
    names: Sequence[str],
    held: set[str],
    places: frozenset[Place],
) -> Program | None:
    """The program for longer axes at these places; None if that is not the one for single
    elements."""
    arrays = arguments.arrays
    length = unlike(arrays)
    longer = [
        Spec([length if (i, axis) in places else n for axis, n in enumerate(x.shape)], x.dtype)
        for i, x in enumerate(arrays)
    ]
    try:
        found = _held(function, arguments._replace(arrays=longer), names, held)
    except Exception:  # the function's own, too: it was not called with such arrays
        return None
    free = {f"n{position}_{axis}" for position, axis in places}
    return found if free <= set(found.trace.extents.dims) and _holds_for_one(found, free) else None


def unlike(arrays: Sequence[Any]) -> int:
    """A size for trying that no axis has: a function would take equal ones for the same."""
    sizes = {n for x in arrays for n in x.shape}
    return next(n for n in range(2, len(sizes) + 3) if n not in sizes)


def _holds_for_one(found: Program, names: set[str]) -> bool:
    """Whether the function's conditions have the same answers if these extents are 1."""
    sizes = {name: 1 if name in names else seen(n) for name, n in found.trace.extents.dims.items()}
    return all(guard.holds(sizes) for guard in found.guards)


def _held(
    function: Callable[..., Any], arguments: Arguments, names: Sequence[str], held: set[str]
) -> Program:
    """Trace again until all extents that have to be fixed are fixed."""
    while True:
        found = Program(function, arguments, names, held)
        if found.held <= held:
            return found
        held = held | found.held


def entries_of(value: Any) -> list[Entry]:
    """The entries among arguments, which may be nested in lists."""
    if isinstance(value, Entry):
        return [value]
    if isinstance(value, (list, tuple)):
        return [entry for each in value for entry in entries_of(each)]
    if isinstance(value, dict):
        return entries_of(list(value.values()))
    return []


__all__ = ["CallNotes", "Program", "entries_of", "program", "unlike"]
