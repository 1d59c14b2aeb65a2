"""Starts the workers of a job: `python -m gemel launch -n 4 train.py`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

from gemel import config
from gemel.errors import MissingFileError, WorkersError
from gemel.process.signals import ending_signals

#: Programs that start processes, by preference: next to this Python, then on the path.
STARTERS = ("mpiexec", "mpirun")
#: Beginnings of the names of the environment variables that workers elsewhere receive.
PASSED = ("GEMEL_", "MXNET_", "PYTHON", "OMP_")
#: A shell program that runs a command; worker 0 of Open MPI reads a named pipe.
READING = '[ "$OMPI_COMM_WORLD_RANK" = 0 ] && exec "$@" <"$0"; exec "$@"'


def launch(
    script: str, arguments: Sequence[str], workers: int, hosts: Sequence[str], timeout: float | None
) -> int:
    """Run `script` in `workers` processes of one MPI job on these hosts; returns the exit status.

    The hosts take turns; without any, all run on this machine. `timeout` is how many seconds the
    workers wait for each other (``GEMEL_WORKERS_TIMEOUT``). Worker 0 gets the standard input.
    Raises `WorkersError` if there is no MPI, and `MissingFileError`.
    """
    if workers < 1:
        raise WorkersError(f"launch: {workers} workers; give -n 1 or more")
    if timeout is not None and not timeout > 0:
        raise WorkersError(f"launch: --timeout is {timeout} s; it must be more than 0")
    if not Path(script).is_file():
        raise MissingFileError(f"launch: there is no file {script}")
    starter = _starter()
    places = [hosts[rank % len(hosts)] for rank in range(workers)] if hosts else []
    here = workers if not hosts else max(map(places.count, places))
    environment = _environment(here, timeout)
    open_mpi = _is_open_mpi(starter)
    options = _options(open_mpi, workers, places, environment)
    program = [sys.executable, script, *arguments]
    source = None
    with ExitStack() as opened:
        if open_mpi and not hosts and not os.isatty(0):
            pipe = opened.enter_context(_input())
            program, source = ["/bin/sh", "-c", READING, str(pipe), *program], subprocess.DEVNULL
        command = [starter, *options, *program]
        job = opened.enter_context(subprocess.Popen(command, env=environment, stdin=source))
        opened.enter_context(_passing_on(job))
        while True:
            try:
                status = job.wait()
                break
            except KeyboardInterrupt:  # the starter received it too, and ends the workers
                continue
    if status != 0:
        print(f"gemel launch: the job of {workers} workers {_ending(status)}", file=sys.stderr)
    return status if status >= 0 else 128 - status


@contextmanager
def _passing_on(job: subprocess.Popen[bytes]) -> Iterator[None]:
    """A block of code in which SIGTERM and SIGHUP end the job: the starter ends its workers, which
    would go on without it. A signal that is ignored, as SIGHUP by nohup, stays so."""

    def pass_on(number: int, frame: object) -> None:
        job.send_signal(number)

    before = {one: signal.signal(one, pass_on) for one in ending_signals()}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def _input() -> Iterator[Path]:
    """A named pipe with this process's standard input. Open MPI 5 passes that on as well, but not
    its end, so a worker that reads all of it would wait forever."""

    def fill() -> None:
        with suppress(OSError), open(pipe, "wb") as target:
            while content := os.read(0, 65536):
                target.write(content)
                target.flush()

    with tempfile.TemporaryDirectory(prefix="gemel-launch-") as folder:
        pipe = Path(folder) / "input"
        os.mkfifo(pipe)
        Thread(target=fill, daemon=True).start()
        try:
            yield pipe
        finally:  # if no worker has opened the pipe, the thread still waits for a reader
            os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))


def _starter() -> str:
    """The program that starts the processes of an MPI job."""
    if find_spec("mpi4py") is None:
        raise WorkersError("launch needs mpi4py and MPI: pip install 'gemel[mpi]'")
    folder = str(Path(sys.executable).parent)
    found = (shutil.which(name, path=path) for path in (folder, None) for name in STARTERS)
    starter = next((path for path in found if path), None)
    if starter is None:
        raise WorkersError(
            f"launch: found no {' or '.join(STARTERS)} next to {sys.executable} or on the PATH; "
            "install an MPI: pip install 'gemel[mpi]', or your system's package"
        )
    return starter


def _environment(workers: int, timeout: float | None) -> dict[str, str]:
    """The workers' environment; `workers` share a machine, so each gets its part of the cores."""
    found = dict(os.environ)
    found.setdefault(config.WORKERS.name, str(config.threads_of_share(workers)))
    # A worker that waits in MPI leaves the core to those that compute.
    found.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    if timeout is not None:
        found["GEMEL_WORKERS_TIMEOUT"] = str(timeout)
    return found


def _is_open_mpi(starter: str) -> bool:
    """Whether a starter is Open MPI's; otherwise it is one of the MPICH family."""
    said = subprocess.run([starter, "--version"], capture_output=True, text=True).stdout
    return "Open MPI" in said or "OpenRTE" in said


def _options(
    open_mpi: bool, workers: int, places: Sequence[str], environment: Mapping[str, str]
) -> list[str]:
    """The options of the starter, which differ between Open MPI and the MPICH family."""
    options = ["-n", str(workers)]
    if not open_mpi:
        return [*options, "-hosts", ",".join(places)] if places else options
    # Allow more workers than cores, and tie none to a core: each has several threads.
    options += ["--oversubscribe", "--bind-to", "none"]
    if getattr(os, "geteuid", lambda: 1)() == 0:
        options.append("--allow-run-as-root")
    if places:
        slots = [f"{host}:{places.count(host)}" for host in dict.fromkeys(places)]
        options += ["--host", ",".join(slots)]
        for name in environment:
            if name.startswith(PASSED):
                options += ["-x", name]
    return options


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"


__all__ = ["launch"]
