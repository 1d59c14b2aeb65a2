"""Tracebacks without gemel's own frames: what remains is the program that made the mistake.

A program that ends, a thread that dies and a notebook show them so. What looks at exceptions itself
(tests, debuggers, `logging`) finds them whole, and so does everybody under GEMEL_TRACEBACK=full.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from types import TracebackType
from typing import Any

from gemel import config
from gemel.errors import GemelError

#: What gemel raises on purpose, and Ctrl-C, which may come while it waits.
MEANT = (GemelError, IndexError, KeyboardInterrupt)
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def shorten(error: BaseException | None) -> None:
    """Take gemel's frames out of what an exception, and those it came from, will show.

    An error that gemel did not raise on purpose may be a fault in it: its frames stay.
    """
    while error is not None:
        found = list(_places(error.__traceback__))
        outside = [place for place in found if not _is_ours(place)]
        meant = isinstance(error, MEANT) or found[-1:] == outside[-1:]
        if meant and outside:
            error.__traceback__ = _joined(outside)
        error = error.__cause__ or error.__context__


def _places(traceback: TracebackType | None) -> Any:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_ours(place: TracebackType) -> bool:
    return place.tb_frame.f_code.co_filename.startswith(PACKAGE)


def _joined(places: list[TracebackType]) -> TracebackType | None:
    """The places as a traceback of their own: the one a debugger was given stays as it is."""
    traceback = None
    for place in reversed(places):
        traceback = TracebackType(traceback, place.tb_frame, place.tb_lasti, place.tb_lineno)
    return traceback


def install() -> None:
    """Show exceptions that end the program shortened, by whatever has shown them until now."""
    if config.TRACEBACK.read() == "full":
        return
    shown_before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
        shorten(error)
        shown_before(kind, error, error.__traceback__)

    threads_before = threading.excepthook

    def show_in_thread(found: threading.ExceptHookArgs) -> None:
        error = found.exc_value
        shorten(error)
        traceback = None if error is None else error.__traceback__
        threads_before(threading.ExceptHookArgs((found[0], error, traceback, found[3])))

    sys.excepthook, threading.excepthook = show, show_in_thread


__all__ = ["install", "shorten"]


def warn(message: str) -> None:
    """A `UserWarning` at the program's line that led here, however deep in gemel that is."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
