"""The trace in progress on this thread: what a function asks for while it runs on symbols.

Tracing runs a Python function once with entries in place of arrays; each operation adds a node.
What is more than operations goes through the innermost `Trace`:

- a parameter read becomes an input (`parameter`), one that is set becomes an update (`update`);
- a write in place (``x[0] = y``) changes nothing that exists: the trace notes which entry stands
  for the contents of x from now on (`write`), and later reads of x, or of a view of x, get that
  entry (`current`);
- sizes are free extents with guards (`free`), random calls are numbered (`next_call`).
"""

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
from gemel.ir.graph import Entry, Node, captured, copy_node, next_serial, placeholder
from gemel.ir.layout import dense
from gemel.ir.methods import REGISTRY
from gemel.spec import Spec


class Scalar(Entry):
    """A float argument: an input of the program, unless the function asks for its value.

    Then it gets the value of this call, for which the program is specialized.
    """

    __slots__ = ("owner", "seen")

    owner: Trace
    seen: float
    is_run_time_number = True

    def _value(self, what: str) -> float:
        self.owner.specialized[self] = self.seen
        return self.seen

    def __str__(self) -> str:
        return str(self._value("str()"))

    def __format__(self, how: str) -> str:
        return format(self._value("format()"), how)


class Trace:
    """What a function being traced has asked for so far.

    `of_program`: a user's function is traced, and nodes get the line of it that made them. In other
    traces, in which gemel makes nodes itself, they get `line` and `part`. With `closed` operations
    on arrays from outside become nodes, too; without it they are run at once.
    """

    #: Whether loops are unrolled.
    writes_out = False
    #: No free extent is less than this.
    least = 2
    #: Whether calls of the program will be recorded by `autograd`; whether recording is on at this
    #: point of it (`autograd.pause` switches it off); whether anything has asked for that.
    recorded = recording = asked_recording = False
    #: The mixed precision that what is traced now is to be computed in, see `ir.precision`.
    precision: Any = None

    def __init__(self, of_program: bool = False, closed: ClosedOver | None = None) -> None:
        self.of_program = of_program
        outer = current_trace()
        if outer is not None:
            self.recorded, self.recording = outer.recorded, outer.recording
            self.precision = outer.precision
        #: The serial numbers at which recording was switched on or off.
        self._switches: list[int] = []
        #: The arrays it closes over.
        self.closed = closed
        self.line = self.part = ""
        self.guards = Guards()
        self.random_calls = 0
        #: The parameters read so far and the inputs that stand for them, by id of the parameter.
        self.parameters: dict[int, tuple[Any, Entry]] = {}
        #: The new values of parameters that were set, by id of the parameter.
        self.updates: dict[int, tuple[Any, Entry]] = {}
        #: The arguments' arrays, by the inputs that stand for them.
        self.given: dict[Entry, Any] = {}
        #: Each input the function itself took a gradient for, with the inputs the head depends on.
        self.gradient_reads: dict[Entry, dict[Entry, None]] = {}
        #: The present contents of entries that were written in place; `_holders` is the inverse.
        self.contents: dict[Entry, Entry] = {}
        self._holders: dict[Entry, Entry] = {}
        #: The free extents by name.
        self.dims: dict[str, int] = {}
        #: The float arguments whose values were asked for.
        self.specialized: dict[Scalar, float] = {}
        #: The `structure.Internals` of blocks that were run, by id.
        self.blocks: dict[int, Any] = {}
        #: The blocks being run, outermost first; how many nodes have each name so far.
        self.scopes: list[Any] = []
        self.counts: dict[str, int] = {}

    def whole(self, name: str) -> Any:
        """For exporters: a handler that keeps a loop or branch of `npx` as one node; or None."""
        return None

    def named(self, hint: str) -> str:
        """A name for a node made now: the prefix of the block being run, the hint, a number."""
        name = f"{self.scopes[-1].prefix if self.scopes else ''}{hint}"
        number = self.counts.get(name, 0)
        self.counts[name] = number + 1
        return f"{name}{number}"

    def ran(self, block: Any) -> None:
        """Note that a block is run: the program is valid while the block's structure stays.

        A child needs no note, since its parent's structure includes it.
        """
        own = block._own
        outer = self.scopes[-1] if self.scopes else None
        if outer is None or all(parent() is not outer for parent in own.parents):
            self.blocks[id(own)] = own

    def origin(self) -> str:
        """The line of the program that a node made now comes from."""
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
        """An input for a float argument whose value is `value` in this call."""
        node = placeholder(Spec((), weak(value), weak=True), name).node
        scalar = Scalar(node, 0)
        scalar.owner, scalar.seen = self, value
        node.entries = (scalar,)
        return scalar

    def parameter(self, parameter: Any) -> Entry:
        """The entry that stands for a parameter: an input, or its new value if it was set."""
        found = self.parameters.get(id(parameter))
        if found is None:
            array = parameter.array()
            entry = placeholder(Spec(array.shape, array.dtype), getattr(parameter, "name", ""))
            found = self.parameters[id(parameter)] = (parameter, entry)
        return self.updates.get(id(parameter), found)[1] if self.updates else found[1]

    def update(self, parameter: Any, value: Entry) -> None:
        """Set a parameter to `value`, for later reads in the trace and once the program has run."""
        self.parameter(parameter)
        self.updates[id(parameter)] = (parameter, value)
        self._hold(self.parameters[id(parameter)][1], value)

    def record(self, recording: bool) -> None:
        """Switch recording on or off for the nodes made from now on."""
        if recording != self.recording:
            self.recording = recording
            self._switches.append(next_serial())

    def was_recorded(self, node: Node) -> bool:
        """Whether a node was made while recording was on."""
        switched = len(self._switches) - bisect(self._switches, node.serial)
        return self.recording ^ bool(switched % 2)

    @property
    def paused(self) -> bool:
        """Whether recording is off (`autograd.pause`) in a program whose calls are recorded."""
        return self.recorded and not self.recording

    def unrecorded(self, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """The same values behind `stop_gradient`."""
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
        """The entry that an entry is a view of, and the views in between, from there outwards."""
        views: list[Entry] = []
        while entry not in self._holders and shows_another(entry.node):
            views.insert(0, entry)
            entry = entry.node.inputs[0]
        layout, start = dense(entry.shape), 0
        for position, view in enumerate(views):
            node = view.node
            assert node.op is not None
            found: Any = dense(view.shape)  # real or imaginary parts: a view without a layout
            if "view" in node.op.rules:
                found = node.op.rules["view"](layout, *node.specs, **node.params)
            layout = found[view.index] if isinstance(found, tuple) else found
            if layout is None:  # no strides express it: it is a copy, and so a start of its own
                entry, layout, start = view, dense(view.shape), position + 1
        return self._holders.get(entry, entry), views[start:]

    def current(self, entry: Entry) -> Entry:
        """The present value of an entry: it, or what it is a view of, may have been written to."""
        entry = entry.as_np_ndarray()
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
        """Write `value` into `target` in place, visible through every view of the same elements.

        Through a view the write is a `put`: the base with some elements replaced.
        """
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
                    f"{view.node.op.name}: {target.spec} repeats elements, so it cannot be "
                    "written to"
                )
            value = put(whole, value, view.index, **view.node.params)
        for parameter, entry in self.parameters.values():
            if entry is holder:
                self.update(parameter, value)
                return
        self._hold(holder, value)

    def replace(self, new: dict[Entry, Entry]) -> None:
        """Have what was written so far be other entries, which stand for the same."""
        updates = self.updates.items()
        self.updates = {key: (whose, new.get(e, e)) for key, (whose, e) in updates}
        self.contents = {holder: new.get(e, e) for holder, e in self.contents.items()}
        self._holders = {value: holder for holder, value in self.contents.items()}

    def written(self) -> tuple[Any, ...]:
        """The state of writes and random calls, for `restore`."""
        dictionaries = (dict(each) for each in (self.contents, self._holders, self.updates))
        return (*dictionaries, self.random_calls)

    def restore(self, before: tuple[Any, ...]) -> None:
        """Undo writes and random calls since `written` returned `before`."""
        self.contents, self._holders, self.updates = (dict(each) for each in before[:3])
        self.random_calls = before[3]

    def is_alone(self, before: tuple[Any, ...], began: int) -> bool:
        """Whether there were no effects since `before` outside of what was made since.

        That is: no random numbers drawn, and writes only to nodes with a serial above `began`.
        """
        contents, _, updates, calls = before
        written = (h for h, value in self.contents.items() if contents.get(h) is not value)
        pairs = [[id(entry) for _, entry in each.values()] for each in (self.updates, updates)]
        own = all(holder.node.serial > began for holder in written)
        return own and pairs[0] == pairs[1] and self.random_calls == calls

    def __enter__(self) -> Trace:
        _local.stack.append(self)
        _tell_core()
        return self

    def __exit__(self, *error: object) -> None:
        _local.stack.pop()
        _tell_core()

    # --- arrays from outside ----------------------------------------------------------------

    def arrays(self) -> dict[Entry, Any]:
        """The arrays its inputs stand for: of arguments, parameters, and closed over."""
        device = next((array.device for array in self.given.values()), None)
        found = dict(self.given)
        with suspended():
            for parameter, entry in self.parameters.values():
                found[entry] = parameter.data() if device is None else parameter.array(device)
            for entry, closed in self.closed.inputs.items() if self.closed is not None else ():
                found[entry] = closed.on(device)
        return found

    def captured(self, array: Any, moves: bool = False) -> Entry:
        """The entry that stands for an array from outside, see `ClosedOver.entry_of`."""
        if self.closed is None:
            return captured(array)
        return self.current(self.closed.entry_of(array, moves))

    def known(self, entry: Entry) -> Any:
        """The value of an entry if only closed-over arrays decide it, else None."""
        if self.closed is None:
            return None
        with suspended():
            return self.closed.known(self.current(entry))

    def asked(self, array: Any, what: str) -> Any:
        """The array with the present contents of a closed-over `array`, which `what` asks for.

        Raises `TraceError` if the function has written to it what depends on its arguments.
        """
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
    """The value itself, but a plain number for a free extent left over from another trace."""
    if not isinstance(value, Dim):
        return value
    trace = current_trace()
    if trace is None:
        return value.value if is_left_over(value) else value
    return value if value.guards is trace.guards or not trace.of_program else value.value


