"""What a launcher asks of the place where it starts processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Process(Protocol):
    """A process somewhere."""

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""

    def kill(self) -> None:
        """End it at once."""

    def line(self, seconds: float) -> str:
        """The next line it prints; an empty text if it ends or the time is over."""


class Place(Protocol):
    """Where processes are started."""

    def start(
        self, slot: str, command: Sequence[str], environment: dict[str, str], printed: bool
    ) -> Process:
        """Start a command; `slot` is its name, "server 0", and replaces an older process of that
        name.

        If `printed`, its output is read by `line`; otherwise its output goes to the launcher's.
        """

    def tend(self) -> None:
        """Prepare for restarts; this is called again and again and must not wait."""

    def address(self, slot: str) -> str:
        """The host at which others reach the process."""

    def close(self) -> None:
        """Release everything."""


__all__ = ["Place", "Process"]
