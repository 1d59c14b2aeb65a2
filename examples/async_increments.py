"""Increment an array 900 times: when asynchronous execution saves time, and how much.

    python examples/async_increments.py

Each increment `y += 1` has three costs:

    t1   the front end: the call itself, and the Python code between two calls
    t2   the kernel that adds 1
    t3   handing the operation to the engine, and returning from the wait for it

A loop that waits after each of its n increments takes n (t1 + t2 + t3). Without waiting, the front
end and the engine work at the same time, so the slower one decides:

    inline       the call itself increments small arrays: n (t1 + t2), with or without waiting
    t2 > t1      the engine is slower: t1 + n t2 + t3
    t2 < t1      the front end is slower: n t1 + t2 + t3

The program measures t1, t2 and t3 on the operations of a trace, and predicts the totals from them.

What to look for: the measured totals are within 20 % of the predictions. If the engine is slower,
a loop that does not wait takes at most 0.8 of the time of one that does. The exit status is 1 if an
expectation is not met.
"""

from __future__ import annotations

import time
from statistics import median
from typing import NamedTuple

from prediction import Row, check, finish, introduce, show

from gemel import np, npx, profiler

INCREMENTS = 900  # fewer than the queue holds (1,024), so that no call waits for room
ROUNDS = 5


class Times(NamedTuple):
    """The time of a whole loop and the costs of one increment, in microseconds."""

    total: float
    t1: float
    t2: float
    t3: float


def front_end_work(steps: int) -> float:
    """Stand for the Python code that a program runs between two calls."""
    value = 0.0
    for step in range(steps):
        value += step * 0.5
    return value


def run(size: int, work: int, wait: bool) -> Times:
    """Increment an array again and again, and take the times from the trace.

    Only a loop without waiting measures t1, and only one with waiting measures t3; the other is 0.
    """
    y = np.zeros((size,), dtype="float64")
    npx.waitall()
    profiler.set_state("run")
    start = time.perf_counter_ns()
    for _ in range(INCREMENTS):
        front_end_work(work)
        y += 1
        if wait:
            y.wait_to_read()
    y.wait_to_read()
    total = time.perf_counter_ns() - start
    trace = profiler.recording()
    profiler.set_state("stop")
    assert y[0].item() == INCREMENTS and y[size - 1].item() == INCREMENTS
    operations = trace.operations
    ends = sorted(w.finished for w in trace.waits)
    t2 = median(o.duration for o in operations)
    between = median(b.issued - a.issued for a, b in zip(operations, operations[1:], strict=False))
    if not wait:
        return Times(total / 1e3, (between - inline_part(operations, t2)) / 1e3, t2 / 1e3, 0.0)
    coming_back = 0.0
    if len(ends) == len(operations):
        handing = median(o.started - o.issued for o in operations)
        back = median(e - o.finished for e, o in zip(ends, operations, strict=True))
        coming_back = handing + back
    return Times(total / 1e3, 0.0, t2 / 1e3, coming_back / 1e3)


def inline_part(operations: list[profiler.Operation], t2: float) -> float:
    """The kernel's part of the time between two calls: t2 if the calls ran it inline, else 0."""
    return t2 if all(o.inlined for o in operations) else 0.0


def regime(title: str, size: int, work: int) -> tuple[float, float, float, float, bool]:
    """Measure one regime and print the predicted and measured totals.

    Returns t1, t2, the totals measured without and with waiting (all in microseconds), and whether
    the increments ran inline.
    """
    run(size, work, False)
    loops = [(run(size, work, False), run(size, work, True)) for _ in range(ROUNDS)]
    t1 = median(a.t1 for a, _ in loops)
    t2 = median(a.t2 for a, _ in loops)
    t2_alone = median(s.t2 for _, s in loops)
    t3 = median(s.t3 for _, s in loops)
    inline = t3 == 0.0
    n = INCREMENTS
    sync = n * (t1 + t2_alone + t3)
    asynchronous = sync if inline else t1 + n * t2 + t3 if t2 > t1 else n * t1 + t2 + t3
    measured = median(a.total for a, _ in loops), median(s.total for _, s in loops)
    name = f"{title}: {size} elements; t1 {t1:.1f}, t2 {t2:.1f}, t3 {t3:.1f} us"
    rows = [
        Row("without waiting", asynchronous / 1e3, measured[0] / 1e3),
        Row("waiting after each", sync / 1e3, measured[1] / 1e3),
    ]
    show(name, rows)
    for row in rows:
        assert row.ratio is not None
        check(0.8 <= row.ratio <= 1.2, f"{row.name}: within 20 % of the prediction")
    return t1, t2, measured[0], measured[1], inline


def main() -> None:
    introduce(__doc__)
    print(f"{INCREMENTS} increments, medians of {ROUNDS} runs, everything traced")
    *_, inline = regime("inline", 64, 60)
    check(inline, "small increments are done by the call itself")
    t1, t2, total, waiting, inline = regime("t2 > t1", 65536, 40)
    check(not inline and t2 > t1, "the increments are handed over, the engine is the slower one")
    check(total <= 0.8 * waiting, "asynchronous execution takes at most 0.8 of the time")
    t1, t2, total, waiting, inline = regime("t2 < t1", 65536, 400)
    check(not inline and t2 < t1, "the increments are handed over, the front end is the slower one")
    finish()


if __name__ == "__main__":
    main()
