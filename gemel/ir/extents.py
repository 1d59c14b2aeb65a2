"""The sizes that a traced program leaves free, and what the trace has asked of them.

A free extent answers as the number of this call would, and each answer becomes a guard: the program
is valid for all calls whose sizes give the same answers::

    >>> extents = Extents()
    >>> n = extents.free("n0_0", 5)     # an axis of an argument that is 5 long in this call
    >>> 2 * n > 4, extents.guards
    (True, [4 < 2 * n0_0])
"""

from __future__ import annotations

from collections.abc import Iterable

from gemel.extent import Dim, Guard, Guards, evaluate


class Extents:
    """The free extents of one trace and the guards on them; no free extent is below `least`."""

    __slots__ = ("dims", "guards", "least")

    def __init__(self, least: int = 2, guards: Guards | None = None) -> None:
        self.least = least
        self.guards = Guards(tracing=True) if guards is None else guards
        #: The free extents by name.
        self.dims: dict[str, int] = {}

    def free(self, name: str, value: int) -> Dim:
        """A free extent called `name`, now `value`."""
        extent = self.dims[name] = Dim(value, name, self.guards, self.least)
        return extent

    def unified(self, guards: Iterable[Guard]) -> tuple[dict[str, int], list[Guard]]:
        """The free extents by name, and the guards on them. Of extents that guards found equal, one
        replaces the others (or a number does), and the other guards are rewritten accordingly."""
        dims, others = self.dims, []
        for traced in guards:
            guard = traced if dims is self.dims else traced.of(dims)
            name, other = guard.equates() if guard else ("", 0)
            if name:
                sizes = {**self.dims, name: other}
                dims = {known: evaluate(size, sizes) for known, size in dims.items()}
            else:
                others.append(traced)
        rewritten = [traced.of(dims) for traced in others]
        return dims, [guard for guard in rewritten if guard]


__all__ = ["Extents"]
