"""Operations of the engine that end when an answer comes from the network.

An operation waits for a *token*: an array whose contents somebody else tells later, from any thread,
by meeting the engine's side (`gemel._core.Meeting`). No thread of the engine waits meanwhile, and
nothing else is held up.
"""

from __future__ import annotations

import threading
from typing import Any

from gemel import _core, config
from gemel.dtype import as_dtype


class Later:
    """A token that is there once `done` has been called, on any thread."""

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._done = False
        self._event: threading.Event | None = None
        if config.ENGINE.read() == "serial":
            self._event = threading.Event()  # there is no later: whoever needs it waits
            self.token = _one()
            return
        self._meeting = _core.Meeting(2, name)
        self.token = self._meeting.join(0, 2, _one())

    def done(self) -> None:
        """Let what waits for the token go on; the second call does nothing."""
        with self._lock:
            if self._done:
                return
            self._done = True
        if self._event is not None:
            self._event.set()
        else:
            self._meeting.join(1, 2, _one())

    def here(self) -> None:
        """Wait, where the engine does not: in serial mode."""
        if self._event is not None:
            self._event.wait()


def _one() -> Any:
    return _core.from_buffer(bytes(1), as_dtype("uint8").code, (1,))


__all__ = ["Later"]
