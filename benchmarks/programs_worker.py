"""Measures one library on the programs of `programs`; prints one line of JSON.

`python -m benchmarks.programs_worker LIBRARY PEER NAMES SECONDS`: array programs beside numpy, else
dynamic ones.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

ROOT = str(Path(__file__).resolve().parent.parent)
# Prefer an installed gemel to the source tree, whose core may not be compiled.
sys.path[:] = [entry for entry in sys.path if entry not in ("", ROOT)] + [ROOT]

import numpy  # noqa: E402

from benchmarks import programs_array  # noqa: E402
from benchmarks.ufuncs_worker import digest  # noqa: E402

#: Calls before those that are measured: what recurs is compiled in these.
WARM, REPEATS = 5, 5


def array_call(library: str, name: str) -> Callable[[], Any]:
    """A call of an array program, which gives its result as a NumPy array."""
    program, given = programs_array.PROGRAMS[name], programs_array.arrays()
    if library == "numpy":
        return lambda: numpy.asarray(program(numpy, given))
    from gemel import np

    ours = {key: np.array(value) for key, value in given.items()}
    return lambda: program(np, ours).asnumpy()


def dynamic_call(library: str, name: str) -> Callable[[], Any]:
    """A call of a dynamic program, which gives a number."""
    if library == "torch":
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
    call: Callable[[], Any] = getattr(import_module(f"benchmarks.programs_{library}"), name)()
    return call


def timed(call: Callable[[], Any], seconds: float) -> tuple[float, list[float]]:
    """The milliseconds of a call, and figures that stand for the result of the first one."""
    figures = digest(call())
    for _ in range(WARM):
        call()
    spent: list[float] = []
    while len(spent) < REPEATS or sum(spent) < seconds:
        begin = time.perf_counter()
        call()
        spent.append(time.perf_counter() - begin)
    return median(spent) * 1e3, figures


def main() -> None:
    """Measure what the arguments name."""
    library, peer, names, seconds = sys.argv[1:5]
    make = array_call if peer == "numpy" else dynamic_call
    answer = {name: timed(make(library, name), float(seconds)) for name in names.split(",")}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
