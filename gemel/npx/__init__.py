"""`npx`: what neural networks need beyond NumPy, and the engine's switches.

Operations and functions say themselves that they are public here (``public="npx"``, see
`gemel.ir.public`). `__init__.pyi`, which `make stubs` writes, lists all of them for type checkers.
"""

from __future__ import annotations

from typing import Any

from gemel.device import cpu, current_device, gpu, num_gpus, try_all_gpus, try_gpu
from gemel.errors import unknown_attribute
from gemel.ir.public import NAMESPACES
from gemel.npx import engine, serialize  # noqa: F401 -- they declare what is public here
from gemel.ops import (  # noqa: F401
    attention,
    control,
    convolution,
    lookup,
    loops,
    neural,
    normalization,
    pooling,
    sequences,
)

_devices = (cpu, current_device, gpu, num_gpus, try_all_gpus, try_gpu)
_public = {**NAMESPACES["npx"], **{function.__name__: function for function in _devices}}
globals().update(_public)
__all__ = sorted(_public)


def __getattr__(name: str) -> Any:
    raise unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return __all__
