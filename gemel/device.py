"""Devices: where arrays live."""

from __future__ import annotations

from typing import Any

from gemel.errors import DeviceError


class Device:
    """`cpu(0)`, `cpu(1)`, ...: logical devices over one pool of cores.

    As a context manager a device is where new arrays are made. `code` is its number in the core.
    """

    __slots__ = ("code", "device_id", "device_type")

    def __init__(self, device_type: str, device_id: int, code: int) -> None:
        self.device_type = device_type
        self.device_id = device_id
        self.code = code

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.code == self.code

    def __hash__(self) -> int:
        return hash(self.code)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.device_type, self.device_id)

    def __enter__(self) -> Device:
        _current.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.pop()


#: How many logical CPU devices there are names for.
CPU_COUNT = 16
CPUS = tuple(Device("cpu", index, index) for index in range(CPU_COUNT))
_current = [CPUS[0]]


def cpu(device_id: int = 0) -> Device:
    """The logical CPU device with that number (0 to 15)."""
    if not 0 <= device_id < CPU_COUNT:
        raise DeviceError(f"cpu({device_id}): there are cpu(0) to cpu({CPU_COUNT - 1})")
    return CPUS[device_id]


def gpu(device_id: int = 0) -> Device:
    """The GPU with that number. Raises `DeviceError`: this build has no GPU support."""
    raise DeviceError(f"gpu({device_id}): no GPU found; use cpu(), or check npx.num_gpus() first")


def num_gpus() -> int:
    """How many GPUs can be used."""
    return 0


def current_device() -> Device:
    """Where new arrays are made: the innermost `with device:`, else `cpu(0)`."""
    return _current[-1]


def as_device(value: Any) -> Device:
    """The device meant by `value`; None is the current one. Raises `DeviceError`."""
    if value is None:
        return _current[-1]
    if isinstance(value, Device):
        return value
    raise DeviceError(f"{value!r} is not a device; pass cpu() or cpu(i)")


def _restore(device_type: str, device_id: int) -> Device:
    return cpu(device_id) if device_type == "cpu" else gpu(device_id)
