"""Loops as they stand, or another way to run them, whichever pays for the kernel's extents.

The kernel contains all ways and chooses by its extents at run time.
"""

from __future__ import annotations

from collections.abc import Sequence

from gemel.codegen.language.program import Program
from gemel.codegen.llvm.access import Bases
from gemel.codegen.llvm.assembly import Module
from gemel.codegen.loops.plain import Loops
from gemel.codegen.loops.rolling import Rolling
from gemel.codegen.loops.short_rows import ShortRows
from gemel.codegen.loops.sliding import Sliding
from gemel.codegen.loops.strips import Strips
from gemel.codegen.loops.woven import Woven
from gemel.codegen.target import Target


def emit(program: Program, target: Target) -> Module:
    """The kernel of the schedules ``outer`` and ``inner``."""
    return Either(program, target).build()


class Either(Loops):
    """Plain loops, together with the other ways that suit the program."""

    def run(self, bases: Bases) -> None:
        rolling = Rolling.of(self)
        if rolling is not None:
            rolling.run(bases)
            return
        ways = [ShortRows.of(self), Woven.of(self), Sliding.of(self), Strips.of(self)]
        self.by_strips = isinstance(ways[-1], Strips)
        self._first_that_pays([way for way in ways if way], bases)

    def _first_that_pays(
        self, ways: Sequence[ShortRows | Woven | Sliding | Strips], bases: Bases
    ) -> None:
        if not ways:
            super().run(bases)
            return
        with self.builder.if_else(ways[0].pays()) as (pays, otherwise):
            with pays:
                ways[0].run(bases)
            with otherwise:
                self._first_that_pays(ways[1:], bases)