def shows_another(node: Node) -> bool:
    """Whether the results of a node are views of its first input."""
    return node.op is not None and not node.op.rules.keys().isdisjoint(("view", "put"))


def kept_whole(name: str) -> Any:
    """See `Trace.whole`, for the trace in progress; None without one."""
    trace = current_trace()
    return None if trace is None else trace.whole(name)


class StateArray:
    """Mutable state of programs that is no parameter: optimizer states, random generators.

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


class suspended:  # noqa: N801 -- used as a function
    """A `with` block that runs outside of the traces in progress on this thread."""

    def __enter__(self) -> None:
        self._kept = _local.stack[:]
        _local.stack.clear()
        _tell_core()

    def __exit__(self, *error: object) -> None:
        _local.stack.extend(self._kept)
        _tell_core()


class _Local(threading.local):
    """The traces in progress on this thread, outermost first."""

    def __init__(self) -> None:
        self.stack: list[Trace] = []


_local = _Local()


def _tell_core() -> None:
    """Tell the core how many traces are in progress, and whether the innermost takes arrays."""
    stack = _local.stack
    _core.set_tracing(len(stack), bool(stack) and stack[-1].closed is not None)


def recording_trace() -> Trace | None:
    """The innermost trace, or None; notes that all traces depend on whether calls are recorded."""
    for trace in _local.stack:
        trace.asked_recording = True
    return current_trace()


def current_trace() -> Trace | None:
    """The innermost trace in progress on this thread, or None."""
    stack = _local.stack
    return stack[-1] if stack else None
