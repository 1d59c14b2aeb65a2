"""Starting a job: its servers and workers are processes, which are watched and restarted.

`Launcher` knows nothing about processes or machines; a `Place` starts what it asks for:
`LocalPlace` on this machine, `ray.RayPlace` on a Ray cluster.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gemel.errors import WorkersError
from gemel.kvstore.server.places import Place, Process
from gemel.kvstore.server.processes import LocalPlace
from gemel.kvstore.server.ray import RayPlace
from gemel.kvstore.server.settings import Limits

#: Seconds between two checks of the processes, and for a server to print its port.
PAUSE = 0.02
START = 60.0


@dataclass(frozen=True)
class Job:
    """What to start: `program` with `arguments` as worker 0 to `workers` - 1, and the servers.

    A process that dies is restarted, each up to `restarts` times. `folder` has the servers'
    journals; by default it is a temporary one, which is removed when the job ends. `spares`
    processes of this machine, which have done their imports, wait to replace one that dies.
    """

    program: str
    arguments: tuple[str, ...] = ()
    servers: int = 1
    workers: int = 1
    rule: str = "replace"
    restarts: int = 3
    limits: Limits = field(default_factory=Limits)
    folder: Path | None = None
    spares: int = 0
    secret: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def __post_init__(self) -> None:
        if self.servers < 1 or self.workers < 1:
            raise WorkersError(
                f"launch: {self.servers} servers and {self.workers} workers; give --servers 1 and "
                "-n 1 or more"
            )
        if self.restarts < 0:
            raise WorkersError(
                f"launch: {self.restarts} restarts of each process; give --restarts 0 or more"
            )
        if self.spares < 0:
            raise WorkersError(f"launch: {self.spares} spare processes; give --spares 0 or more")


class Slot:
    """One of the job's processes, and how often it was restarted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: Process | None = None
        self.restarts = 0
        self.over = False


class Launcher:
    """Starts a job at a place and watches it; `say` is called with each event."""

    def __init__(self, job: Job, place: Place, say: Callable[[str], None] = print) -> None:
        self.job = job
        self.place = place
        self._say = say
        self._folder = job.folder or Path(tempfile.mkdtemp(prefix="gemel-servers-"))
        self._ports = [0] * job.servers
        self.servers = [Slot(f"server {number}") for number in range(job.servers)]
        self.workers = [Slot(f"worker {number}") for number in range(job.workers)]
        self.status = 0

    def run(self) -> int:
        """Run the job to its end; returns 0 if all workers ended well."""
        try:
            for slot in self.servers:
                self._serve(slot)
            for slot in self.servers:
                self._ports[_number(slot)] = self._port(slot)
            for slot in self.workers:
                self._work(slot)
            while not all(slot.over for slot in self.workers):
                self._look()
                self.place.tend()
                time.sleep(PAUSE)
            self._await_servers()
            return self.status
        finally:
            for slot in [*self.workers, *self.servers]:
                if slot.process is not None and slot.process.poll() is None:
                    slot.process.kill()
            self.place.close()
            if self.job.folder is None:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _await_servers(self) -> None:
        """Wait for the servers, which end by themselves when all workers have finished."""
        until = time.monotonic() + (2.0 if self.status == 0 else 0.0)
        while time.monotonic() < until:
            if all(
                slot.process is None or slot.process.poll() is not None for slot in self.servers
            ):
                return
            time.sleep(PAUSE)

    def _serve(self, slot: Slot) -> None:
        """Start or restart a server; a restart uses the old port and files, and does not wait."""
        number, job = _number(slot), self.job
        host = self.place.address(slot.name)
        command = ["{python}", "-m", "gemel", "serve", "--workers", str(job.workers)]
        command += ["--host", host, "--port", str(self._ports[number]), "--rule", job.rule]
        command += ["--folder", str(self._folder / f"server{number}"), "--announce"]
        command += ["--silent", str(job.limits.silent), "--replace", str(job.limits.replace)]
        slot.process = self.place.start(slot.name, command, self._environment(), True)

    @staticmethod
    def _port(slot: Slot) -> int:
        """The port that a server prints when it has just been started."""
        assert slot.process is not None
        said = slot.process.line(START)
        if not said.isdecimal():
            raise WorkersError(f"launch: {slot.name} did not start (its output says why): {said}")
        return int(said)

    def addresses(self, slot: Slot) -> list[tuple[str, int]]:
        """The addresses at which a worker finds the servers."""
        hosts = [self.place.address(server.name) for server in self.servers]
        return list(zip(hosts, self._ports, strict=True))

    def _work(self, slot: Slot) -> None:
        addresses = ",".join(f"{host}:{port}" for host, port in self.addresses(slot))
        environment = {
            **self._environment(),
            "GEMEL_SERVERS": addresses,
            "GEMEL_RANK": str(_number(slot)),
            "GEMEL_NUM_WORKERS": str(self.job.workers),
            "GEMEL_RESTARTS": str(slot.restarts),
            "GEMEL_WAIT_SECONDS": str(self.job.limits.wait),
            "GEMEL_REACH_SECONDS": str(self.job.limits.reach),
            "GEMEL_SILENT_SECONDS": str(self.job.limits.silent),
        }
        command = ["{python}", self.job.program, *self.job.arguments]
        slot.process = self.place.start(slot.name, command, environment, False)

    def _environment(self) -> dict[str, str]:
        return {"GEMEL_SECRET": self.job.secret}

    def _look(self) -> None:
        """Restart the processes that died, unless all servers have ended."""
        for slot in [*self.servers, *self.workers]:
            status = None if slot.over or slot.process is None else slot.process.poll()
            if status is None:
                continue
            if status == 0:
                slot.over = True
            elif all(server.over for server in self.servers):
                slot.over = True
                if self.job.rule == "leave_out":
                    self._say(f"launch: {slot.name} was left out, and the others have finished")
                    continue
                self.status = 1
                self._say(f"launch: {slot.name} ended with {status}, and all servers have ended")
            elif slot.restarts < self.job.restarts:
                slot.restarts += 1
                self._say(f"launch: {slot.name} ended with {status}; it is started again")
                (self._serve if slot in self.servers else self._work)(slot)
            else:
                slot.over = True
                self.status = 1
                self._say(f"launch: {slot.name} ended with {status}, {slot.restarts} restarts ago")


def _number(slot: Slot) -> int:
    return int(slot.name.split()[1])


def launch(job: Job, engine: str = "local") -> int:
    """Run a job by an engine: ``"local"`` or ``"ray"``. Raises `WorkersError`."""
    if engine == "ray":
        return Launcher(job, RayPlace(job.servers + job.workers)).run()
    return Launcher(job, LocalPlace(job.spares, job.workers)).run()


__all__ = ["Job", "Launcher", "LocalPlace", "Place", "Process", "Slot", "launch"]
