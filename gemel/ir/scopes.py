"""Which blocks a traced function runs, and what nodes are called after them.

Inside of ``net.hidden``, a `Dense` with the prefix ``hidden_``, the first product is called
``hidden_matmul0``, the next one ``hidden_matmul1``. Outside of all blocks it is ``matmul0``.
"""

from __future__ import annotations

from typing import Any


class Scopes:
    """The blocks that one trace has run, those it is in, and the names it has given."""

    __slots__ = ("blocks", "counts", "open")

    def __init__(self) -> None:
        #: The `structure.Internals` of blocks that were run, by id.
        self.blocks: dict[int, Any] = {}
        #: The blocks being run, outermost first.
        self.open: list[Any] = []
        #: How many nodes have each name so far.
        self.counts: dict[str, int] = {}

    def ran(self, block: Any) -> None:
        """Note that a block is run: the program is valid until the block's structure changes.

        A child needs no note, because its parent's structure includes it.
        """
        own = block._own
        outer = self.open[-1] if self.open else None
        if outer is None or all(parent() is not outer for parent in own.parents):
            self.blocks[id(own)] = own

    def named(self, hint: str) -> str:
        """A name for a new node: the prefix of the block being run, the hint, and a number."""
        name = f"{self.open[-1].prefix if self.open else ''}{hint}"
        return f"{name}{self.number(name)}"

    def number(self, name: str) -> int:
        """How many nodes have had this name so far: 0, then 1, ..."""
        number = self.counts.get(name, 0)
        self.counts[name] = number + 1
        return number


__all__ = ["Scopes"]
