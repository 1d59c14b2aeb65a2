"""What a lowering has emitted so far: the items of the plan in order, and when memory is used.

Each launch is one tick of a clock. From the first tick at which a buffer is touched to the last one
it has to keep its contents; that span is what the core shares workspace by::

    emission.node = node            # what the next items are for
    buffer = emission.scratch(400)  # 400 bytes of workspace
    emission.launch(launch)         # tick 1: it writes the buffer
    emission.launch(other)          # tick 2: it reads it; the buffer lives from 1 to 2

What a loop repeats, or one side of a branch, is a list of its own (`begin`, `taken`, `resume`),
which the item of the loop or branch holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gemel.codegen.nest import Launch
from gemel.extent import maximum, same_for_all
from gemel.ir.graph import Node
from gemel.runtime.cache import Compilation
from gemel.runtime.concurrent import Concurrent, side_by_side
from gemel.runtime.image import TEMPORARY, Buffer

if TYPE_CHECKING:
    from gemel.runtime.rounds import Rounds


class Outside(NamedTuple):
    """What was being emitted when a list of items of their own began."""

    items: list[Any]
    packed: dict[str, tuple[Any, int]]


class Emission:
    """The items of one plan, its temporaries, and the call numbers of random draws in it."""

    def __init__(self, random: int) -> None:
        #: Compiles kernels while others are emitted.
        self.compilation: Compilation | None = None
        self.items: list[Any] = []
        self.temporaries: list[Buffer] = []
        #: The unit of life spans.
        self.time = 0
        #: The node being emitted.
        self.node = Node(None, (), {}, ())
        #: The loop whose body is being emitted.
        self.inside: Rounds | None = None
        #: The panels packed so far for products, by what is in them.
        self.packed: dict[str, tuple[Any, int]] = {}
        #: How many call numbers a run takes.
        self.random = random

    def scratch(self, size: int) -> Buffer:
        """A new block of workspace."""
        buffer = Buffer(TEMPORARY, len(self.temporaries), maximum(size, 1))
        self.temporaries.append(buffer)
        return buffer

    def launch(self, launch: Launch) -> None:
        """Add a launch; one that packs the same panels in all rounds goes before the loop."""
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

    def tick(self) -> int:
        """The next point in time."""
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
        """Begin such a list. What is packed from now on does not exist outside of it."""
        outside = Outside(self.items, self.packed)
        self.items, self.packed = [], dict(self.packed)
        return outside

    def taken(self) -> list[Any]:
        """What was emitted since the list began; from now on another one."""
        items, self.items = self.items, []
        return items

    def resume(self, outside: Outside) -> None:
        """Go on where the list began."""
        self.items, self.packed = outside

    def side_by_side(self, items: list[Any]) -> list[Any]:
        """The items with independent ones side by side; extends the life spans of their buffers."""
        items = side_by_side(items)
        for group in items:
            if not isinstance(group, Concurrent):
                continue
            inside = [item for part in group.parts for item in part]
            times = [item.time for item in inside]
            for item in inside:
                for buffer, _ in item.touches():
                    self.touch(buffer, min(times))
                    self.touch(buffer, max(times))
        return items


__all__ = ["Emission", "Outside"]
