"""Measures one contender on one workload; prints one line of JSON.

`python -m benchmarks.worker CONTENDER WORKLOAD` where WORKLOAD is the JSON of a Workload's fields,
plus `repeats` (timed runs) and `seconds` (how long a run should take at least).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median

ROOT = str(Path(__file__).resolve().parent.parent)
# Prefer an installed gemel to the source tree, whose core may not be compiled.
sys.path[:] = [entry for entry in sys.path if entry not in ("", ROOT)] + [ROOT]

from benchmarks.cases import Case  # noqa: E402
from benchmarks.contenders import build  # noqa: E402
from benchmarks.workloads import workload_from  # noqa: E402


def timed(case: Case) -> tuple[float, float, object]:
    """Return (seconds to issue, seconds to the end, results) of one run."""
    case.reset()
    begin = time.perf_counter()
    pending = case.issue()
    issued = time.perf_counter()
    results = case.finish(pending)
    end = time.perf_counter()
    return issued - begin, end - begin, results


def calibrate(case: Case, seconds: float) -> None:
    """Warm up, and raise the number of calls until a run is long enough to be measured."""
    timed(case)
    if not case.adjustable:
        return
    base = case.calls
    for _ in range(12):
        _, duration, _ = timed(case)
        if duration >= seconds:
            break
        factor = min(10.0, 1.2 * seconds / max(duration, 1e-9))
        case.calls = max(base, int(case.calls * factor) // base * base)


def main() -> None:
    """Measure what the arguments name."""
    name, options = sys.argv[1], json.loads(sys.argv[2])
    repeats = options.pop("repeats")
    seconds = options.pop("seconds")
    case = build(name, workload_from(options))
    calibrate(case, seconds)
    issued, done = [], []
    results: object = None
    for _ in range(repeats):
        results = None
        issue_time, done_time, results = timed(case)
        issued.append(issue_time * 1e6 / case.calls)
        done.append(done_time * 1e6 / case.calls)
    answer = {
        "issue_us": median(issued),
        "done_us": median(done),
        "calls": case.calls,
        "values": case.values(results),
    }
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
