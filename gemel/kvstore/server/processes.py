"""Processes of this machine, and spare ones that have already done the slow part of their start."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO

from gemel import config

#: Spares are made after this many seconds without a start, because other starts matter more.
REST = 1.0
SPARE = ("-m", "gemel.kvstore.server.spare")


class LocalProcess:
    """A child of this process, which the system kills when the thread that started it ends."""

    def __init__(self, child: subprocess.Popen[bytes], output: IO[bytes] | None) -> None:
        self._child = child
        self._output = output

    @property
    def pid(self) -> int:
        """The process number."""
        return self._child.pid

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._child.poll()

    def kill(self) -> None:
        """End it at once."""
        self._child.kill()
        self._child.wait()

    def line(self, seconds: float) -> str:
        """The next line it prints."""
        assert self._output is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            if not selector.select(seconds):
                return ""
        return self._output.readline().decode(errors="replace").strip()


def start_process(
    command: Sequence[str], environment: dict[str, str], printed: bool
) -> LocalProcess:
    """Start a command on this machine; "{python}" in it stands for this interpreter."""
    child = subprocess.Popen(
        [python(word) for word in command],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE if printed else None,
        preexec_fn=_tie,
    )
    return LocalProcess(child, child.stdout)


def _tie() -> None:
    """In a child: end when the thread that started it ends (prctl, PR_SET_PDEATHSIG)."""
    _LIBC.prctl(1, signal.SIGKILL)


_LIBC = ctypes.CDLL(None)


def python(word: str) -> str:
    """A word of a command, in which "{python}" is replaced by the interpreter."""
    return sys.executable if word == "{python}" else word


class Spare:
    """A process that has imported everything and waits for a command (`server/spare.py`).

    `inside` is the start of a command that runs it, for example to enter a namespace.
    """

    def __init__(
        self, inside: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self._channel, theirs = socket.socketpair()
        self._ready = False
        with theirs:
            number = theirs.fileno()
            self._child = subprocess.Popen(
                [*inside, sys.executable, *SPARE, str(number)],
                env={**os.environ, **(environment or {})},
                pass_fds=(number,),
                preexec_fn=_tie,
            )

    @property
    def ready(self) -> bool:
        """Whether all imports are done."""
        if not self._ready:
            with contextlib.suppress(BlockingIOError):
                self._ready = bool(self._channel.recv(1, socket.MSG_DONTWAIT))
        return self._ready

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._child.poll() is None

    def become(
        self, command: Sequence[str], environment: dict[str, str], printed: bool
    ) -> LocalProcess:
        """Make it run a Python command, once. Raises `OSError` if the process is gone."""
        given = json.dumps({"command": list(command), "environment": environment}).encode()
        with self._channel, contextlib.ExitStack() as ends:
            output, numbers = None, []
            if printed:
                near, far = os.pipe()
                output = os.fdopen(near, "rb")
                ends.callback(os.close, far)
                numbers = [far]
            socket.send_fds(self._channel, [len(given).to_bytes(4, "big")], numbers)
            self._channel.sendall(given)
        return LocalProcess(self._child, output)

    def close(self) -> None:
        """End it."""
        self._child.kill()
        self._child.wait()
        self._channel.close()


class LocalPlace:
    """Processes of this machine; `spares` idle ones are kept to replace those that die.

    If `workers` of them compute at the same time, each gets its part of the cores.
    """

    def __init__(self, spares: int = 0, workers: int = 0) -> None:
        self._wanted = spares
        #: Also that of spare processes, whose engine has started before they are told what to run.
        self._shared: dict[str, str] = {}
        if workers and config.WORKERS.name not in os.environ:
            self._shared[config.WORKERS.name] = str(config.threads_of_share(workers))
        self._spares: list[Spare] = []
        self._rest = 0.0

    def start(
        self, slot: str, command: Sequence[str], environment: dict[str, str], printed: bool
    ) -> LocalProcess:
        """Start a process, using a spare one if possible."""
        self._rest = time.monotonic() + REST
        while self._spares and command[0] == "{python}":
            # Even a spare that is not ready yet has started earlier than a new one.
            self._spares.sort(key=lambda spare: not spare.ready)
            spare = self._spares.pop(0)
            with contextlib.suppress(OSError):
                if spare.alive:
                    return spare.become(command, environment, printed)
            spare.close()
        return start_process(command, {**self._shared, **environment}, printed)

    def tend(self) -> None:
        """Start missing spare processes, one at a time."""
        waiting = self._spares and not self._spares[-1].ready
        if len(self._spares) < self._wanted and not waiting and time.monotonic() > self._rest:
            self._spares.append(Spare(environment=self._shared))

    @property
    def ready(self) -> bool:
        """Whether as many spare processes as wanted wait for a command."""
        return len(self._spares) == self._wanted and all(spare.ready for spare in self._spares)

    def address(self, slot: str) -> str:
        """The address of this machine."""
        return "127.0.0.1"

    def close(self) -> None:
        """End the spare processes."""
        while self._spares:
            self._spares.pop().close()


__all__ = ["LocalPlace", "LocalProcess", "Spare", "start_process"]
