"""Sums the gradients of simulated GPUs, at the speed of the links of a topology.

A sum is an engine operation that a thread completes. The thread runs the schedule that the planner
chose for the size, and moves its bytes at the rates of the links (`gemel.topology.moving`). As in a
communication library, sums run one after the other; of those whose gradients are ready, the one
with the highest priority goes first. The schedule depends only on the topology and the size, so all
runs give the same bits.
"""

from __future__ import annotations

import atexit
import heapq
import os
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gemel import _core
from gemel.device import Device
from gemel.runtime.callback import as_twin

if TYPE_CHECKING:
    from gemel.links import Topology
    from gemel.topology import Planner, Schedule

#: Seconds between two checks whether there is work.
PAUSE = 0.5


class _Sum(NamedTuple):
    """The attributes of a sum, besides its arrays."""

    route: _Route
    dtype: str
    shape: tuple[int, ...]
    priority: int


class _Route:
    """The links between some of the GPUs, with the planner and the mover for them."""

    def __init__(self, links: Topology, hosted: bool) -> None:
        from gemel import topology  # it needs NumPy
        from gemel.topology.moving import Mover

        chosen = [topology.cpu(links)] if hosted and links.hosts else None
        self.planner: Planner = topology.Planner(links, chosen)
        self.mover = Mover(links)

    def schedule(self, nbytes: int) -> Schedule:
        """The schedule for a sum of this many bytes."""
        return self.planner.choose(nbytes).schedule


class Traffic:
    """Sums over a topology: `hosted` ones at its first host, the others by a schedule."""

    def __init__(self, links: Topology, hosted: bool) -> None:
        self.links = links
        self.process = os.getpid()
        self._hosted = hosted
        self._routes: dict[tuple[int, ...], _Route] = {}
        self._work = _Work()
        weakref.finalize(self, _Work.close, self._work)

    def sums(self, name: str, values: Sequence[Any], priority: int) -> list[Any]:
        """Issue the sum of arrays on different GPUs: one result on each, in the order of
        `values`."""
        ranked = sorted(values, key=lambda value: int(value.device.code))
        given = [as_twin(value) for value in ranked]
        route = self._route([value.device for value in given])
        nbytes = int(given[0].nbytes)
        spec = given[0]._code, tuple(given[0].shape)
        asked = _Sum(route, given[0].dtype.name, spec[1], priority)
        title = f"sum of {name} by the schedule {route.schedule(nbytes).name}"
        hosts = [_copied(value, f"{name} sets out", spec, 0) for value in given]
        found = self._work.issue(title, hosts, [spec] * len(hosts), asked)
        arrived = {
            value.device: _copied(host, f"{name} arrives", spec, value.device.code)
            for value, host in zip(ranked, found, strict=True)
        }
        kind = values[0].dtype
        return [arrived[value.device].astype(kind, copy=False) for value in values]

    def carried(self) -> dict[tuple[str, str], float]:
        """The bytes that each link has carried so far, by its ends."""
        found: dict[tuple[str, str], float] = {}
        for route in self._routes.values():
            for ends, nbytes in list(route.mover.carried.items()):
                found[ends] = found.get(ends, 0.0) + nbytes
        return found

    def _route(self, devices: Sequence[Device]) -> _Route:
        numbers = tuple(device.device_id for device in devices)
        found = self._routes.get(numbers)
        if found is None:
            gpus = self.links.gpus
            some = self.links.only([gpus[number] for number in numbers])
            found = self._routes[numbers] = _Route(some, self._hosted)
        return found


class _Work:
    """The thread that runs the issued sums, and its state."""

    def __init__(self) -> None:
        self._desk = _core.Desk()
        self._lock = threading.Lock()
        self._asked: dict[int, _Sum] = {}
        self._count = 0
        self._process = os.getpid()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def issue(self, name: str, arrays: Sequence[Any], specs: Any, asked: _Sum) -> tuple[Any, ...]:
        """Issue a sum. Returns the arrays of its results."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="traffic")
                self._thread.start()
                atexit.register(self._finish)
            self._count += 1
            number = self._count
            self._asked[number] = asked
        return self._desk.issue(number, name, arrays, specs)

    def close(self) -> None:
        """Let the thread end when all issued sums have arrived."""
        self._closed.set()

    def _finish(self) -> None:
        """At exit, wait for the sums in progress."""
        self.close()
        if self._thread is not None and os.getpid() == self._process:
            self._thread.join()

    def _run(self) -> None:
        self._bring()
        atexit.unregister(self._finish)

    def _bring(self) -> None:
        waiting: list[tuple[int, int, _Sum, Any]] = []
        while waiting or self._asked or not self._closed.is_set():
            errand = self._desk.take(0.0 if waiting else PAUSE)
            while errand is not None:
                with self._lock:
                    asked = self._asked.pop(errand.number)
                if errand.failure is None:
                    heapq.heappush(waiting, (-asked.priority, errand.number, asked, errand))
                errand = self._desk.take(0.0)
            if waiting:
                _, _, asked, errand = heapq.heappop(waiting)
                self._move(asked, errand)
                del errand

    def _move(self, asked: _Sum, errand: Any) -> None:
        import numpy

        try:
            arrays = [
                numpy.frombuffer(part, asked.dtype).reshape(asked.shape) for part in errand.inputs
            ]
            schedule = asked.route.schedule(arrays[0].nbytes)
            found = asked.route.mover.move(schedule, arrays)
            for part, total in zip(errand.outputs, found, strict=True):
                numpy.frombuffer(part, asked.dtype)[...] = total.reshape(-1)
        except Exception as error:
            errand.end((type(error).__name__, str(error)))
            return
        errand.end()


def _copied(value: Any, name: str, spec: tuple[int, tuple[int, ...]], place: int) -> Any:
    """Copy to another device without using a link: the caller accounts for the transfer."""
    dense = value if value._is_contiguous else value.copy()
    (made,) = _core.call_python(_copy, name, [dense], [spec], (), place)
    return made


def _copy(readable: tuple[memoryview, ...], writable: tuple[memoryview, ...]) -> None:
    writable[0][:] = readable[0]


__all__ = ["Traffic"]
