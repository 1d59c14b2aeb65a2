"""Runs small programs in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

#: The beginning of every program.
HEAD = """
import json
import sys
import warnings

def tell(**what):
    # One write: an interrupt must not come between a line and its end.
    sys.stdout.write(json.dumps(what) + "\\n")
    sys.stdout.flush()
"""

#: The sanitizer the core was built with (tools/sanitize.py); empty otherwise.
SANITIZER = os.environ.get("SANITIZER", "")
#: How often the slow tests repeat what other tests do a few times: `make edges TIMES=1000`.
TIMES = int(os.environ.get("TIMES", "200"))
#: The factor by which time limits are extended: the sanitizers slow everything down.
PATIENCE = {"": 1, "address": 3, "thread": 5}[SANITIZER]
#: An operation that never ends on any machine, and that takes no memory.
ENDLESS = "np.broadcast_to(np.ones((1, 1)), (1 << 22, 1 << 22)).sum()"
#: A program with a thread in the middle of an import that a compilation or `asnumpy` needs.
IMPORTING = """
import atexit, os, signal, sys, threading, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == SLOW:
            entered.set()
            time.sleep(0.5)
        return None

entered = threading.Event()
sys.meta_path.insert(0, Slow())
# Hooks run last in, first out: this one after gemel's.
atexit.register(lambda: tell(imported=SLOW in sys.modules))
import gemel
from gemel import np
def work():
    np.exp(np.ones((4,))).asnumpy()
threading.Thread(target=work, daemon=True).start()
assert entered.wait(60)
"""


def surroundings(environment: dict[str, str | None]) -> dict[str, str]:
    """This process's environment with changes; variables set to None are removed."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    for name, value in environment.items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    return variables


def start(program: str, **environment: str | None) -> subprocess.Popen[str]:
    """Start a program; variables set to None are removed from its environment."""
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + textwrap.dedent(program)],
        env=surroundings(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], seconds: float = 600) -> dict[str, Any]:
    """What a finished program reported with `tell`, and its error output under "stderr"."""
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, f"exit code {process.returncode}\n{out}\n{errors}"
    return {"stderr": errors, **told(out)}


def told(output: str) -> dict[str, Any]:
    """What a program reported with `tell`, from its output."""
    found: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith("{"):
            found.update(json.loads(line))
    return found


def run(program: str, **environment: str | None) -> dict[str, Any]:
    """Run a program to its end and return what it reported with `tell`."""
    return finish(start(program, **environment))


class Ended(NamedTuple):
    """How a program ended."""

    #: The exit status; minus the signal's number if one ended it; None if it was still running.
    code: int | None
    text: str
    #: Seconds from the last output to the end of the program.
    after: float

    @property
    def told(self) -> dict[str, Any]:
        """What the program reported with `tell`."""
        return told(self.text)


def end(
    program: str, seconds: float = 120, interrupt: bool = False, **environment: str | None
) -> Ended:
    """Run a program that may hang or die, and say how it ended.

    After `seconds` the program and its children are killed. With `interrupt`, SIGINT is sent as
    soon as it has printed something.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", HEAD + textwrap.dedent(program)],
            env=surroundings(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        limit = time.monotonic() + seconds * PATIENCE
        last = time.monotonic()
        size = 0
        while process.poll() is None and time.monotonic() < limit:
            time.sleep(0.005)
            grown = os.fstat(output.fileno()).st_size
            if grown != size:
                size, last = grown, time.monotonic()
                if interrupt:
                    interrupt = False
                    process.send_signal(signal.SIGINT)
        code, now = process.returncode, time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    return Ended(code, text, now - last)


class Shell:
    """The part of IPython's shell that `notebook.install` needs. Cell 7 is in /tmp/cell.py."""

    def __init__(self) -> None:
        self.events = self.compile = self
        self.callbacks: list[Any] = []
        self.custom_exceptions: tuple[Any, ...] = ()
        self.shown: list[Any] = []

    def register(self, event: str, function: Any) -> None:
        assert event == "post_run_cell"
        self.callbacks.append(function)

    def set_custom_exc(self, kinds: Any, handler: Any) -> None:
        self.custom_exceptions, self.handler = kinds, handler

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        return ("Cell", "In[7]") if name == "/tmp/cell.py" else None

    def showtraceback(self, found: Any, tb_offset: Any = None) -> None:
        self.shown.append((found, tb_offset))


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep `count` processes computing while the block runs."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
