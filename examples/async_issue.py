"""Calls return before their results are ready: what issuing costs, and what each wait waits for.

    python examples/async_issue.py

A call hands its work to the engine and returns. Only reading a result waits, and only for that
result.

What to look for: issuing ten large products takes less than 1 % of the time until they are done.
The second table shows several ways to wait while ten products are queued. `waitall()` takes as long
as ten products. Waiting for the first result takes as long as one product, whatever is queued
behind it. The exit status is 1 if an expectation is not met.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prediction import Row, check, finish, introduce, show

from gemel import np, npx

SIDE, PRODUCTS = 1000, 10


def milliseconds(function: Callable[[], Any]) -> float:
    """The time until a call returns."""
    start = time.perf_counter()
    function()
    return (time.perf_counter() - start) * 1000


def best(function: Callable[[], Any], times: int = 5) -> float:
    """The shortest time of several calls, each made when the queue is empty."""
    found = []
    for _ in range(times):
        npx.waitall()
        found.append(milliseconds(function))
    return min(found)


def main() -> None:
    introduce(__doc__)
    a = np.random.normal(size=(SIDE, SIDE))
    a.asnumpy()  # the first asnumpy() imports NumPy
    small = np.ones((2, 2))
    one = best(lambda: np.dot(a, a).wait_to_read())
    call = best(lambda: [small + 1 for _ in range(1000)]) / 1000
    print(f"one product takes {one:.1f} ms, the call of a small operation {1000 * call:.2f} us")
    issue_and_completion(a, one, call)
    ways_of_waiting(a, one)
    finish()


def issue_and_completion(a: np.ndarray, one: float, call: float) -> None:
    npx.waitall()
    start = time.perf_counter()
    results = [np.dot(a, a) for _ in range(PRODUCTS)]
    issued = (time.perf_counter() - start) * 1000
    npx.waitall()
    done = (time.perf_counter() - start) * 1000
    rows = [Row("issued", None, issued), Row("done", PRODUCTS * one, done)]
    show(f"{PRODUCTS} products of {SIDE} x {SIDE}", rows)
    check(issued < 0.01 * done, "issuing takes less than 1 % of the time to completion")
    del results


def ways_of_waiting(a: np.ndarray, one: float) -> None:
    """Time several ways to wait while ten products are queued."""
    ways: dict[str, tuple[Callable[[list[Any]], Any], int]] = {
        "waitall()": (lambda results: npx.waitall(), PRODUCTS),
        "first.wait_to_read()": (lambda results: results[0].wait_to_read(), 1),
        "first.asnumpy()": (lambda results: results[0].asnumpy(), 1),
        "first[0, 0].item()": (lambda results: results[0][0, 0].item(), 1),
        "print(first)": (lambda results: str(results[0]), 1),
        # The wait moves the last product to the front, behind the one that is already running.
        "last.wait_to_read()": (lambda results: results[-1].wait_to_read(), 2),
    }
    rows = []
    for name, (wait, products) in ways.items():
        npx.waitall()
        results = [np.dot(a, a) for _ in range(PRODUCTS)]
        rows.append(Row(name, products * one, milliseconds(lambda w=wait, r=results: w(r))))
        npx.waitall()
    show("waiting in front of ten products", rows)
    check(
        all(row.measured < PRODUCTS * one * 0.6 for row in rows[1:]),
        "waiting for one result does not wait for the others",
    )


if __name__ == "__main__":
    main()
