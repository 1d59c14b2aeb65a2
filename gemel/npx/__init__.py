"""`npx`: operations of neural networks beyond NumPy, and the engine's switches.

An operation or function is public here if its declaration says so (``public="npx"``, see
`gemel.ir.public`). `__init__.pyi`, which `make stubs` writes, lists all of them for type checkers.
"""

from __future__ import annotations

from typing import Any

from gemel.device import (
    cpu,
    cpu_pinned,
    current_device,
    gpu,
    gpu_memory_info,
    num_gpus,
    try_all_gpus,
    try_gpu,
)
from gemel.ir.public import NAMESPACES, lookup
from gemel.npx import engine, image, random, serialize  # noqa: F401 -- for their declarations

_devices = (
    cpu,
    cpu_pinned,
    current_device,
    gpu,
    gpu_memory_info,
    num_gpus,
    try_all_gpus,
    try_gpu,
)
_others: dict[str, Any] = {function.__name__: function for function in _devices}
_others.update(current_context=current_device, image=image, random=random)
globals().update(_others, **NAMESPACES["npx"])


#: Functions that MXNet has in both `npx` and `npx.random`.
RANDOM = ("bernoulli", "normal_n", "seed", "uniform_n")


def __getattr__(name: str) -> Any:
    if name in RANDOM:
        return getattr(random, name)
    if name == "Custom":
        from gemel.operator import custom  # few programs need it

        return globals().setdefault(name, custom)
    return lookup(name, __name__, globals(), _others)


def __dir__() -> list[str]:
    return __getattr__("__all__")  # type: ignore[no-any-return]
