"""A process that has imported what servers and workers need, and waits to be told which it is.

`python -m gemel.kvstore.server.spare 5` says on socket 5 that it is ready, and reads from it the
command to run. This saves a restart the start of Python and the imports, which take most of its
time.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import socket
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from gemel import np
from gemel.kvstore.server.protocol import exactly

#: Modules that servers and workers would import sooner or later.
NEEDED = (
    *("asyncio", "numpy", "gemel.gluon", "gemel.kvstore.server.client"),
    *("gemel.kvstore.server.commands", "gemel.kvstore.server.server"),
)


def prepare() -> None:
    """Do what every server and worker does before its first step."""
    for name in NEEDED:
        import_module(name)
    # This imports the code generator and sets up LLVM for this machine.
    (np.ones((2,)) * 2 + 1).wait_to_read()


def receive(channel: socket.socket) -> dict[str, Any] | None:
    """Receive the command, with its output channel; None if the sender is gone."""
    try:
        size, numbers, *_ = socket.recv_fds(channel, 4, 1)
    except OSError:
        return None
    if len(size) < 4:
        return None
    for number in numbers:
        os.dup2(number, 1)
        os.close(number)
    try:
        found: dict[str, Any] = json.loads(exactly(channel, int.from_bytes(size, "big")))
    except OSError:
        return None
    return found


def become(command: list[str]) -> None:
    """Run a Python command as this process: a script, or a module after "-m"."""
    if command[0] == "-m":
        sys.argv = [command[1], *command[2:]]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    script = os.path.abspath(command[0])
    sys.argv = command
    sys.path[0] = os.path.dirname(script)  # was the folder Python was started in
    main = ModuleType("__main__")
    main.__file__ = script
    sys.modules["__main__"] = main
    with open(script, "rb") as source:
        program = source.read()
    exec(compile(program, script, "exec"), vars(main))


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        prepare()
        with contextlib.suppress(OSError):  # a command was sent early, and the socket closed
            given.send(b"r")
        order = receive(given)
    if order is not None:
        os.environ.update(order["environment"])
        become(order["command"][1:])
