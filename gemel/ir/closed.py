"""What a traced function closes over: arrays that are inputs of its program, values it asks for.

An array from outside is an input, read at each call; one that was made while tracing (`np.array`
of numbers) is a constant. A value the function asks for (`float(w)`, `if w.sum() > 0`) is a
constant of the program as well, which holds for as long as the array has the contents it had.
"""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel.device import current_device
from gemel.errors import DeviceError
from gemel.ir.free import is_free, specialized
from gemel.ir.graph import Entry, Graph, Node, captured, placeholder, walk
from gemel.spec import Spec

#: What `_loans` says of an array that somebody outside may be writing to.
LENT = -1
#: Where it stands among the nodes: before all that the program itself makes.
OUTSIDE = -1


class Closed:
    """An array a program closes over, an input; if it `moves`, a copy of it where that runs."""

    def __init__(self, array: Any, moves: bool) -> None:
        self.array = array
        self.moves = moves
        entry = placeholder(Spec(array.shape, array.dtype), "array")
        entry.node.serial = OUTSIDE
        self.entry = entry

    def on(self, device: Any) -> Any:
        """The array a run on `device` reads."""
        return self.array.to_device(device) if self.moves and device is not None else self.array


class Asked:
    """The contents of an array when they were asked for."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.state = array.version, array._loans
        self.contents = _core.to_bytes(array)

    def holds(self) -> bool:
        """Whether it has them still. Waits, where it has been written since, or somebody outside
        had access."""
        state = self.array.version, self.array._loans
        if state == self.state and state[1] != LENT:
            return True
        if _core.to_bytes(self.array) != self.contents:
            return False
        self.state = state
        return True


class ClosedOver:
    """The arrays one trace closes over. With `constant` it is no program: they are constants."""

    def __init__(self, constant: bool = False) -> None:
        self.constant = constant
        #: By the array, and whether it is moved. Arrays made while tracing are constants.
        self._entries: dict[tuple[int, bool], tuple[Any, Entry]] = {}
        self._made: dict[int, Any] = {}
        #: The inputs, in the order they were met.
        self.inputs: dict[Entry, Closed] = {}
        self.asked: dict[int, Asked] = {}

    def made(self, array: Any) -> None:
        """An array that was made while tracing: every call has it as it is now."""
        self._made[id(array)] = array

    def is_parameter(self, array: Any, entry: Entry) -> None:
        """An array is a parameter's: the function reads that where it reads the array."""
        self._entries[id(array), False] = array, entry

    def entry_of(self, array: Any, moves: bool = False) -> Entry:
        """What stands for an array. Raises `DeviceError` for one on another device."""
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

    @property
    def is_plain(self) -> bool:
        """Whether a run takes the same arrays and asks for nothing."""
        return not self.asked and not any(closed.moves for closed in self.inputs.values())

    def is_moved(self, entry: Entry) -> bool:
        """Whether it stands for a copy of an array, which nobody sees written to."""
        found = self.inputs.get(entry)
        return found is not None and found.moves

    def known(self, entry: Entry) -> Any:
        """The value of an entry made of closed-over arrays and numbers alone; None of another one.

        The program depends on it from now on, and on the sizes that are in it. To be called outside
        of the trace.
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
        # Of what a graph that is free inside would give, no guard would know.
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
        """The contents of an array are asked for. To be called outside of the trace."""
        if id(array) not in self._made and not self.constant:
            self._ask(array)

    def _ask(self, array: Any) -> None:
        if id(array) not in self.asked:
            self.asked[id(array)] = Asked(array)

    def holds(self) -> bool:
        """Whether all that was asked for is as it was."""
        return all(asked.holds() for asked in self.asked.values())


__all__ = ["Closed", "ClosedOver"]
