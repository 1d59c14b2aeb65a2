"""Devices: where arrays live and operations run.

`cpu(0)`, `cpu(1)`, ... are logical devices over one pool of cores; `cores` limits how many of them
one device may use. `gpu(0)`, `gpu(1)`, ... are this machine's GPUs, if it has any that CUDA can
use. `GEMEL_SIMULATED_GPUS=2` (or `simulate`) makes simulated ones instead: devices with a worker
each, behind links with a bandwidth and a latency, so that a program for several GPUs can be
written, run and examined on any machine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from functools import cache, wraps
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from gemel import _core, config
from gemel.errors import DeviceError, GemelError, name_call, named_as

if TYPE_CHECKING:
    from gemel.links import Topology

Called = TypeVar("Called", bound=Callable[..., Any])

#: How many logical CPU devices there are, and how many GPUs at most.
CPU_COUNT = 16
GPU_COUNT = 8


class Device:
    """A device, where arrays live. As a context manager it makes itself the default for new arrays.

    `Device("cpu", 1)` is `cpu(1)`; there is one object per device. `code` is its number in the
    core. Raises `DeviceError` for an unknown device type or number.
    """

    __slots__ = ("code", "device_id", "device_type")

    #: MXNet's numbers of device types.
    devtype2str: ClassVar[dict[int, str]] = {1: "cpu", 2: "gpu", 3: "cpu_pinned", 5: "cpu_shared"}
    devstr2type: ClassVar[dict[str, int]] = {name: n for n, name in devtype2str.items()}

    code: int
    device_id: int
    device_type: str

    def __new__(cls, device_type: Any, device_id: int = 0) -> Device:
        """The device of this type and number; a device itself is returned unchanged."""
        if isinstance(device_type, Device):
            return device_type
        return _restore(device_type, device_id)

    def __repr__(self) -> str:
        there = self.linked and self.device_id < _simulation.gpus
        note = ", simulated" if there else ""
        return f"{self.device_type}({self.device_id}{note})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.code == self.code

    def __hash__(self) -> int:
        return hash(self.code)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.device_type, self.device_id)

    def __enter__(self) -> Device:
        _current.stack.append(self if self.code < CPU_COUNT else present(self))
        _core.set_device(self.code)
        return self

    def __exit__(self, *error: object) -> None:
        _current.stack.pop()
        _core.set_device(_current.stack[-1].code)

    @property
    def device_typeid(self) -> int:
        """MXNet's number of its type."""
        return self.devstr2type[self.device_type]

    def empty_cache(self) -> None:
        """Do nothing: gemel frees unused memory by itself. For MXNet 1's programs."""

    @property
    def linked(self) -> bool:
        """Whether contents travel to it over a link, instead of lying in the CPU's memory."""
        return self.code >= CPU_COUNT

    @property
    def simulated(self) -> bool:
        """Whether it is a GPU that this process simulates, or has simulated: its arrays stay."""
        return self.linked and self.device_id < _simulation.made


def _place(kind: str, number: int, code: int) -> Device:
    place = object.__new__(Device)
    place.device_type, place.device_id, place.code = kind, number, code
    return place


CPUS = tuple(_place("cpu", index, index) for index in range(CPU_COUNT))
GPUS = tuple(_place("gpu", index, CPU_COUNT + index) for index in range(GPU_COUNT))


class _Current(threading.local):
    """Each thread's `with device:` blocks, outermost first."""

    def __init__(self) -> None:
        self.stack = [CPUS[0]]


_current = _Current()


class _Simulation:
    """How many GPUs are simulated, and how many at most have been; the GB/s and microseconds of
    their links, or their topology."""

    __slots__ = ("gpus", "link", "made", "topology")

    def __init__(self) -> None:
        self.gpus = self.made = 0
        self.link = (0.0, 0.0)
        self.topology: Topology | None = None


_simulation = _Simulation()


def cpu(device_id: int = 0) -> Device:
    """The logical CPU device with that number (0 to 15)."""
    number = _whole(f"cpu({device_id!r})", device_id)
    if not 0 <= number < CPU_COUNT:
        raise DeviceError(f"cpu({number}): the CPU devices are cpu(0) to cpu({CPU_COUNT - 1})")
    return CPUS[number]


