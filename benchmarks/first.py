"""Measures the first result of one contender; prints one line of JSON.

`python -m benchmarks.first CONTENDER WORKLOAD` where WORKLOAD is the JSON of a Workload's fields.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parent.parent)
# Prefer an installed gemel to the source tree, whose core may not be compiled.
sys.path[:] = [entry for entry in sys.path if entry not in ("", ROOT)] + [ROOT]

from benchmarks import contenders  # noqa: E402
from benchmarks.workloads import Workload, workload_from  # noqa: E402

#: Computes a workload from the start and reads its results.
Run = Callable[[], list[float]]


def build(name: str, workload: Workload) -> tuple[Run, Callable[[], Any]]:
    """Prepare a workload. Returns a function that runs it, and one that counts kernels made."""
    library = contenders.BY_NAME[name].requires[0]
    module = importlib.import_module(f"benchmarks.contenders.{library}_first")
    if workload.kind != "picture":
        return getattr(module, workload.kind)(name, workload), module.kernels
    case = contenders.build(name, workload._replace(kind="resnet"))
    return lambda: case.values(case.finish(case.issue())), module.kernels


def main() -> None:
    """Time the first run, which compiles whatever it needs, and the next two."""
    run, kernels = build(sys.argv[1], workload_from(json.loads(sys.argv[2])))
    before = kernels()
    # So that no timed call of any contender has to collect what the imports left.
    gc.collect(0)
    times = []
    made = None
    for _ in range(3):
        begin = time.perf_counter()
        values = run()
        times.append((time.perf_counter() - begin) * 1e3)
        if made is None and before is not None:
            made = kernels() - before
    print(json.dumps({"ms": times, "kernels": made, "values": values}), flush=True)


if __name__ == "__main__":
    main()
