"""What a lowering has emitted so far: the items of the plan in order, and when memory is used.

Each launch is one tick of a clock. A buffer is alive from the first tick at which it is touched to
the last one at which its contents are needed; by these spans the core shares the workspace::

    emission.node = node            # what the next items are for
    buffer = emission.scratch(400)  # 400 bytes of workspace
    emission.launch(launch)         # tick 1: it writes the buffer
    emission.launch(other)          # tick 2: it reads it; the buffer lives from 1 to 2

The items that a loop repeats, or that one side of a branch consists of, form a separate list
(`begin`, `taken`, `resume`), which belongs to the item of the loop or branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gemel.codegen.language.launch import Launch
from gemel.extent import maximum, same_for_all
from gemel.ir.graph import Node
from gemel.runtime.cache import Compilation
from gemel.runtime.concurrent import Concurrent, flat, side_by_side
from gemel.runtime.image import TEMPORARY, Buffer

if TYPE_CHECKING:
    from gemel.runtime.rounds import Rounds


class Outside(NamedTuple):
    """What was being emitted when a separate list of items began."""

    items: list[Any]
    packed: dict[str, Buffer]


class Emission:
    """The items of one plan, its temporaries, and the call numbers of random draws in it."""

    def __init__(self, random: int) -> None:
        #: Compiles kernels while further launches are emitted.
        self.compilation: Compilation | None = None
        self.items: list[Any] = []
        self.temporaries: list[Buffer] = []
        #: The number of ticks so far.
        self.time = 0
        #: The node being emitted.
        self.node = Node(None, (), {}, ())
        #: The loop whose body is being emitted.
        self.inside: Rounds | None = None
        #: The panels packed so far for products, by their contents.
        self.packed: dict[str, Buffer] = {}
        #: How many call numbers a run uses.
        self.random = random

    def scratch(self, size: int) -> Buffer:
        """A new block of workspace."""
        buffer = Buffer(TEMPORARY, len(self.temporaries), maximum(size, 1))
        self.temporaries.append(buffer)
        return buffer

    def launch(self, launch: Launch) -> None:
        """Add a launch. If it packs panels that are the same in all rounds, it goes before the
        loop."""
        self.tick()
        items = self.items
        loop = self.inside if launch.packs else None
        while loop is not None and loop.ahead(launch):
            items, loop = loop.before, loop.outer
        for buffer, _ in launch.touches():
            self.touch(buffer, self.time)
        for _, number in launch.scalars:
            if number.source[0] == "call":
                self.random = max(self.random, number.source[1] + 1)
        if not same_for_all(launch.extent, 0):
            launch.node, launch.time = self.node, self.time
            items.append(launch)
            if self.compilation is not None:
                self.compilation.start(launch.program)

    def add(self, item: Any) -> None:
        """Add a loop or several of them."""
        self.items.append(item)

    def tick(self) -> int:
        """Advance the clock and return its time."""
        self.time += 1
        return self.time

    def touch(self, buffer: Buffer, time: int) -> None:
        """Note that a buffer is used at a time."""
        buffer = buffer.root
        if self.inside is not None:
            self.inside.use(buffer)
        buffer.first = time if buffer.first < 0 else min(buffer.first, time)
        buffer.last = max(buffer.last, time)

    # --- lists of items of their own --------------------------------------------------------

    def begin(self) -> Outside:
        """Begin a separate list. Panels packed in it are not available outside of it."""
        outside = Outside(self.items, self.packed)
        self.items, self.packed = [], dict(self.packed)
        return outside

    def taken(self) -> list[Any]:
        """The items emitted since the list began; further items go to another list."""
        items, self.items = self.items, []
        return items

    def resume(self, outside: Outside) -> None:
        """Continue the list that was interrupted by `begin`."""
        self.items, self.packed = outside

    def side_by_side(self, items: list[Any]) -> list[Any]:
        """The items, with independent ones side by side; extends the life spans of their
        buffers."""
        items = side_by_side(items)
        for group in items:
            if isinstance(group, Concurrent):
                times = [item.time for item in flat([group])]
                self.span(group, min(times), max(times))
        return items

    def span(self, item: Any, first: int, last: int) -> None:
        """Note that an item may run at any time between two."""
        for buffer, _ in item.touches():
            self.touch(buffer, first)
            self.touch(buffer, last)


__all__ = ["Emission", "Outside"]
