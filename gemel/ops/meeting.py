"""Where the devices of a data-parallel network meet within its forward, and within its backward."""

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

#: How many calls of one device may wait for the others'.
AHEAD = 1024


class Group:
    """Devices that meet again and again: the first call of each is the first meeting, and so on.

    A call joins the oldest meeting its device has not come to; a meeting that failed is over, and
    the next call begins another.
    """

    def __init__(self, devices: tuple[Device, ...], name: str) -> None:
        self.devices = devices
        self.name = name
        self._lock = threading.Lock()
        #: Meetings, which ranks have come to them, and what the first of those has brought.
        self._open: list[tuple[Any, set[int], Any]] = []
        self._backward: Group | None = None

    @property
    def backward(self) -> Group:
        """The same devices, for the gradients."""
        if self._backward is None:
            self._backward = Group(self.devices, f"{self.name}, backward")
        return self._backward

    def gathered(self, array: Any) -> Any:
        """What all devices bring, in their order, one behind the other; issued, not waited for.

        It is in the CPU's memory, also for a device behind a link.
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
        """End the meetings not all have come to: an error keeps the others from coming.

        For those who are missing comes an array that fails, `failing(array like it)`: so what
        came of the meeting fails, and changes nothing. Otherwise they would come to these meetings
        with their next batch.
        """
        with self._lock:
            left, self._open = self._open, []
        for meeting, came, host in left:
            absent = failing(host)
            for rank in range(len(self.devices)):
                if rank not in came and meeting.open:
                    together = meeting.join(rank, len(self.devices), absent)
                    with suppress(DeviceError):  # the error that is on its way says it all
                        together.wait_to_read()
        if self._backward is not None:
            self._backward.give_up(failing)

    def __deepcopy__(self, memory: Any) -> Group:
        return Group(self.devices, self.name)

    def __reduce__(self) -> Any:
        return Group, (self.devices, self.name)


@op()
def all_reduce(x: Any, *, group: Any) -> Any:
    """The sum of what the devices of a group bring, each by its own call; the same on all.

    Nothing waits: the result is there when every device's x is.
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
    # Added up before it travels: the link then carries one array, however many devices there are.
    total = sum(group.gathered(x), axis=0)
    return _core.copy_to_device(total, x.device.code) if x.device.linked else total


__all__ = ["Group", "all_reduce"]
