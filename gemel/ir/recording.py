"""Whether `autograd` records the calls of a program that is being traced, and where it pauses.

A program is traced for calls under `autograd.record()`, or for calls outside of it. Inside, the
function may switch recording on and off; each node is then either recorded or not::

    @gemel.compile
    def f(x):
        y = x * 2                   # recorded, if the call is
        with autograd.pause():
            mean = y.mean()         # paused: a constant to gradients
        return y - mean
"""

from __future__ import annotations

from bisect import bisect

from gemel.ir.graph import Entry, Node, next_serial
from gemel.ir.methods import REGISTRY


class Recording:
    """Whether calls of one program are recorded, and which of its nodes.

    It begins with the state of the surrounding trace at this point, if there is one.
    """

    __slots__ = ("_histories", "_switches", "asked", "gradient_reads", "is_on", "of_calls")

    def __init__(self, around: Recording | None = None) -> None:
        #: Whether calls of the program will be recorded.
        self.of_calls: bool = around is not None and around.of_calls
        #: Whether recording is on at this point of the program.
        self.is_on: bool = around is not None and around.is_on
        #: Whether anything has asked for that: the program is then valid for such calls only.
        self.asked = False
        #: The serial numbers at which recording was switched on or off.
        self._switches: list[int] = []
        #: Nodes made while it was off that have the history of what they overwrote.
        self._histories: set[Node] = set()
        #: Each input the function itself took a gradient for, with the inputs the head depends on.
        self.gradient_reads: dict[Entry, dict[Entry, None]] = {}

    def begin(self, of_calls: bool) -> None:
        """Say, before anything is traced, whether calls of the program will be recorded."""
        self.of_calls = self.is_on = of_calls

    def switch(self, on: bool) -> None:
        """Switch recording on or off for the nodes made from now on."""
        if on != self.is_on:
            self.is_on = on
            self._switches.append(next_serial())

    def was_on(self, node: Node) -> bool:
        """Whether a node was made while recording was on, or stands for what was."""
        if node in self._histories:
            return True
        switched = len(self._switches) - bisect(self._switches, node.serial)
        return self.is_on ^ bool(switched % 2)

    def written(self, value: Entry, before: Entry) -> Entry:
        """What reads get after a value was written: itself, with its history; but while recording
        is off, with that of what was there before."""
        was_ever_on = self.of_calls or bool(self._switches)
        if self.is_on or not was_ever_on or not value.dtype.is_inexact:
            return value
        node = REGISTRY["overwritten"].node((value, before), {})
        self._histories.add(node)
        found: Entry = node.entries[0]
        return found

    def origin(self, entry: Entry) -> Entry:
        """What an array held before the writes while recording was off: all its uses are behind it,
        so this is where gradients of the array arrive."""
        while entry.node in self._histories:
            entry = entry.node.inputs[1]
        return entry

    @property
    def is_paused(self) -> bool:
        """Whether recording is off (`autograd.pause`) in a program whose calls are recorded."""
        return self.of_calls and not self.is_on


def unrecorded(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The same values, through `stop_gradient`."""
    stop = REGISTRY["stop_gradient"]
    return tuple([stop.node((e,), {}).entries[0] if e.dtype.is_inexact else e for e in entries])


def copied(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Copies of the values, which share memory with nothing."""
    copy = REGISTRY["copy"]
    return tuple([copy.node((e,), {}).entries[0] for e in entries])


__all__ = ["Recording", "copied", "unrecorded"]
