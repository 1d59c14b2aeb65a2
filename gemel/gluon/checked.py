"""Attributes whose values are checked when they are set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel import init
from gemel.errors import UnknownNameError


class Checked:
    """An attribute of objects that have a name, which ``check(name, attribute, value)`` refuses
    what it cannot be. The value is where it would be without the check, also in pickles."""

    def __init__(self, check: Callable[[str, str, Any], None]) -> None:
        self._check = check

    def __set_name__(self, kind: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self
        try:
            return owner.__dict__[self._name]
        except KeyError:
            raise AttributeError(f"{kind.__name__!r} object has no {self._name!r} yet") from None

    def __set__(self, owner: Any, value: Any) -> None:
        self._check(f"parameter {owner.name}", self._name, value)
        owner.__dict__[self._name] = value


def check_initializer(name: str, what: str, value: Any) -> None:
    """Raise `UnknownNameError` for what names no initializer. A class is called when it is used."""
    if value is None or isinstance(value, type):
        return
    try:
        init.create(value)
    except UnknownNameError as error:
        error.args = (f"{name}: {what}: {error}",)
        raise


__all__ = ["Checked", "check_initializer"]
