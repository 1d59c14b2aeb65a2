"""Which attributes of blocks traced functions read.

A program depends on the attributes that its function read, and another value of those makes it
invalid. Python tells a class of reads only if it has `__getattribute__`, which makes every read
slow. So the class has it only while a function is traced, and only once some object's attributes
change: until then every attribute counts as read.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from gemel.ir.current import current_trace

_METHOD = "__getattribute__"


class NotesReads:
    """Base class of objects with `_own.read`: a set of names, or None if reads are not noted."""

    __slots__ = ()


def _get_and_note(of: NotesReads, name: str) -> Any:
    get = super(NotesReads, of).__getattribute__
    if current_trace() is not None:
        try:
            read = get("_own").read
        except AttributeError:  # before `__init__`
            read = None
        if read is not None:
            read.add(name)
    return get(name)


class Noting:
    """A `with` block in which a function is traced, so that objects note what is read of them."""

    def __init__(self) -> None:
        #: Whether any object notes what is read of it.
        self.wanted = False
        self._lock = Lock()
        self._blocks = 0

    def __enter__(self) -> None:
        with self._lock:
            self._blocks += 1
            if self.wanted and _METHOD not in vars(NotesReads):
                setattr(NotesReads, _METHOD, _get_and_note)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._blocks -= 1
            if self._blocks == 0 and _METHOD in vars(NotesReads):
                delattr(NotesReads, _METHOD)


noting = Noting()

__all__ = ["NotesReads", "noting"]
