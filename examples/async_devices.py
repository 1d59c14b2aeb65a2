"""Independent operations run in parallel, on two devices and on one.

    python examples/async_devices.py

Nothing in this program says what may run in parallel: the engine knows which operations depend on
each other and runs the others side by side. First, 40 independent matrix products run on one device
with one core, on two devices with one core each, and on one device with all cores. Then ten
products run on one device under the profiler, whose trace says how many ran at a time.

What to look for: the table shows a prediction next to each measurement. Two devices should need
half the time of one device with one core, and no more than one device with the same number of
cores. The exit status is 1 if an expectation is not met.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from prediction import Row, check, finish, introduce, show

from gemel import cpu, device, np, npx, profiler

SIDE, PRODUCTS, ROUNDS = 512, 20, 7


def milliseconds(function: Callable[[], Any]) -> float:
    """The time of a call, from an empty queue until all its work is done."""
    npx.waitall()
    start = time.perf_counter()
    results = function()
    npx.waitall()
    del results
    return (time.perf_counter() - start) * 1000


def run(x: np.ndarray, count: int = PRODUCTS) -> list[np.ndarray]:
    """Issue products that do not depend on each other."""
    return [np.dot(x, x) for _ in range(count)]


def main() -> None:
    introduce(__doc__)
    xs = [np.random.normal(size=(SIDE, SIDE), device=cpu(i)) for i in (0, 1)]
    milliseconds(lambda: run(xs[0]) + run(xs[1]))
    cores = device.cpu_count()
    one, two, all_cores = [], [], []
    for _ in range(ROUNDS):
        for i in (0, 1):
            device.cores(i, 1)
        one.append(milliseconds(lambda: run(xs[0], 2 * PRODUCTS)))
        two.append(milliseconds(lambda: run(xs[0]) + run(xs[1])))
        for i in (0, 1):
            device.cores(i)
        all_cores.append(milliseconds(lambda: run(xs[0], 2 * PRODUCTS)))
    alone, both, whole = median(one), median(two), median(all_cores)
    rows = [
        Row("cpu(0), one core", None, alone),
        Row("cpu(0) and cpu(1), a core each", alone / 2, both),
        Row("cpu(0), all cores", alone / cores, whole),
    ]
    show(f"{2 * PRODUCTS} independent products of {SIDE} x {SIDE}, {cores} cores", rows)
    check(both <= 0.55 * alone, "two devices take at most 0.55 of the time of one")
    check(both <= 1.05 * whole, "and no more than one device with their cores")
    ten_products(xs[0])
    finish()


def ten_products(x: np.ndarray) -> None:
    """Check in the trace that ten independent products on one device run in parallel."""
    with profiler.graph() as graph:
        run(x, 10)
    products = graph.named("matmul")
    threads = {product.thread for product in products}
    busy = sum(product.duration for product in products)
    whole = max(p.finished for p in products) - min(p.started for p in products)
    helped = busy / whole
    print(f"\nten independent products: no edges between them ({len(graph.edges)}), run by")
    print(f"  {len(threads)} threads, {helped:.2f} at a time on average")
    check(len(graph.edges) == 0, "they do not depend on each other")
    check(len(threads) > 1 and helped > 1.5, "they run in parallel")


if __name__ == "__main__":
    main()
