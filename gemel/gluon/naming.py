"""Names of blocks: the class's name and a number, after the prefix of the enclosing scope."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemel.gluon.block import Block

#: How many blocks of each kind were named outside any scope.
_counts: dict[str, int] = {}


class _Scopes(threading.local):
    """The scopes that this thread has entered."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []


_scopes = _Scopes()


class NameScope:
    """A scope in which new blocks get names that begin with its block's prefix."""

    def __init__(self, block: Block) -> None:
        self._block = block

    def __enter__(self) -> Block:
        _scopes.blocks.append(self._block)
        return self._block

    def __exit__(self, *error: object) -> None:
        _scopes.blocks.pop()


def current_scope() -> Block | None:
    """The block whose scope this thread is in."""
    return _scopes.blocks[-1] if _scopes.blocks else None


def new_prefix(given: str | None, hint: str) -> str:
    """The prefix of a new block: the given one, or one made from its class's name, after the
    scope's."""
    scope = current_scope()
    if given is None:
        counts = _counts if scope is None else scope._own.names
        number = counts.get(hint, 0)
        counts[hint] = number + 1
        given = f"{hint}{number}_"
    return given if scope is None else scope.prefix + given
