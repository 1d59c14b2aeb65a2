"""The loop along the vector: whole vectors, and what remains of a row.

Whole groups of vectors come first. The rest is processed under masks or, where masks cost
something, in ever smaller parts, so that nothing past an operand's end is accessed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gemel.codegen.language.program import INDEX, OUTPUT, STRIDED, Program
from gemel.codegen.llvm.access import Bases, Site
from gemel.codegen.llvm.assembly import Value
from gemel.codegen.loops.frame import Body, Carried, Frame, i64
from gemel.codegen.target import Target

#: Pieces of vectors have a quarter of the lanes, but at least these.
PIECE = 4

#: Some vectors from an index on: how many, with how many lanes, and where they end if they may
#: reach past the end.
SomeVectors = Callable[[Value, int, int, "Value | None", Carried], Carried]
#: A loop over whole groups from 0: up to where, the size of a group, what is carried, and the body.
WholeLoop = Callable[[Value, int, Carried, Body], Carried]


class Rest(NamedTuple):
    """How the vectors are computed that fill no whole group.

    Groups of `fewer` vectors come first, unless that is 0; then single vectors, if the body
    `writes` and masks cost something. What then remains is computed `tail` vectors at a time under
    masks. With `pieces`, or on targets without masks, it is computed element by element, with
    `pieces` after some at a time.
    """

    tail: int = 1
    fewer: int = 0
    writes: bool = True
    pieces: bool = False


ORDINARY = Rest()


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
        rest: Rest = ORDINARY,
        whole: WholeLoop | None = None,
    ) -> Carried:
        """The loop along the vector: `body(index, copies, lanes, stop, carried)`.

        Whole groups of `copies` vectors come first, in the loop `whole` if there is one; then the
        rest.
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
        sizes = [rest.fewer * self.lanes] if rest.fewer else []
        if copies > 1 and not (self.masks and (self.target.free_masks or not rest.writes)):
            sizes.append(self.lanes)
        if rest.pieces and self.lanes > PIECE:
            sizes.append(max(PIECE, self.lanes // 4))
        for size in sizes:
            start, middle = middle, self._last_whole(middle, stop, size)
            step = call(max(1, size // self.lanes), min(size, self.lanes))
            carried = self.loop(start, middle, i64(size), carried, step)
        if self.masks and not rest.pieces:
            size = rest.tail * self.lanes
            return self.loop(middle, stop, i64(size), carried, call(rest.tail, self.lanes, stop))
        return self.loop(middle, stop, i64(1), carried, call(1, 1))

    def _last_whole(self, start: Value, stop: Value, size: int) -> Value:
        """The end of the whole blocks of `size` elements (a power of two)."""
        builder = self.builder
        whole = builder.and_(builder.sub(stop, start), i64(-size))
        known = builder.select(builder.icmp_signed("<", stop, start), i64(0), whole)
        return builder.add(start, known)
