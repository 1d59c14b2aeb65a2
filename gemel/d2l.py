"""The helpers of the book that its chapter on computational performance uses.

Use `from gemel import d2l` where the book has `import d2l` or `from d2l import torch as d2l`. The
whole of the book's own library runs on gemel too: see `gemel.as_mxnet`.
"""

from __future__ import annotations

from typing import Any

from gemel.benchmark import Benchmark, Timer
from gemel.device import cpu, gpu, num_gpus, try_all_gpus, try_gpu


def get_mem() -> float:
    """The memory in use by this process, in megabytes (10^6 bytes); compare two values."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024 / 1e6


#: The front ends that the book's own library is written for.
EDITIONS = ("jax", "mxnet", "tensorflow", "torch")


def __getattr__(name: str) -> Any:
    if name in EDITIONS:
        raise ModuleNotFoundError(
            f"d2l.{name}: the package d2l, the book's own library, is not installed (pip install "
            "d2l); gemel's substitute, gemel.d2l, only has " + ", ".join(__all__),
            name="d2l",
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Benchmark", "Timer", "cpu", "get_mem", "gpu", "num_gpus", "try_all_gpus", "try_gpu"]
