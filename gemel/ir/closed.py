"""What a traced function closes over: arrays that become inputs, and values it branches on.

    w = np.ones(3)

    @gemel.compile
    def f(x):
        scale = np.array([2.0])     # made while tracing: a constant
        if w.sum() > 0:             # its value is asked for: a guard on the contents of w
            return x * w * scale    # w: a further input, read anew at each call

A value that is asked for becomes a constant of the program. Before each later call,
`ClosedOver.holds` checks that the array still has the same contents; if not, the function is traced
again.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from gemel import _core
from gemel.device import current_device
from gemel.errors import DeviceError
from gemel.ir.free import is_free, specialized
from gemel.ir.graph import Entry, Graph, Node, captured, placeholder, walk
from gemel.spec import Spec

#: The value of `array._loans` while code outside of gemel may write to its memory.
LENT = -1
#: The serial number of the nodes of closed-over arrays: before all nodes that the program makes.
OUTSIDE = -1


class Closed:
    """A closed-over array and the input that stands for it.

    If it `moves`, a run on another device reads a copy of it there.
    """

    def __init__(self, array: Any, moves: bool) -> None:
        self.array = array
        self.moves = moves
        entry = placeholder(Spec(array.shape, array.dtype), "array")
        entry.node.serial = OUTSIDE
        self.entry = entry

    def on(self, device: Any) -> Any:
        """The array that a run on `device` reads (None: the array where it is)."""
        return self.array.to_device(device) if self.moves and device is not None else self.array


class Snapshot:
    """The contents an array had when the traced function asked for them: a guard."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.state = array.version, array._loans
        self.contents = _core.to_bytes(array)

    def holds(self) -> bool:
        """Whether the array still has these contents.

        Only if the array may have been written since are bytes compared, which waits for it.
        """
        state = self.array.version, self.array._loans
        if state == self.state and state[1] != LENT:
            return True
        if _core.to_bytes(self.array) != self.contents:
            return False
        self.state = state
        return True


class ClosedOver:
    """The arrays one trace closes over. With `constant` all of them become constants."""

    def __init__(self, constant: bool = False) -> None:
        self.constant = constant
        #: By id of the array and whether it moves. The arrays are kept so that their ids stay
        #: unique.
        self._entries: dict[tuple[int, bool], tuple[Any, Entry]] = {}
        #: Arrays made while tracing, by id.
        self._made: dict[int, Any] = {}
        #: The inputs, in the order the function first read them.
        self.inputs: dict[Entry, Closed] = {}
        #: The arrays whose contents were asked for, by id.
        self.asked: dict[int, Snapshot] = {}

    def made(self, array: Any) -> None:
        """Note an array that was made while tracing: it is a constant of the program."""
        self._made[id(array)] = array

    def is_parameter(self, array: Any, entry: Entry) -> None:
        """Note that an array belongs to a parameter, for which `entry` stands already."""
        self._entries[id(array), False] = array, entry

    def entry_of(self, array: Any, moves: bool = False) -> Entry:
        """The entry that stands for an array. Raises `DeviceError` for one on another device."""
        found = self._entries.get((id(array), moves))
        if found is None:
            found = self._entries[id(array), moves] = array, self._entry(array, moves)
        return found[1]

    def _entry(self, array: Any, moves: bool) -> Entry:
        if self.constant or id(array) in self._made:
            return captured(array)
        if not moves and array.device != current_device():
            raise DeviceError(
                f"{Spec(array.shape, array.dtype)} on {array.device} in a program for "
                f"{current_device()}; move it with to_device(x.device)"
            )
        closed = Closed(array, moves)
        self.inputs[closed.entry] = closed
        return closed.entry

    def are_written(self, contents: Container[Entry]) -> bool:
        """Whether `contents`, the entries written to in place, include a closed-over array."""
        outside = (
            entry
            for (key, moves), (_, entry) in self._entries.items()
            if not moves and key not in self._made
        )
        return any(entry in contents for entry in outside)

    @property
    def is_plain(self) -> bool:
        """Whether nothing has to be checked or moved before a call."""
        return not self.asked and not any(closed.moves for closed in self.inputs.values())

    def is_moved(self, entry: Entry) -> bool:
        """Whether an entry stands for a copy on another device, which does not see later writes."""
        found = self.inputs.get(entry)
        return found is not None and found.moves

    def known(self, entry: Entry) -> Any:
        """The array an entry has as its value; None if that depends on the arguments.

        It is known if it is computed from closed-over arrays and numbers alone. From now on the
        program is only valid for these values and sizes. To be called outside of the trace.
        """
        nodes = walk([entry])
        if entry.is_run_time_number or not all(map(self._is_known, nodes)):
            return None
        values: dict[Entry, Any] = {}
        for node in nodes:
            if node.op is None:
                values[node.entries[0]] = self._value(node)
                continue
            parameters = {name: specialized(value) for name, value in node.params.items()}
            found = node.op(*(values[each] for each in node.inputs), **parameters)
            several = found if isinstance(found, tuple) else (found,)
            values.update(zip(node.entries, several, strict=True))
        return values[entry]

    def _is_known(self, node: Node) -> bool:
        (entry, *_) = node.entries
        if node.op is None:
            return node.is_constant or entry.is_run_time_number or entry in self.inputs
        # The sizes inside of a subgraph cannot be guarded.
        free = any(isinstance(value, Graph) and is_free(value) for value in node.params.values())
        return not (node.op.random or node.op.updates or free)

    def _value(self, node: Node) -> Any:
        (entry,) = node.entries
        closed = self.inputs.get(entry)
        if closed is None:
            return specialized(entry._value("") if entry.is_run_time_number else node.value)
        self._ask(closed.array)
        return closed.on(current_device())

    def ask(self, array: Any) -> None:
        """Note that the function asks for an array's contents. To be called outside the trace."""
        if id(array) not in self._made and not self.constant:
            self._ask(array)

    def _ask(self, array: Any) -> None:
        if id(array) not in self.asked:
            self.asked[id(array)] = Snapshot(array)

    def holds(self) -> bool:
        """Whether every array whose contents were asked for still has them."""
        return all(asked.holds() for asked in self.asked.values())


__all__ = ["Closed", "ClosedOver"]
