"""Loops as they stand, or in another way: whichever pays for the extents a kernel is given.

A kernel has both, and looks at its extents once.
"""

from __future__ import annotations

from gemel.codegen.access import Bases
from gemel.codegen.assembly import Module
from gemel.codegen.loops import Loops
from gemel.codegen.program import Program
from gemel.codegen.short_rows import ShortRows
from gemel.codegen.target import Target
from gemel.codegen.woven import Woven


def emit(program: Program, target: Target) -> Module:
    """The kernel of the schedules ``outer`` and ``inner``."""
    return Either(program, target).build()


class Either(Loops):
    """Loops as they stand, and another way where there is one. No program has both: rows are along
    the vector of the one, across that of the other."""

    def run(self, bases: Bases) -> None:
        way = ShortRows.of(self) or Woven.of(self)
        if way is None:
            super().run(bases)
            return
        with self.builder.if_else(way.pays()) as (pays, otherwise):
            with pays:
                way.walk(bases)
            with otherwise:
                super().run(bases)
