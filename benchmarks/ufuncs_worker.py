"""Measures one library on all functions of ufuncs.txt; prints one line of JSON.

`python -m benchmarks.ufuncs_worker LIBRARY SIZE SECONDS`
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = str(Path(__file__).resolve().parent.parent)
# Prefer an installed gemel to the source tree, whose core may not be compiled.
sys.path[:] = [entry for entry in sys.path if entry not in ("", ROOT)] + [ROOT]

import numpy  # noqa: E402

from benchmarks.ufuncs import Function, functions  # noqa: E402
from benchmarks.workloads import uniform  # noqa: E402

REPEATS = 7


def library(name: str) -> tuple[Any, Callable[[Any], Any], Callable[[Any], None]]:
    """A library's module, a function that converts NumPy arrays, and one that waits."""
    if name == "numpy":
        return numpy, numpy.array, lambda result: None
    if name == "torch":
        import torch

        return torch, torch.from_numpy, lambda result: None
    if name == "jax":
        import jax

        return jax.numpy, jax.numpy.array, jax.block_until_ready
    from gemel import np, npx

    return np, np.array, lambda result: npx.waitall()


def arrays(size: int) -> dict[str, numpy.ndarray]:
    """The arguments of the functions, by name."""
    x, y = (1 + uniform((size,), seed).astype("float32") / 2 for seed in (1, 2))
    side = int(size**0.5)
    m, n = (each[: side * side].reshape(side, side) for each in (x, y))
    order = numpy.argsort(y, kind="stable")
    named = {"x": x, "y": y, "m": m, "n": n, "i": order, "mask": x > 1}
    return {**named, "s": x.copy(), "part": y[1:-1].copy()}


def digest(value: Any) -> list[float]:
    """A few numbers that stand for a result."""
    found = numpy.asarray(value, "float64").ravel()
    ends = [float(found[0]), float(found[-1])]
    weights = numpy.arange(found.size) % 7 + 1.0
    return [float(found.size), *ends, float(found @ weights) / found.size]


def timed(function: Function, scope: dict[str, Any], name: str, wait: Any, seconds: float) -> Any:
    """The microseconds of a call, and a digest of its result."""
    call = eval(f"lambda: {function.written(name)}", scope)
    result = call()
    wait(result)

    def run(calls: int) -> float:
        nonlocal result
        begin = time.perf_counter()
        for _ in range(calls):
            result = call()
        wait(result)
        return time.perf_counter() - begin

    calls = 1
    while (spent := run(calls)) < seconds:
        calls = max(calls + 1, int(calls * min(10.0, 1.2 * seconds / max(spent, 1e-9))))
    us = median(run(calls) for _ in range(REPEATS)) * 1e6 / calls
    return us, digest(scope["s"] if result is None else result)


def main() -> None:
    """Measure what the arguments name."""
    name, size, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    module, make, wait = library(name)
    answer = {}
    for function in functions():
        scope = {"np": module, **{key: make(value) for key, value in arrays(size).items()}}
        answer[function.name] = timed(function, scope, name, wait, seconds)
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
