"""The devices in the arguments of parameter methods, and warnings about such calls."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from gemel.device import as_device

if TYPE_CHECKING:
    from gemel.device import Device

__all__ = ["places", "warn"]


def places(device: Any, ctx: Any = None) -> list[Device]:
    """The devices given by either keyword: one or several, without repetitions.

    An empty list (all GPUs of a machine that has none) means the current device.
    """
    given = device if device is not None else ctx
    if not isinstance(given, (list, tuple)):
        return [as_device(given)]
    devices = list(dict.fromkeys(map(as_device, given or [None])))
    if len(devices) < len(given):
        warn(
            f"{list(map(str, given))} names a device twice; its parameters exist there only "
            "once, and with grad_req='write' the backward of each part overwrites the gradient "
            "of the previous part"
        )
    return devices


def warn(message: str) -> None:
    """Issue a warning about a call of a parameter's method."""
    warnings.warn(message, stacklevel=4)
