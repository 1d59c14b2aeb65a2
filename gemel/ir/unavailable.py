"""Attributes that arrays have and symbols lack: the error says why, and what to do instead.

`attach_grad` is no such attribute: symbols have it, for the sake of functions that also run on
arrays.
"""

from __future__ import annotations

from typing import Any, NoReturn

from gemel import _core
from gemel.errors import GradientError, NotInTraceError, unknown_name

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

    backward = Unavailable(STEP)
    drop_grad = Unavailable(GRADIENT)
    grad = Unavailable(GRADIENT)
    zero_grad = Unavailable(GRADIENT)

    spec: Any

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Do nothing: any floating value in a trace may be a variable of `autograd.grad`.

        Gradients also flow on through it, as they do through an array computed while recording.
        """
        if grad_req not in ("write", "add"):
            raise unknown_name("grad_req in a hybridized function", grad_req, ("write", "add"))
        if not self.spec.dtype.is_inexact:
            raise GradientError(
                f"attach_grad: {self.spec} does not have a floating dtype; use astype('float32')"
            )


def name_symbol(error: AttributeError) -> None:
    """Say in Python's own error for an attribute that a symbol lacks what the symbol stands for."""
    symbol, name = error.obj, error.name
    if isinstance(symbol, InMemory) and not isinstance(error, NotInTraceError):
        spec = getattr(symbol, "spec", None)
        error.args = (f"{symbol!r}, which stands for an array ({spec}), has no attribute {name!r}",)


__all__ = ["InMemory", "Unavailable", "name_symbol"]
