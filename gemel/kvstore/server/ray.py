"""A Ray cluster as a place for servers and workers: Ray places them and reports when one is gone.

Each process has an actor that starts and watches it. Ray is imported when it is needed (`pip
install gemel[ray]`). A restarted server has to be on its old node, which has its journal; if the
node is gone, the job ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Sequence
from typing import Any

from gemel import config
from gemel.errors import WorkersError
from gemel.kvstore.server.places import Process
from gemel.kvstore.server.processes import LocalProcess, start_process

#: The exit status of a process whose actor or node is gone.
GONE = -9
#: How many seconds Ray may take to place a process, and a cluster to take a connection.
PLACING = 60.0
REACHING = 10.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: How many times in a row an actor may leave a question without an answer, before it is gone, and
#: how many seconds each has.
UNANSWERED, PATIENCE = 3, 10.0


class RayPlace:
    """The cluster at RAY_ADDRESS, or a new one on this machine with room for `processes`.

    Each process takes one CPU of the cluster, as Ray counts them. Raises `WorkersError`.
    """

    def __init__(self, processes: int) -> None:
        try:
            import ray  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise WorkersError(
                "launch: --engine ray needs Ray: pip install 'gemel[ray]' (or leave it out to "
                "start processes on this machine)"
            ) from None
        self._ray = ray
        if not ray.is_initialized():
            _check_answers(os.environ.get("RAY_ADDRESS", ""))
            own = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": processes}
            try:
                ray.init(log_to_driver=True, include_dashboard=False, **own)
            except Exception as error:  # of several types: no cluster, another version, a port, ...
                where = os.environ.get("RAY_ADDRESS")
                what = (
                    f"join the cluster at RAY_ADDRESS={where}" if where else "start on this machine"
                )
                advice = _ADVICE if where else ""
                raise WorkersError(f"launch: Ray could not {what}: {error}{advice}") from None
        self._actor = ray.remote(Watcher)
        self._actors: dict[str, Any] = {}
        self._nodes: dict[str, tuple[str, str]] = {}

    def start(
        self, slot: str, command: Sequence[str], environment: dict[str, str], printed: bool
    ) -> Process:
        """Start a process by the actor of this name, or by a new actor if there is none."""
        actor = self._placed(slot)
        path = os.environ.get("PYTHONPATH", "")
        # Each process has one CPU, whatever else its machine has.
        threads = os.environ.get(config.WORKERS.name, "1")
        given = {
            config.WORKERS.name: threads,
            **environment,
            **({"PYTHONPATH": path} if path else {}),
        }
        try:
            self._ray.get(actor.start.remote(list(command), given, printed), timeout=60)
        except self._ray.exceptions.RayError as error:
            raise WorkersError(f"launch: Ray could not start {slot}: {error}") from None
        return RayProcess(self._ray, actor)

    def tend(self) -> None:
        """Do nothing: on a cluster processes are started when they are needed."""

    def address(self, slot: str) -> str:
        """The address of the process's present or future node."""
        self._placed(slot)
        return self._nodes[slot][1]

    def close(self) -> None:
        """End the actors, and with them their processes."""
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()

    def _placed(self, slot: str) -> Any:
        """A living actor for this slot, on the old node if it is a server."""
        actor = self._actors.get(slot)
        if actor is not None:
            try:
                self._ray.get(actor.node.remote(), timeout=UNANSWERED * PATIENCE)
                return actor
            except self._ray.exceptions.GetTimeoutError:
                self._ray.kill(actor)  # and its process, which would have a double
            except self._ray.exceptions.RayError:
                pass
        options: dict[str, Any] = {"num_cpus": 1, "max_restarts": 0}
        if slot in self._nodes and slot.startswith("server"):
            from ray.util.scheduling_strategies import (  # type: ignore[import-not-found, unused-ignore]
                NodeAffinitySchedulingStrategy,
            )

            node = self._nodes[slot][0]
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=False)
        actor = self._actor.options(**options).remote()
        try:
            self._nodes[slot] = self._ray.get(actor.node.remote(), timeout=PLACING)
        except self._ray.exceptions.RayError as error:
            raise WorkersError(f"launch: Ray has no free CPU for {slot}: {error}") from None
        self._actors[slot] = actor
        return actor


_ADVICE = (
    "; start a cluster there (ray start --head --port=6379 prints its address), or unset "
    "RAY_ADDRESS to start one on this machine"
)


def _check_answers(address: str) -> None:
    """Raise `WorkersError` if nobody takes a connection at this address within `REACHING` seconds;
    Ray itself tries for minutes. Names of Ray's own, such as "auto", are left to it."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    until, last = time.monotonic() + REACHING, "no answer"
    hosts = [host.strip("[]")]
    if hosts[0] in LOOPBACK:  # Ray takes this machine's other address, where it may listen only
        hosts.append(_own_address())
    while (left := until - time.monotonic()) > 0:
        for one in hosts:
            try:
                socket.create_connection((one, int(port)), left).close()
                return
            except (OSError, OverflowError) as error:
                last = str(error)
        time.sleep(min(0.5, max(0.0, until - time.monotonic())))
    raise WorkersError(
        f"launch: nobody answers at RAY_ADDRESS={address} within {REACHING:g} s: {last}{_ADVICE}"
    )


def _own_address() -> str:
    """The address from which this machine would reach others, as Ray finds it; nothing is sent."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.connect(("8.8.8.8", 80))
        found: str = channel.getsockname()[0]
        return found
    return "127.0.0.1"


class RayProcess:
    """A process that an actor started."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray = ray
        self._actor = actor
        #: How many polls in a row had no answer.
        self._unanswered = 0

    def _asked(self, method: Any, otherwise: Any, seconds: float = PATIENCE) -> Any:
        try:
            return self._ray.get(method, timeout=seconds)
        except self._ray.exceptions.RayError:
            return otherwise

    def poll(self) -> int | None:
        """Its exit status, or `GONE` if the actor is gone. An actor on a busy machine may be late:
        only several polls in a row without an answer mean that it is gone."""
        found: int | None
        try:
            found = self._ray.get(self._actor.poll.remote(), timeout=PATIENCE)
        except self._ray.exceptions.GetTimeoutError:
            self._unanswered += 1
            return GONE if self._unanswered >= UNANSWERED else None
        except self._ray.exceptions.RayError:
            return GONE
        self._unanswered = 0
        return found

    def kill(self) -> None:
        """End it at once."""
        self._asked(self._actor.kill.remote(), None)

    def line(self, seconds: float) -> str:
        """The next line it prints."""
        found: str = self._asked(self._actor.line.remote(seconds), "", seconds + 5)
        return found


class Watcher:
    """The actor: it starts a process, which ends when the actor ends."""

    def __init__(self) -> None:
        self._process: LocalProcess | None = None

    def node(self) -> tuple[str, str]:
        """The identifier and the address of the node."""
        import ray

        context = ray.get_runtime_context()
        return context.get_node_id(), ray.util.get_node_ip_address()

    def start(self, command: list[str], environment: dict[str, str], printed: bool) -> int:
        """Start a process; returns its number."""
        self._process = start_process(command, environment, printed)
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()

    def line(self, seconds: float) -> str:
        """The next line it prints."""
        return "" if self._process is None else self._process.line(seconds)


__all__ = ["RayPlace", "RayProcess", "Watcher"]