def gpu(device_id: int = 0) -> Device:
    """The GPU with that number (0 to 7); it need not exist until an array is placed on it."""
    number = _whole(f"gpu({device_id!r})", device_id)
    if not 0 <= number < GPU_COUNT:
        raise DeviceError(f"gpu({number}): the GPU names are gpu(0) to gpu({GPU_COUNT - 1})")
    return GPUS[number]


def _whole(name: str, value: Any) -> int:
    """An integer argument of the function `name`. Raises `DeviceError` for anything else."""
    try:
        return index(value)
    except TypeError:
        raise DeviceError(f"{name}: {value!r} is not a whole number") from None


def present(place: Device) -> Device:
    """The device itself. Raises `DeviceError` for a GPU that does not exist or cannot be used."""
    number = place.device_id
    if not place.linked or number < _simulation.gpus or number in _opened:
        return place
    found = _simulation.gpus or real_gpus()
    if found == 0:
        raise DeviceError(
            f"gpu({number}): no GPU found; use cpu() or try_gpu(), or set "
            f"GEMEL_SIMULATED_GPUS={number + 1} to simulate one"
        )
    if number >= found:
        raise DeviceError(f"gpu({number}): there are {found} GPUs; the last is gpu({found - 1})")
    if _simulation.made:
        raise DeviceError(
            f"gpu({number}): this process has simulated GPUs; use a real one in another process"
        )
    _core.open_gpu(number, place.code, f"gpu({number})")
    _opened.add(number)
    return place


def cpu_pinned(device_id: int = 0) -> Device:
    """Pinned memory, from which copies to a GPU are fast; here the CPU's ordinary memory."""
    return cpu(device_id)


#: The numbers of the real GPUs that this process uses.
_opened: set[int] = set()


@cache
def real_gpus() -> int:
    """How many GPUs this machine has that CUDA can use; 0 with ``GEMEL_CUDA=0``. The first call
    starts the driver."""
    return min(_core.count_gpus(), GPU_COUNT) if config.CUDA.read() else 0


def num_gpus() -> int:
    """The number of GPUs: the simulated ones if there are any, else the real ones. A process that
    has simulated GPUs cannot use real ones, so it has none after `simulate(0)`."""
    return _simulation.gpus if _simulation.made else real_gpus()


@cache
def gpu_capability(number: int) -> int:
    """The compute capability of a real GPU: 90 for 9.0. Raises `DeviceError` if it is not there."""
    _, capability, _ = _core.describe_gpu(number)
    return capability


def gpu_memory_info(device_id: int = 0) -> tuple[int, int]:
    """(free, total) bytes of memory of a GPU. A simulated one has the machine's memory."""
    place = present(gpu(device_id))
    if not place.simulated:
        return _core.gpu_memory(device_id)
    total, free = (os.sysconf(f"SC_{name}PHYS_PAGES") for name in ("", "AV"))
    return free * os.sysconf("SC_PAGE_SIZE"), total * os.sysconf("SC_PAGE_SIZE")


def try_gpu(device_id: int = 0) -> Device:
    """The GPU with that number if it exists, else `cpu()`."""
    return gpu(device_id) if num_gpus() > device_id else cpu()


def try_all_gpus() -> list[Device]:
    """All GPUs, or `[cpu()]` if there are none."""
    return [gpu(index) for index in range(num_gpus())] or [cpu()]


