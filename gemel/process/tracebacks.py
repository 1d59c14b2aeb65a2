"""Tracebacks without gemel's own frames: what remains is the program that made the mistake.

This applies to programs that end, threads that die and notebooks. Code that looks at exceptions
itself (tests, debuggers, `logging`) gets them whole, and GEMEL_TRACEBACK=full shows all frames.
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

#: Errors that gemel raises on purpose, and Ctrl-C, which may come while it waits.
MEANT = (GemelError, IndexError, KeyboardInterrupt)
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def shorten(error: BaseException | None) -> None:
    """Remove gemel's frames from the traceback of an exception, and of those that it came from.

    An error that gemel did not raise on purpose may be a bug in gemel, so its frames stay.
    """
    while error is not None:
        found = list(_places(error.__traceback__))
        outside = [place for place in found if not _is_ours(place)]
        meant = isinstance(error, MEANT) or found[-1:] == outside[-1:]
        if meant:
            error.__traceback__ = _joined(outside)
        error = error.__cause__ or error.__context__


def _places(traceback: TracebackType | None) -> Any:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_ours(place: TracebackType) -> bool:
    """Whether a frame is gemel's, or that of `python -m`, which comes before a program's first
    line."""
    frame = place.tb_frame
    named = frame.f_globals.get("__name__")
    return named == "runpy" or frame.f_code.co_filename.startswith(PACKAGE)


def _joined(places: list[TracebackType]) -> TracebackType | None:
    """The places as a new traceback: one that a debugger was given stays as it is."""
    traceback = None
    for place in reversed(places):
        traceback = TracebackType(traceback, place.tb_frame, place.tb_lasti, place.tb_lineno)
    return traceback


def install() -> None:
    """Shorten exceptions that end the program; whatever showed them before still shows them.

    A wrong value of GEMEL_TRACEBACK is for `config.check` to report.
    """
    if os.environ.get(config.TRACEBACK.name) == "full":
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
    """Issue a `UserWarning` at the line of the program that led here, however deep inside gemel."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
