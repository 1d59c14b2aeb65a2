"""MXNet's `util`: its NumPy mode, and small helpers programs use."""

from __future__ import annotations

import os
from typing import Any

from gemel import npx
from gemel.device import gpu_memory_info as get_gpu_memory
from gemel.device import num_gpus as get_gpu_count

set_np, reset_np = npx.set_np, npx.reset_np
set_np_shape = npx.set_np
use_np, use_np_array, use_np_shape = npx.use_np, npx.use_np, npx.use_np
is_np_array, is_np_shape = npx.is_np_array, npx.is_np_shape
is_np_default_dtype = npx.is_np_default_dtype


class np_array:  # noqa: N801 -- used as a function
    """A block in NumPy's mode, or out of it: arrays are NumPy's in any, so it changes nothing."""

    def __init__(self, active: bool = True) -> None:
        self.active = active

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


np_shape = np_array


def makedirs(d: str) -> None:
    """Make a folder and those it lies in, where they are not there."""
    os.makedirs(os.path.expanduser(d), exist_ok=True)


def getenv(name: str) -> str | None:
    """An environment variable's value, or None."""
    return os.environ.get(name)


def setenv(name: str, value: Any) -> None:
    """Set an environment variable, or remove it with None."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = str(value)


__all__ = [
    "get_gpu_count",
    "get_gpu_memory",
    "getenv",
    "is_np_array",
    "is_np_default_dtype",
    "is_np_shape",
    "makedirs",
    "np_array",
    "np_shape",
    "reset_np",
    "set_np",
    "set_np_shape",
    "setenv",
    "use_np",
    "use_np_array",
    "use_np_shape",
]
