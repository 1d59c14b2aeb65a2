"""Measures one library on the shapes it is asked for: a line of JSON in, a line of JSON out.

`python -m benchmarks.turns_worker LIBRARY`
"""

from __future__ import annotations

import importlib
import json
import os
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

from benchmarks.cases import Case, Single  # noqa: E402
from benchmarks.contenders import TAKING_PART, build  # noqa: E402
from benchmarks.shapes import WORKLOADS, Shape, digest, shape_from  # noqa: E402

#: Runs before the first measured one. What is compiled only when it recurs is compiled in these.
WARM = 4
#: The least number of runs, and the seconds of work after which one run is enough.
LEAST, LONG_SECONDS = 3, 1.0

Clock = Callable[[], float]


def case_of(library: str, shape: Shape, threads: int) -> Case | None:
    """The case of a library; None if it does not support the shape."""
    if shape.kind in WORKLOADS:
        ways = TAKING_PART[shape.kind]
        name = next((way for way in (f"{library} hybridized", library) if way in ways), None)
        workload = WORKLOADS[shape.kind]._replace(threads=threads)
        return None if name is None else build(name, workload)
    module = importlib.import_module(f"benchmarks.contenders.{library}_kernels")
    case: Single | None = module.case(shape, threads)
    return case


def timed(case: Case, clock: Clock) -> tuple[float, float, Any]:
    """The microseconds of what precedes a call and of the call itself, and its results."""
    begin = clock()
    case.reset()
    ready = clock()
    results = case.finish(case.issue())
    end = clock()
    return (ready - begin) * 1e6 / case.calls, (end - ready) * 1e6 / case.calls, results


def own_us(clock: Clock) -> float:
    """The microseconds that reading the clock takes, to be subtracted from measurements.

    The processor time of a process comes from the kernel, which took 0.7 us where shapes take 3.
    """

    def pair() -> float:
        begin = clock()
        return clock() - begin

    return 1e6 * median(pair() for _ in range(101))


def measured(case: Case, seconds: float, clock: Clock) -> dict[str, Any]:
    """Medians over `seconds` of runs, and a digest of the last results."""
    before: list[float] = []
    during: list[float] = []
    spent, own = 0.0, own_us(clock)
    while spent < seconds or len(during) < (LEAST if 0 < spent < LONG_SECONDS and seconds else 1):
        reset_us, us, results = timed(case, clock)
        before.append(reset_us)
        during.append(max(0.0, us - own / case.calls))
        spent += us * case.calls / 1e6
    values = case.values(results)
    if not isinstance(case, Single):  # its values are all elements, far too many
        values = digest([numpy.array(values)])
    return {"issue_us": median(before), "done_us": median(during), "values": values}


class Worker:
    """Measures shapes, and keeps the case of the last one."""

    def __init__(self, library: str) -> None:
        self.library = library
        self.shape: Any = None
        self.case: Case | None = None

    def answer(
        self, shape: dict[str, Any], threads: int, seconds: float, processor: bool = False
    ) -> Any:
        """Measure a shape, in a single run if `seconds` is 0."""
        clock = time.process_time if processor else time.perf_counter
        if shape != self.shape:
            self.shape = self.case = None  # free the memory before more is allocated
            self.case = case_of(self.library, shape_from(shape), threads)
            self.shape = shape
            if self.case is not None and seconds:
                begin = clock()
                for _ in range(WARM):
                    timed(self.case, clock)
                    if clock() - begin > LONG_SECONDS * WARM:
                        break
        return None if self.case is None else measured(self.case, seconds, clock)


def main() -> None:
    """Answer questions until there are no more."""
    library = sys.argv[1]
    # Output of the libraries goes to standard error, so that it is not taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(library)
    for line in sys.stdin:
        try:
            answer = worker.answer(**json.loads(line))
        except Exception as error:  # whatever a library raises becomes its answer
            answer = f"{type(error).__name__}: {error}".splitlines()[0]
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