def simulate(
    gpus: int | Topology,
    gigabytes_per_second: float | None = None,
    microseconds: float | None = None,
) -> None:
    """Simulate `gpus` (0 to 8) GPUs, each with its own worker thread and link.

    A copy over a link takes `microseconds` of latency plus its bytes at the link's bandwidth, in
    either direction, one copy at a time; operations on a simulated GPU run on one core, as on a
    CPU. Defaults: `GEMEL_SIMULATED_BANDWIDTH` and `GEMEL_SIMULATED_LATENCY`.

    Given a `Topology` instead of a number, its GPUs are simulated. Each GPU's own link is then its
    route to the nearest host. A store ``"device"`` or ``"local"`` sums gradients over the links of
    the topology, by the schedule that its planner chooses. Raises `DeviceError` for more GPUs than
    there are names for, or a link that those variables could not describe (`config`); to make
    copies cheap, give a large bandwidth, such as 1e6.

    >>> device.simulate(device.topology("p3").slower(100))
    >>> device.num_gpus()
    8
    """
    given: Any = gpus
    if hasattr(given, "to_host"):
        _simulate_topology(given, gigabytes_per_second, microseconds)
        return
    if isinstance(given, str):
        raise DeviceError(f"simulate: {given!r} is a name; pass device.topology({given!r})")
    number = _whole("simulate", given)
    if not 0 <= number <= GPU_COUNT:
        raise DeviceError(f"simulate: {number} GPUs; give 0 to {GPU_COUNT}")
    link = _link(gigabytes_per_second, microseconds)
    _make([link] * number)
    _simulation.link, _simulation.topology = link, None


def _link(bandwidth: float | None = None, latency: float | None = None) -> tuple[float, float]:
    """The GB/s and microseconds of a simulated GPU's link; None means the environment's. Raises
    `DeviceError`."""
    bandwidth = config.SIMULATED_BANDWIDTH.read() if bandwidth is None else bandwidth
    latency = config.SIMULATED_LATENCY.read() if latency is None else latency
    return _checked(bandwidth, latency)


def _checked(bandwidth: float, latency: float) -> tuple[float, float]:
    from gemel.ranges import is_finite  # only simulations need it

    speeds, delays = config.SIMULATED_BANDWIDTH, config.SIMULATED_LATENCY
    given = zip((bandwidth, latency), (speeds, delays), strict=True)
    if all(is_finite(value) and one.least <= value <= one.most for value, one in given):
        return bandwidth, latency
    raise DeviceError(
        f"simulate: a link of {bandwidth!r} GB/s and {latency!r} us; both must be finite numbers, "
        f"the bandwidth from {speeds.least:g} to {speeds.most:g} and the latency from "
        f"{delays.least:g} to {delays.most:g}"
    )


def _simulate_topology(
    where: Topology, gigabytes_per_second: float | None, microseconds: float | None
) -> None:
    names = where.gpus
    if not 0 < len(names) <= GPU_COUNT:
        raise DeviceError(
            f"simulate: the topology {where.name} has {len(names)} GPUs; it must have 1 to "
            f"{GPU_COUNT}"
        )
    if gigabytes_per_second is not None or microseconds is not None:
        raise DeviceError(
            f"simulate: the links of {where.name} have their own speeds, so bandwidth and "
            "latency do not apply; describe other links with gemel.links.Topology, or slow all "
            "of them down with slower()"
        )
    _make([_checked(*(where.to_host(name) or _link())) for name in names])
    _simulation.topology = where


def _make(links: list[tuple[float, float]]) -> None:
    """Make GPUs whose links have these GB/s and microseconds."""
    if links and _opened:
        raise DeviceError("simulate: this process uses a real GPU; simulate GPUs in another one")
    for place, (bandwidth, latency) in zip(GPUS, links, strict=False):
        name = f"{place.device_type}({place.device_id})"
        _core.simulate_gpu(place.code, name, bandwidth * 1e9, latency * 1e-6)
    _simulation.gpus = len(links)
    _simulation.made = max(_simulation.made, len(links))


def simulated_topology() -> Topology | None:
    """The topology whose GPUs are simulated; None if each GPU has only its own link, or there are
    no GPUs.

    Its GPUs are `gpu(0)`, `gpu(1)`, ... in order.
    """
    return _simulation.topology


def topology(name: str | None = None) -> Topology:
    """The links of a named machine or cluster: `topology("p3")`, `topology("2xp3-25gbe")`.

    Without a name, the links of the GPUs simulated here. `gemel.topology` simulates and plans
    communication over a topology; `gemel.links` has the classes to describe one. Raises
    `UnknownNameError`, and `DeviceError` if no GPUs are simulated.
    """
    from gemel import machines  # imported here, because `import gemel` does not need it

    if name is not None:
        return machines.named(name)
    if not _simulation.gpus:
        raise DeviceError(
            "topology: no GPUs are simulated, and CPU devices have no links; give a name, or "
            "call device.simulate first"
        )
    return _simulation.topology or machines.star(_simulation.gpus, *_simulation.link)


