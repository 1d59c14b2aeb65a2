"""MXNet's `util` and `engine`: its NumPy mode, and small helpers that programs use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from gemel import np, npx
from gemel.device import Device, gpu_capability, present
from gemel.device import gpu_memory_info as get_gpu_memory
from gemel.device import num_gpus as get_gpu_count
from gemel.dtype import MANNERS
from gemel.errors import DeviceError
from gemel.npx.engine import NUMPY_MODE
from gemel.ranges import check_flag

set_np, reset_np = npx.set_np, npx.reset_np
use_np, use_np_array, use_np_shape = npx.use_np, npx.use_np, npx.use_np
is_np_array, is_np_shape = npx.is_np_array, npx.is_np_shape
is_np_default_dtype = npx.is_np_default_dtype


def set_np_shape(active: bool = True) -> bool:
    """Set the result of `is_np_shape` and return the previous one."""
    check_flag("set_np_shape", "active", active)
    before, NUMPY_MODE["shape"] = NUMPY_MODE["shape"], bool(active)
    return before


@contextmanager
def np_array(active: bool = True) -> Iterator[None]:
    """A block or function in which `is_np_array` returns `active`; arrays are always NumPy's."""
    with _answering("array", active):
        yield


@contextmanager
def np_shape(active: bool = True) -> Iterator[None]:
    """A block or function in which `is_np_shape` returns `active`; shapes are always NumPy's."""
    with _answering("shape", active):
        yield


@contextmanager
def _answering(what: str, active: bool) -> Iterator[None]:
    """A block in which `is_np_array` or `is_np_shape` (by `what`) returns `active`."""
    before, NUMPY_MODE[what] = NUMPY_MODE[what], bool(active)
    try:
        yield
    finally:
        NUMPY_MODE[what] = before


@contextmanager
def np_default_dtype(active: bool = True) -> Iterator[None]:
    """A block or function in which the default dtype of floats is float64, or if not `active`
    float32.

    See ``npx.set_np(dtype=True)``.
    """
    manners, mode = dict(MANNERS), dict(NUMPY_MODE)
    npx.set_np(dtype=active)
    try:
        yield
    finally:
        MANNERS.update(manners)
        NUMPY_MODE.update(mode)


def use_np_default_dtype(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function to run within `np_default_dtype`."""
    return np_default_dtype()(func)


def set_np_default_dtype(is_np_default_dtype: bool = True) -> bool:
    """Set whether floats default to float64, and return the previous setting."""
    before = npx.is_np_default_dtype()
    npx.set_np(dtype=is_np_default_dtype)
    return before


def default_array(source_array: Any, ctx: Any = None, dtype: Any = None, device: Any = None) -> Any:
    """Same as `np.array`."""
    return np.array(source_array, dtype=dtype, device=device or ctx)


def set_module(module: str) -> Callable[[Any], Any]:
    """A decorator that sets the `__module__` of a function or class."""

    def decorate(func: Any) -> Any:
        func.__module__ = module
        return func

    return decorate


def get_cuda_compute_capability(device: Any) -> int:
    """The CUDA compute capability of a GPU: 90 for 9.0. Raises `DeviceError` for other devices."""
    if isinstance(device, Device) and device.linked and not device.simulated:
        return gpu_capability(present(device).device_id)
    raise DeviceError(f"get_cuda_compute_capability: {device} is not a CUDA device")


@contextmanager
def bulk(size: int) -> Iterator[None]:
    """A block in which MXNet's engine groups operations; gemel's engine issues each at once."""
    yield


def set_bulk_size(size: int) -> int:
    """Set how many operations MXNet's engine groups; returns the previous size, here always 1."""
    return 1


def makedirs(d: str) -> None:
    """Create a folder and its parents unless they exist."""
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
    "TemporaryDirectory",
    "bulk",
    "default_array",
    "get_cuda_compute_capability",
    "get_gpu_count",
    "get_gpu_memory",
    "getenv",
    "is_np_array",
    "is_np_default_dtype",
    "is_np_shape",
    "makedirs",
    "np_array",
    "np_default_dtype",
    "np_shape",
    "reset_np",
    "set_bulk_size",
    "set_module",
    "set_np",
    "set_np_default_dtype",
    "set_np_shape",
    "setenv",
    "use_np",
    "use_np_array",
    "use_np_default_dtype",
    "use_np_shape",
]
