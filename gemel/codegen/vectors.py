"""The loop along the vector: whole vectors, and what remains of a row.

Whole groups of vectors come first. The rest is processed under masks or, where masks cost
something, in ever smaller parts, so that nothing past an operand's end is accessed.
"""

from __future__ import annotations

from collections.abc import Callable

from gemel.codegen.access import Bases, Site
from gemel.codegen.assembly import Value
from gemel.codegen.frame import Body, Carried, Frame, i64
from gemel.codegen.program import INDEX, OUTPUT, STRIDED, Program
from gemel.codegen.target import Target

#: Some vectors from an index on: how many, with how many lanes, and where they end if they may
#: reach past the end.
SomeVectors = Callable[[Value, int, int, "Value | None", Carried], Carried]
#: A loop over whole groups from 0: up to where, the size of a group, what is carried, and the body.
WholeLoop = Callable[[Value, int, Carried, Body], Carried]


class Vectors(Frame):
    """A frame with the loop along the vector."""

    def __init__(self, program: Program, target: Target) -> None:
        super().__init__(program, target)
        in_memory = (operand.dtype for operand in program.operands if operand.role != INDEX)
        self.masks = self.lanes > 1 and target.has_masks_for(in_memory)
        if any((o.role, o.stride_class) == (OUTPUT, STRIDED) for o in program.operands):
            self.masks &= target.free_masks  # else each lane would be a branch

    def site(self, bases: Bases, index: Value, copy: int, lanes: int, stop: Value | None) -> Site:
        """The `copy`th vector from an index on. If it may reach past `stop`, the lanes from there
        on are masked."""
        start = self.builder.add(index, i64(copy * lanes))
        mask = None
        if stop is not None:
            mask = self.first_lanes(self.builder.sub(stop, start), lanes)
        return Site(self.access, bases, start, lanes, mask)

    def vector_loop(
        self,
        start: Value,
        stop: Value,
        copies: int,
        carried: Carried,
        body: SomeVectors,
        whole: WholeLoop | None = None,
        tail: int = 1,
        fewer: int = 0,
        writes: bool = True,
    ) -> Carried:
        """The loop along the vector: `body(index, copies, lanes, stop, carried)`.

        Whole groups of `copies` vectors come first, in the loop `whole` if there is one. Of the
        rest, if `fewer` is not 0, whole groups of `fewer` vectors are next, then single vectors if
        the body `writes` and masks cost something. What then remains is processed `tail` vectors at
        a time under masks, or element by element if the target has none.
        """

        def call(count: int, lanes: int, end: Value | None = None) -> Body:
            return lambda index, held: body(index, count, lanes, end, held)

        if self.lanes == 1:
            return self.loop(start, stop, i64(1), carried, call(1, 1))
        size = copies * self.lanes
        middle = self._last_whole(start, stop, size)
        if whole is not None:
            carried = whole(middle, size, carried, call(copies, self.lanes))
        else:
            carried = self.loop(start, middle, i64(size), carried, call(copies, self.lanes))
        if fewer:
            size = fewer * self.lanes
            start, middle = middle, self._last_whole(middle, stop, size)
            carried = self.loop(start, middle, i64(size), carried, call(fewer, self.lanes))
        cheap = self.masks and (self.target.free_masks or not writes)
        if copies > 1 and not cheap:
            start, middle = middle, self._last_whole(middle, stop, self.lanes)
            carried = self.loop(start, middle, i64(self.lanes), carried, call(1, self.lanes))
        if self.masks:
            step = i64(tail * self.lanes)
            return self.loop(middle, stop, step, carried, call(tail, self.lanes, stop))
        return self.loop(middle, stop, i64(1), carried, call(1, 1))

    def _last_whole(self, start: Value, stop: Value, size: int) -> Value:
        """The end of the whole blocks of `size` elements (a power of two)."""
        builder = self.builder
        whole = builder.and_(builder.sub(stop, start), i64(-size))
        known = builder.select(builder.icmp_signed("<", stop, start), i64(0), whole)
        return builder.add(start, known)