def cores(device: int | Device, count: int | None = None) -> None:
    """Limit a CPU device to `count` cores at a time; None removes the limit.

    Worker threads and waiting threads both count. Raises `DeviceError` for a GPU (a simulated one
    has one core) or a count below 1.
    """
    place = device if isinstance(device, Device) else cpu(device)
    if place.linked:
        raise DeviceError(f"cores: {place} has its own worker; only CPU devices share the cores")
    number = 0 if count is None else _whole("cores", count)
    if count is not None and number < 1:
        raise DeviceError(f"cores: {place} cannot have {number} cores; give at least 1")
    _core.set_share(place.code, number)


def cpu_count() -> int:
    """The number of cores this process may use, by its affinity and its control group's quota."""
    return _core.cores()


def current_device() -> Device:
    """The default device for new arrays: the innermost `with device:` of this thread, else
    `cpu(0)`."""
    return _current.stack[-1]


#: MXNet 1's names.
Context, current_context = Device, current_device


def elsewhere(values: Iterable[Any]) -> Device | None:
    """The device of the first value that has one, unless it is the current one.

    Values are arrays, lists of them, or anything else.
    """
    for value in values:
        if isinstance(value, (list, tuple)) and value:
            value = value[0]
        device = getattr(value, "device", None)
        if isinstance(device, Device):  # NumPy's arrays have the device "cpu"
            return None if device is _current.stack[-1] else device
    return None


def as_device(value: Any) -> Device:
    """The device meant by `value`; None is the current one. Raises `DeviceError`."""
    if value is None:
        return _current.stack[-1]
    if isinstance(value, Device):
        return value if value.code < CPU_COUNT else present(value)
    raise DeviceError(f"{value!r} is not a device; pass cpu(), cpu(i) or gpu(i)")


def beside(device: Any, values: Iterable[Any]) -> Device:
    """The device meant by `device`. None means that of the first array in `values`, or the current.

    So intermediate arrays are made on the device of the array they are for.
    """
    if device is None:
        held = (getattr(value, "device", None) for value in values)
        device = next((each for each in held if isinstance(each, Device)), None)
    return as_device(device)


def beside_arrays(function: Called) -> Called:
    """Wrap a function so that it makes further arrays on the device of its first array argument.

    Numbers, lists and NumPy's arrays among its arguments become arrays there, too. Errors of the
    operations that it is composed of name it.
    """

    @wraps(function)
    def call(*inputs: Any, **named: Any) -> Any:
        held = _first_array(inputs) if inputs else None
        held = _first_array(named.values()) if held is None and named else held
        try:
            if held is None or held.device is _current.stack[-1]:
                return function(*inputs, **named)
            with held.device:
                return function(*inputs, **named)
        except GemelError as error:
            name_call(error, function.__name__)
            raise

    return named_as(function, call)


def _first_array(values: Iterable[Any]) -> Any:
    """The first array among values, or in a list among them. Lists that begin with a number are
    skipped."""
    for value in values:
        if isinstance(value, _core.Array):
            return value
        if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
            found = _first_array(value)
            if found is not None:
                return found
    return None


def from_code(code: int) -> Device:
    """The device with that number in the core."""
    return (*CPUS, *GPUS)[code]


#: MXNet's device types. Memory shared with other processes or a GPU is ordinary CPU memory here.
KINDS = {"cpu": cpu, "gpu": gpu, "cpu_pinned": cpu, "cpu_shared": cpu}


def _restore(device_type: str, device_id: int) -> Device:
    if device_type not in KINDS:
        raise DeviceError(f"{device_type!r} is not a device type; use one of {', '.join(KINDS)}")
    return KINDS[device_type](device_id)


if config.SIMULATED_GPUS.read():
    simulate(config.SIMULATED_GPUS.read())
