"""All-reduce inside the forward and backward of a data-parallel network: its devices meet here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gemel import _core
from gemel.device import CPUS, Device, from_code
from gemel.errors import DeviceError
from gemel.ir.declare import op
from gemel.ops.reduction import sum
from gemel.spec import Spec

#: How many calls of one device may wait for the other devices.
AHEAD = 1024


class Group:
    """Devices that meet again and again: the first call of each is the first meeting, and so on.

    A call joins the oldest open meeting that its device has not joined yet. A failed meeting is
    closed, and the next call begins another.
    """

    def __init__(self, devices: tuple[Device, ...], name: str) -> None:
        self.devices = devices
        self.name = name
        self._lock = threading.Lock()
        #: Open meetings, the ranks that have joined each, and the array of the first of them.
        self._open: list[tuple[Any, set[int], Any]] = []
        self._backward: Group | None = None

    @property
    def backward(self) -> Group:
        """The same devices, for the gradients."""
        if self._backward is None:
            self._backward = Group(self.devices, f"{self.name}, backward")
        return self._backward

    def gathered(self, array: Any) -> Any:
        """The arrays of all devices, stacked in the order of devices; issued, not waited for.

        The result is in the CPU's memory, also for devices behind a link.
        """
        device = from_code(array.device.code)
        if device not in self.devices:
            homes = " and ".join(map(str, self.devices))
            raise DeviceError(f"{self.name}: its devices are {homes}, but the call is on {device}")
        rank = self.devices.index(device)
        with self._lock:
            self._open = [found for found in self._open if found[0].open]
            found = next((pair for pair in self._open if rank not in pair[1]), None)
            if len(self._open) >= AHEAD and found is None:
                raise DeviceError(
                    f"{self.name}: {device} is {AHEAD} calls ahead of the others; run every "
                    "device's part of each batch"
                )
            host = _core.copy_to_device(array, CPUS[0].code) if device.linked else array
            if found is None:
                found = _core.Meeting(len(self.devices), self.name), set(), host
                self._open.append(found)
            meeting, came, _ = found
            came.add(rank)
            if len(came) == len(self.devices):
                self._open = [other for other in self._open if other[0] is not meeting]
            return meeting.join(rank, len(self.devices), host)

    def give_up(self, failing: Callable[[Any], Any]) -> None:
        """End the open meetings, after an error that keeps some devices from joining.

        For each missing device a failing array, `failing(array like it)`, joins. So the results of
        the meeting fail and change nothing. Otherwise the missing devices would join these
        meetings with their next batch.
        """
        with self._lock:
            left, self._open = self._open, []
        for meeting, came, host in left:
            absent = failing(host)
            for rank in range(len(self.devices)):
                if rank not in came and meeting.open:
                    together = meeting.join(rank, len(self.devices), absent)
                    with suppress(DeviceError):  # the original error is already being raised
                        together.wait_to_read()
        if self._backward is not None:
            self._backward.give_up(failing)

    def __deepcopy__(self, memory: Any) -> Group:
        return Group(self.devices, self.name)

    def __reduce__(self) -> Any:
        return Group, (self.devices, self.name)


@op()
def all_reduce(x: Any, *, group: Any) -> Any:
    """The sum of the arrays of a group's devices, each from its own call; the same on all devices.

    The call does not wait: the result is ready once every device's x is.
    """
    return x.copy()


@all_reduce.spec
def _(x: Spec, *, group: Any) -> Spec:
    return Spec(x.shape, x.dtype)


@all_reduce.gradient
def _(g: Any, y: Any, x: Any, *, group: Any) -> Any:
    return (all_reduce(g, group=group.backward),)


@all_reduce.issue
def _(x: Any, *, group: Any) -> Any:
    # Summed before the transfer, so the link carries one array for any number of devices.
    total = sum(group.gathered(x), axis=0)
    return _core.copy_to_device(total, x.device.code) if x.device.linked else total


__all__ = ["Group", "all_reduce"]
