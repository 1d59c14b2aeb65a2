"""Attributes that arrays have and symbols lack: the error says why, and what to do instead."""

from __future__ import annotations

from typing import Any, NoReturn

from gemel import _core
from gemel.errors import NotInTraceError

MEMORY = (
    "is of an array in memory, which a symbol stands for only when the program runs; "
    "use it outside of the hybridized function"
)
GRADIENT = (
    "is of arrays that calls are recorded for, and a symbol is none; call attach_grad() and "
    "backward() on what the hybridized function takes and returns, or use autograd.grad in it"
)
STEP = f"{GRADIENT}; Trainer.compile(forward) makes a program of a whole training step"


class Unavailable:
    """A descriptor for an attribute that does not exist, with the reason.

    There is one for each name, because a `__getattr__` would slow down all other attributes.
    """

    __slots__ = ("name", "reason")

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else self._refuse(instance)

    def __set__(self, instance: Any, value: Any) -> None:
        self._refuse(instance)

    def _refuse(self, instance: Any) -> NoReturn:
        line = _core.program_line()
        place = f" at {line}" if line else ""
        shown = f"{instance!r} ({instance.spec})"
        raise NotInTraceError(f"{self.name}{place} of {shown} {self.reason}")


class InMemory:
    """The attributes that only arrays have."""

    __slots__ = ()

    base = Unavailable(MEMORY)
    flags = Unavailable(MEMORY)
    offset = Unavailable(MEMORY)
    strides = Unavailable(MEMORY)
    tobytes = Unavailable(MEMORY)
    tofile = Unavailable(MEMORY)
    version = Unavailable(MEMORY)
    wait_to_read = Unavailable(MEMORY)

    attach_grad = Unavailable(GRADIENT)
    backward = Unavailable(STEP)
    drop_grad = Unavailable(GRADIENT)
    grad = Unavailable(GRADIENT)
    zero_grad = Unavailable(GRADIENT)


def name_symbol(error: AttributeError) -> None:
    """Say in Python's own error for an attribute that a symbol lacks what the symbol stands for."""
    symbol, name = error.obj, error.name
    if isinstance(symbol, InMemory) and not isinstance(error, NotInTraceError):
        spec = getattr(symbol, "spec", None)
        error.args = (f"{symbol!r}, which stands for an array ({spec}), has no attribute {name!r}",)


__all__ = ["InMemory", "Unavailable", "name_symbol"]
