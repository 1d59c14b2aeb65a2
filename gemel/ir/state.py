"""What a traced function changes: arrays written in place, parameters, the count of random calls.

A trace only ever adds nodes, so a write changes nothing that exists. `State` notes which entry
stands for the contents of an array from now on, and later reads of the array, or of a view of it,
get that entry::

    @gemel.compile
    def f(x):
        row = x[0]          # a view of x
        x += 1              # contents: x -> x + 1
        return row          # read now: (x + 1)[0]

A parameter that is read becomes an input of the program. One that is set becomes an update, which
the program makes each time it has run. Random calls are numbered in the order of the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from gemel.errors import TraceError
from gemel.ir.free import trial
from gemel.ir.graph import Entry, Node, copy_node, placeholder
from gemel.ir.layout import Layout, dense, scattered
from gemel.ir.recording import Recording
from gemel.spec import Spec


class Savepoint(NamedTuple):
    """The writes and random calls of a trace up to some point, see `State.save`."""

    contents: dict[Entry, Entry]
    holders: dict[Entry, Entry]
    updates: dict[int, tuple[Any, Entry]]
    random_calls: int


class State:
    """The parameters and arrays of one trace, and what the function has written to them so far."""

    __slots__ = (
        "_holders",
        "_recording",
        "contents",
        "laid_out",
        "layouts",
        "parameters",
        "random_calls",
        "updates",
    )

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.random_calls = 0
        #: The parameters read so far and the inputs that stand for them, by id of the parameter.
        self.parameters: dict[int, tuple[Any, Entry]] = {}
        #: The new values of parameters that were set, by id of the parameter.
        self.updates: dict[int, tuple[Any, Entry]] = {}
        #: The present contents of entries that were written in place; `_holders` is the inverse.
        self.contents: dict[Entry, Entry] = {}
        self._holders: dict[Entry, Entry] = {}
        #: The layouts of inputs that are not dense.
        self.layouts: dict[Entry, Layout] = {}
        #: The inputs of whose layout the program is a consequence: `x.reshape(-1)`, through which
        #: it writes, is a view or a copy.
        self.laid_out: set[Entry] = set()

    def next_call(self) -> int:
        """The number of the next random call, in trace order."""
        self.random_calls += 1
        return self.random_calls - 1

    # --- parameters -------------------------------------------------------------------------

    def parameter(self, parameter: Any) -> Entry:
        """The entry that stands for a parameter: an input, or its new value if it was set."""
        known = self.parameters.get(id(parameter))
        if known is None:
            entry = placeholder(self._spec(parameter), getattr(parameter, "name", ""))
            known = self.parameters[id(parameter)] = (parameter, entry)
        return self.updates.get(id(parameter), known)[1] if self.updates else known[1]

    def _spec(self, parameter: Any) -> Spec:
        array = parameter.array()
        return Spec(array.shape, array.dtype)

    def update(self, parameter: Any, value: Entry) -> None:
        """Set a parameter to `value`, for later reads in the trace and once the program has run."""
        self.parameter(parameter)
        self.updates[id(parameter)] = (parameter, value)
        self._hold(self.parameters[id(parameter)][1], value)

    # --- writes in place --------------------------------------------------------------------

    def _hold(self, holder: Entry, value: Entry) -> None:
        self.contents[holder] = value
        self._holders[value] = holder

    def _seen_through(self, entry: Entry, writes: bool = False) -> tuple[Entry, list[Entry]]:
        """The entry that an entry is a view of, and the views in between, from there outwards.

        `writes`: for a write through them.
        """
        views: list[Entry] = []
        while entry not in self._holders and shows_another(entry.node):
            views.insert(0, entry)
            entry = entry.node.inputs[0]
        start = 0
        holder = self._holders.get(entry, entry)
        matters = holder.node.op is None and (writes or holder in self.contents)
        if matters and _asks_for_layout(entry, views):
            self.laid_out.add(holder)
        layout: Layout | None = self.layouts.get(holder) or dense(entry.shape)
        for position, view in enumerate(views):
            node = view.node
            assert node.op is not None and layout is not None
            if node.op.rules.view is None:  # real or imaginary parts: a view without a layout
                layout = dense(view.shape)
            else:
                layouts = node.op.layouts(layout, node.specs, node.params)
                layout = None if layouts is None else layouts[view.index]
            if layout is None:  # no strides express it: it is a copy, and so not a view
                entry, layout, start = view, dense(view.shape), position + 1
        return self._holders.get(entry, entry), views[start:]

    def current(self, entry: Entry) -> Entry:
        """The present value of an entry: it, or what it is a view of, may have been written to."""
        entry = entry.as_np_ndarray()
        if not self.contents:
            return entry
        holder, views = self._seen_through(entry)
        value = self.contents.get(holder)
        if value is None or (views and views[0].node.inputs[0] is value):
            return entry
        for view in views:
            value = copy_node(view.node, (value,)).entries[view.index]
        return value

    @contextmanager
    def as_made(self) -> Iterator[None]:
        """A block of code in which entries have the values they were made with, whatever has been
        written since then."""
        kept = self.contents, self._holders
        self.contents, self._holders = {}, {}
        try:
            yield
        finally:
            self.contents, self._holders = kept

    def write(self, target: Entry, value: Entry) -> None:
        """Write `value` into `target` in place, visible through every view of the same elements.

        Through a view the write is a `put`: the base with some elements replaced. A write while
        recording is off changes values only: gradients arrive at what was there before.
        """
        holder, views = self._seen_through(target, writes=True)
        shown = [self.contents.get(holder, holder)]
        for view in views[:-1]:
            shown.append(copy_node(view.node, (shown[-1],)).entries[view.index])
        for view, whole in zip(reversed(views), reversed(shown), strict=False):
            assert view.node.op is not None
            put = view.node.op.rules.put
            if put is None:
                why = "repeats elements" if view.node.op.is_own else "has no `put` rule"
                raise TraceError(
                    f"{view.node.op.name}: {target.spec} {why}, so it cannot be written to"
                )
            value = put(whole, value, view.index, **view.node.params)
        value = self._recording.written(value, shown[0])
        for parameter, entry in self.parameters.values():
            if entry is holder:
                self.update(parameter, value)
                return
        self._hold(holder, value)

    def replace(self, new: dict[Entry, Entry]) -> None:
        """Replace the entries written so far by other entries with the same values."""
        updates = self.updates.items()
        self.updates = {key: (whose, new.get(e, e)) for key, (whose, e) in updates}
        self.contents = {holder: new.get(e, e) for holder, e in self.contents.items()}
        self._holders = {value: holder for holder, value in self.contents.items()}

    # --- what a part of the trace has changed -----------------------------------------------

    def save(self) -> Savepoint:
        """The state as it is now, for `restore` and for what compares with it."""
        written = dict(self.contents), dict(self._holders), dict(self.updates)
        return Savepoint(*written, self.random_calls)

    def restore(self, before: Savepoint) -> None:
        """Undo writes and random calls since `before` was saved."""
        self.contents, self._holders = dict(before.contents), dict(before.holders)
        self.updates, self.random_calls = dict(before.updates), before.random_calls

    def writes_inside(self, before: Savepoint, began: int) -> bool:
        """Whether all writes since `before` are to nodes with a serial number of `began` or more.

        That is, only to nodes made since then, and to no parameter.
        """
        changed = (h for h, value in self.contents.items() if before.contents.get(h) is not value)
        inside = all(holder.node.serial >= began for holder in changed)
        return inside and _values(self.updates) == _values(before.updates)


def _values(updates: dict[int, tuple[Any, Entry]]) -> list[int]:
    """The identities of parameters' new values: comparing entries by `==` would add nodes."""
    return [id(entry) for _, entry in updates.values()]


def _asks_for_layout(entry: Entry, views: list[Entry]) -> bool:
    """Whether it depends on the layout of an array which of these results show its elements.

    They are results of one another, from the array outwards. No guards are left.
    """
    layout = scattered(entry.shape)
    with trial([*entry.shape, *(extent for view in views for extent in view.shape)]):
        for view in views:
            node = view.node
            assert node.op is not None
            if node.op.rules.view is None:
                layout = scattered(view.shape)
                continue
            found = node.op.layouts(layout, node.specs, node.params)
            if found is None:
                return True
            layout = found[view.index]
    return False


def shows_another(node: Node) -> bool:
    """Whether the results of a node are views of its first input."""
    rules = None if node.op is None else node.op.rules
    return rules is not None and (rules.view is not None or rules.put is not None)


__all__ = ["Savepoint", "State", "shows_another"]
