"""Loops as they stand, or in another way: whichever pays for the extents a kernel is given.

A kernel has both, and looks at its extents once.
"""

from __future__ import annotations

from typing import Protocol

from gemel.codegen.access import Bases
from gemel.codegen.assembly import Module, Value
from gemel.codegen.loops import Loops
from gemel.codegen.program import Program
from gemel.codegen.target import Target
from gemel.codegen.turned import Turned
from gemel.codegen.woven import Woven


class Alternative(Protocol):
    """Another way to do all loops of a program."""

    @classmethod
    def of(cls, nest: Loops) -> Alternative | None:
        """It, for the program of `nest`, whose beginning is written; None where that has nothing
        for it."""

    def pays(self) -> Value:
        """Whether it takes less time than the loops as they stand."""
        raise NotImplementedError

    def walk(self, bases: Bases) -> None:
        """All loops."""


#: No program is one for several: rows are along the vector of the one, across that of the other.
ALTERNATIVES: tuple[type[Alternative], ...] = (Turned, Woven)


def emit(program: Program, target: Target) -> Module:
    """The kernel of the schedules ``outer`` and ``inner``."""
    return Either(program, target).build()


class Either(Loops):
    """Loops as they stand, and the alternative there is."""

    def run(self, bases: Bases) -> None:
        found = (way.of(self) for way in ALTERNATIVES)
        way = next(filter(None, found), None)
        if way is None:
            super().run(bases)
            return
        with self.builder.if_else(way.pays()) as (pays, otherwise):
            with pays:
                way.walk(bases)
            with otherwise:
                super().run(bases)
