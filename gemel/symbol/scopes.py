"""Context managers that give names and attributes to symbols: `Prefix`, `AttrScope`."""

from __future__ import annotations

import threading
from typing import Any

from gemel.errors import ArgumentError


class _Current(threading.local):
    """The blocks that a thread is in."""

    def __init__(self) -> None:
        self.names: list[NameManager] = []
        self.attributes: list[AttrScope] = []


_current = _Current()


class NameManager:
    """A block whose symbols without a name get one: ``fullyconnected0``, counted from 0."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def get(self, name: str | None, hint: str) -> str:
        """The name given, or a new one."""
        if name:
            return name
        number = self._counts.get(hint, 0)
        self._counts[hint] = number + 1
        return f"{hint}{number}"

    def __enter__(self) -> NameManager:
        _current.names.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.names.pop()


class Prefix(NameManager):
    """A block whose symbols' names, given ones included, begin with a prefix."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        """The name with the prefix."""
        return self._prefix + super().get(name, hint)


class AttrScope:
    """A block whose symbols get attributes, all of them text: ``AttrScope(__group__="4")``."""

    def __init__(self, **kwargs: str) -> None:
        for name, value in kwargs.items():
            if not isinstance(value, str):
                raise ArgumentError(f"AttrScope: {name} is {value!r}; attributes must be strings")
        self._attributes = kwargs

    def get(self, attr: dict[str, str] | None = None) -> dict[str, str]:
        """Those of this block, and those given before them."""
        return {**self._attributes, **(attr or {})}

    def __enter__(self) -> AttrScope:
        if _current.attributes:
            self._attributes = _current.attributes[-1].get(self._attributes)
        _current.attributes.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.attributes.pop()


#: The names outside of all blocks, which all threads share.
_outside = NameManager()


def named(name: str | None, hint: str) -> str:
    """The name of a node created here."""
    return (_current.names[-1] if _current.names else _outside).get(name, hint)


def attributed(attributes: Any) -> dict[str, str]:
    """The attributes of a node created here."""
    return _current.attributes[-1].get(attributes) if _current.attributes else attributes


__all__ = ["AttrScope", "NameManager", "Prefix"]
