"""`python -m gemel serve` and `python -m gemel launch --servers`: the command line."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gemel.errors import GemelError, MissingFileError, WorldError
from gemel.kvstore.server.launch import Job, launch
from gemel.kvstore.server.server import serve
from gemel.kvstore.server.settings import RULES, Limits, ServerSettings
from gemel.process.signals import ending_signals

#: Exit status of a server or job that could not start.
REFUSED = 2


class _ForServers(argparse.Action):
    """Stores an option's value, and that it was given."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        namespace.for_servers = option_string


def serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `serve`."""
    parser.add_argument("--workers", type=int, required=True, help="number of workers")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port", type=int, default=9700, help="port to listen on; 0: any free one (%(default)s)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="folder of the journal (default: no journal, nothing survives the process)",
    )
    parser.add_argument(
        "--durable", action="store_true", help="flush the journal to disk at each push"
    )
    parser.add_argument(
        "--log-bytes",
        type=int,
        default=256 << 20,
        help="bytes of journal after which a snapshot is written (%(default)s)",
    )
    parser.add_argument("--announce", action="store_true", help="print only the port")
    _rule_arguments(parser.add_argument)


def launch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `launch` for a job with servers. `for_servers` is then the option that
    was given and makes no sense without any."""
    parser.set_defaults(for_servers=None)
    parser.add_argument(
        "--servers", type=int, default=0, help="number of parameter servers to start (none)"
    )
    group = parser.add_argument_group("with --servers")
    group.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="what starts the processes (%(default)s)",
    )
    add = partial(group.add_argument, action=_ForServers)
    add("--restarts", type=int, default=3, help="restarts allowed for each process (%(default)s)")
    add(
        "--spares",
        type=int,
        default=2,
        help="spare processes kept ready for restarts (%(default)s)",
    )
    add("--folder", type=Path, help="folder of the servers' journals (default: a temporary one)")
    add(
        "--wait",
        type=float,
        default=Limits.wait,
        help="seconds that workers wait for an answer (%(default)s)",
    )
    add(
        "--reach",
        type=float,
        default=Limits.reach,
        help="seconds after which an unreachable server counts as lost (%(default)s)",
    )
    _rule_arguments(add)


def _rule_arguments(add: Callable[..., object]) -> None:
    add(
        "--rule",
        choices=RULES,
        default=RULES[0],
        help="what happens when a worker dies (%(default)s)",
    )
    add(
        "--silent",
        type=float,
        default=Limits.silent,
        help="seconds of silence after which a worker counts as dead (%(default)s)",
    )
    add(
        "--replace",
        type=float,
        default=Limits.replace,
        help="seconds in which a dead worker must be replaced (%(default)s)",
    )


def run_serve(given: argparse.Namespace) -> int:
    """Serve until the job ends; returns the exit status."""

    def ready(port: int) -> None:
        print(port if given.announce else f"serving on {given.host}:{port}", flush=True)

    secret = os.environ.get("GEMEL_SECRET", "")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        if not secret:
            raise WorldError(
                "serve: GEMEL_SECRET is not set; set it to the same value for all servers and "
                f"workers of a job, for example {secrets.token_hex(16)}"
            )
        settings = ServerSettings(
            given.workers,
            secret.encode(),
            given.host,
            given.port,
            given.folder,
            given.rule,
            Limits(given.silent, given.replace),
            given.log_bytes,
            given.durable,
        )
        serve(settings, ready)
    except GemelError as error:
        print(f"gemel serve: {type(error).__name__}: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return 130
    return 0


def run_launch(given: argparse.Namespace, program: str, arguments: list[str]) -> int:
    """Start a job with servers and watch it; returns the exit status."""
    try:
        if given.hosts:
            raise WorldError(
                "launch: --hosts is for workers over MPI; with --servers use --engine ray, or "
                "start `gemel serve` on the machines yourself (docs/parameter-server.md)"
            )
        if given.timeout is not None:
            raise WorldError(
                f"launch: --timeout {given.timeout:g} is for workers over MPI; with --servers, "
                "--wait is how long workers wait for an answer"
            )
        if given.engine == "local" and not Path(program).is_file():
            raise MissingFileError(f"launch: there is no file {program}")
        job = Job(
            program,
            tuple(arguments),
            given.servers,
            1 if given.workers is None else given.workers,
            given.rule,
            given.restarts,
            Limits(given.silent, given.replace, given.wait, given.reach),
            given.folder,
            given.spares,
        )
        for one in ending_signals():
            signal.signal(one, lambda number, frame: sys.exit(128 + number))
        return launch(job, given.engine)
    except GemelError as error:
        print(f"gemel launch: {type(error).__name__}: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return 130


__all__ = ["launch_arguments", "run_launch", "run_serve", "serve_arguments"]
