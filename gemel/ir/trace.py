"""The trace in progress on this thread: who gives out random numbers, parameters and guards."""

from __future__ import annotations

import threading
from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gemel import _core
from gemel.dtype import weak
from gemel.errors import TraceError
from gemel.extent import Dim, Guards, is_left_over
from gemel.ir.closed import ClosedOver
from gemel.ir.graph import Entry, Node, captured, copy_node, next_place, placeholder
from gemel.ir.layout import dense
from gemel.ir.methods import REGISTRY
from gemel.spec import Spec


class Scalar(Entry):
    """A number given at run time. Who asks for its value gets the one seen, and holds it."""

    __slots__ = ("asked", "seen")

    asked: Trace
    seen: float
    told = True

    def _value(self, what: str) -> float:
        self.asked.held[self] = self.seen
        return self.seen

    def __str__(self) -> str:
        return str(self._value("str()"))

    def __format__(self, how: str) -> str:
        return format(self._value("format()"), how)


class Trace:
    """What a function being traced has asked for so far.

    `of_program`: it is the user's function, so nodes remember the line that made them; the nodes
    gemel makes itself come from `line` and are parts of the operation `part`. Without `closed`,
    what is done to arrays is done at once.
    """

    #: Whether all rounds of loops are written out.
    writes_out = False
    #: What no free extent is below.
    least = 2
    #: Whether calls of what is traced are recorded, whether what is done now is to be, and whether
    #: anything has depended on that.
    recorded = recording = asked_recording = False

    def __init__(self, of_program: bool = False, closed: ClosedOver | None = None) -> None:
        self.of_program = of_program
        outer = current_trace()
        if outer is not None:
            self.recorded, self.recording = outer.recorded, outer.recording
        #: Before which nodes recording was switched on or off.
        self._switches: list[int] = []
        #: The arrays it closes over, where what is done to those is part of it.
        self.closed = closed
        self.line = self.part = ""
        self.guards = Guards()
        self.random_calls = 0
        self.parameters: dict[int, tuple[Any, Entry]] = {}
        #: The arguments' arrays, by what stands for them.
        self.given: dict[Entry, Any] = {}
        #: The inputs a gradient was taken for, each with those it was taken of.
        self.wanted: dict[Entry, dict[Entry, None]] = {}
        self.updates: dict[int, tuple[Any, Entry]] = {}  # what a parameter is to hold
        #: What has been written in place, by the entry users hold, and the other way round.
        self.contents: dict[Entry, Entry] = {}
        self._holders: dict[Entry, Entry] = {}
        self.dims: dict[str, int] = {}  # the free extents
        self.held: dict[Scalar, float] = {}
        #: What is noted about the blocks that have been run, see `gluon.structure`.
        self.met: dict[int, Any] = {}
        #: The blocks that are being run, outermost first, and what in them has been named.
        self.scopes: list[Any] = []
        self.counts: dict[str, int] = {}

    def whole(self, name: str) -> Any:
        """What keeps a loop or choice of `npx` as one; None: it is written out."""
        return None

    def named(self, hint: str) -> str:
        """The name of a step made now: that of the block it is made in, and a number."""
        name = f"{self.scopes[-1].prefix if self.scopes else ''}{hint}"
        number = self.counts.get(name, 0)
        self.counts[name] = number + 1
        return f"{name}{number}"

    def ran(self, block: Any) -> None:
        """A block is run: the program holds for what it is now. A part of one tells that."""
        own = block._own
        outer = self.scopes[-1] if self.scopes else None
        if outer is None or all(parent() is not outer for parent in own.parents):
            self.met[id(own)] = own

    def origin(self) -> str:
        """Where a node made now comes from."""
        return _core.program_line() if self.of_program else self.line

    def next_call(self) -> int:
        """The number of the next random call, in trace order."""
        self.random_calls += 1
        return self.random_calls - 1

    def free(self, name: str, value: int) -> Dim:
        """A free extent called `name`, now `value`."""
        found = self.dims[name] = Dim(value, name, self.guards, self.least)
        return found

    def number(self, name: str, value: float) -> Scalar:
        """A number given at run time, now `value`."""
        node = placeholder(Spec((), weak(value), weak=True), name).node
        scalar = Scalar(node, 0)
        scalar.asked, scalar.seen = self, value
        node.entries = (scalar,)
        return scalar

    def parameter(self, parameter: Any) -> Entry:
        """The symbol that stands for a parameter; its array becomes an input of the program."""
        found = self.parameters.get(id(parameter))
        if found is None:
            array = parameter.array()
            entry = placeholder(Spec(array.shape, array.dtype), getattr(parameter, "name", ""))
            found = self.parameters[id(parameter)] = (parameter, entry)
        return self.updates.get(id(parameter), found)[1] if self.updates else found[1]

    def update(self, parameter: Any, value: Entry) -> None:
        """The parameter holds `value` once the program has run, and already for later reads."""
        self.parameter(parameter)
        self.updates[id(parameter)] = (parameter, value)
        self._hold(self.parameters[id(parameter)][1], value)

    def record(self, recording: bool) -> None:
        """Whether what is done from now on is recorded."""
        if recording != self.recording:
            self.recording = recording
            self._switches.append(next_place())

    def was_recorded(self, node: Node) -> bool:
        """Whether it was made while calls were recorded."""
        switched = len(self._switches) - bisect(self._switches, node.place)
        return self.recording ^ bool(switched % 2)

    @property
    def paused(self) -> bool:
        """Whether no gradient passes what is done now, though calls are recorded."""
        return self.recorded and not self.recording

    def unrecorded(self, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """The same values; gradients do not pass."""
        stop = REGISTRY["stop_gradient"]
        return tuple([stop.node((e,), {}).entries[0] if e.dtype.is_inexact else e for e in entries])

    def copied(self, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """The same values, as entries that nothing else shows."""
        copy = REGISTRY["copy"]
        return tuple([copy.node((e,), {}).entries[0] for e in entries])

    def _hold(self, holder: Entry, value: Entry) -> None:
        self.contents[holder] = value
        self._holders[value] = holder

    def _seen_through(self, entry: Entry) -> tuple[Entry, list[Entry]]:
        """The entry whose contents an entry shows, and the views in between, outermost last."""
        views: list[Entry] = []
        while entry not in self._holders and shows_another(entry.node):
            views.insert(0, entry)
            entry = entry.node.inputs[0]
        layout, start = dense(entry.shape), 0
        for position, view in enumerate(views):
            node = view.node
            assert node.op is not None
            found: Any = dense(view.shape)  # a part of each element
            if "view" in node.op.rules:
                found = node.op.rules["view"](layout, *node.specs, **node.params)
            layout = found[view.index] if isinstance(found, tuple) else found
            if layout is None:  # its elements had to move: they are its own
                entry, layout, start = view, dense(view.shape), position + 1
        return self._holders.get(entry, entry), views[start:]

    def current(self, entry: Entry) -> Entry:
        """What an entry stands for now: it may have been overwritten, or show what has been."""
        if not self.contents:
            return entry
        holder, views = self._seen_through(entry)
        found = self.contents.get(holder)
        if found is None or (views and views[0].node.inputs[0] is found):
            return entry
        for view in views:
            found = copy_node(view.node, (found,)).entries[view.index]
        return found

    @contextmanager
    def as_made(self) -> Iterator[None]:
        """A block of code in which entries are what they were when made, whatever has been written
        since then."""
        kept = self.contents, self._holders
        self.contents, self._holders = {}, {}
        try:
            yield
        finally:
            self.contents, self._holders = kept

    def write(self, target: Entry, value: Entry) -> None:
        """`target` holds `value` from now on, and whatever shows the same elements shows it."""
        (value,) = self.unrecorded((value,)) if self.paused else (value,)
        holder, views = self._seen_through(target)
        shown = [self.contents.get(holder, holder)]
        for view in views[:-1]:
            shown.append(copy_node(view.node, (shown[-1],)).entries[view.index])
        for view, whole in zip(reversed(views), reversed(shown), strict=False):
            assert view.node.op is not None
            put = view.node.op.rules.get("put")
            if put is None:
                raise TraceError(
                    f"{view.node.op.name}: {target.spec} repeats elements, it cannot be written to"
                )
            value = put(whole, value, view.index, **view.node.params)
        for parameter, entry in self.parameters.values():
            if entry is holder:
                self.update(parameter, value)
                return
        self._hold(holder, value)

    def written(self) -> tuple[Any, ...]:
        """What has been written so far, and how many random calls there were."""
        dictionaries = (dict(each) for each in (self.contents, self._holders, self.updates))
        return (*dictionaries, self.random_calls)

    def restore(self, before: tuple[Any, ...]) -> None:
        """Forget what has been written since `written` gave `before`."""
        self.contents, self._holders, self.updates = (dict(each) for each in before[:3])
        self.random_calls = before[3]

    def is_alone(self, before: tuple[Any, ...], began: int) -> bool:
        """Whether since then only to what is newer than node `began` has been written, and no
        random numbers were drawn."""
        contents, _, updates, calls = before
        written = (h for h, value in self.contents.items() if contents.get(h) is not value)
        pairs = [[id(entry) for _, entry in each.values()] for each in (self.updates, updates)]
        own = all(holder.node.place > began for holder in written)
        return own and pairs[0] == pairs[1] and self.random_calls == calls

    def __enter__(self) -> Trace:
        _local.stack.append(self)
        _told()
        return self

    def __exit__(self, *error: object) -> None:
        _local.stack.pop()
        _told()

    # --- arrays from outside ----------------------------------------------------------------

    def arrays(self) -> dict[Entry, Any]:
        """The arrays its inputs stand for, as far as it has met them."""
        device = next((array.device for array in self.given.values()), None)
        found = dict(self.given)
        with suspended():
            for parameter, entry in self.parameters.values():
                found[entry] = parameter.data() if device is None else parameter.array(device)
            for entry, closed in self.closed.inputs.items() if self.closed is not None else ():
                found[entry] = closed.on(device)
        return found

    def captured(self, array: Any, moves: bool = False) -> Entry:
        """What stands for an array here, see `ClosedOver.entry_of`."""
        if self.closed is None:
            return captured(array)
        return self.current(self.closed.entry_of(array, moves))

    def known(self, entry: Entry) -> Any:
        """The value of an entry that arrays from outside alone decide, or None."""
        if self.closed is None:
            return None
        with suspended():
            return self.closed.known(self.current(entry))

    def asked(self, array: Any, what: str) -> Any:
        """The array to be read where the function asks for the contents of `array`."""
        assert self.closed is not None
        entry = self.closed.entry_of(array)
        now = self.current(entry)
        if now is entry:
            with suspended():
                self.closed.ask(array)
            return array
        found = self.known(now)
        if found is None:
            raise now._unknown(what)
        return found


def own(value: Any) -> Any:
    """A free extent of the program being traced; one another trace has left behind is a number."""
    if not isinstance(value, Dim):
        return value
    trace = current_trace()
    if trace is None:
        return value.value if is_left_over(value) else value
    return value if value.guards is trace.guards or not trace.of_program else value.value


def shows_another(node: Node) -> bool:
    """Whether the results of a step show elements of its first input, or parts of them."""
    return node.op is not None and not node.op.rules.keys().isdisjoint(("view", "put"))


def kept_whole(name: str) -> Any:
    """What keeps the loop or choice called `name` as one, in the trace in progress; or None."""
    trace = current_trace()
    return None if trace is None else trace.whole(name)


class Held:
    """An array that programs read, and overwrite, as they do with parameters."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def array(self, device: Any = None) -> Any:
        """The array, which is where it was made whatever device asks."""
        return self.value

    data = array


def parameters_replaced() -> None:
    """Tell every compiled function that a parameter has got another array."""
    _core.forget_call_sites()


class suspended:  # noqa: N801 -- used as a function
    """A block of code that is no part of the traces in progress on this thread."""

    def __enter__(self) -> None:
        self._kept = _local.stack[:]
        _local.stack.clear()
        _told()

    def __exit__(self, *error: object) -> None:
        _local.stack.extend(self._kept)
        _told()


class _Local(threading.local):
    """The traces in progress on this thread, outermost first."""

    def __init__(self) -> None:
        self.stack: list[Trace] = []


_local = _Local()


def _told() -> None:
    """Tell the core of the traces in progress on this thread."""
    stack = _local.stack
    _core.set_tracing(len(stack), bool(stack) and stack[-1].closed is not None)


def recording_trace() -> Trace | None:
    """The innermost trace in progress, which depends on whether its calls are recorded; or None."""
    for trace in _local.stack:
        trace.asked_recording = True
    return current_trace()


def current_trace() -> Trace | None:
    """The innermost trace in progress on this thread, or None."""
    stack = _local.stack
    return stack[-1] if stack else None
