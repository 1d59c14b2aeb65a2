"""Overlap computation and copies: a CPU, a GPU and the link between them, all busy at once.

    python examples/async_overlap.py
    python examples/async_overlap.py --trace out.json     # open the file at ui.perfetto.dev

The GPU is simulated. It computes on a thread of its own, and a copy over its link takes the link's
latency plus the time that its bytes need at the link's bandwidth. The bandwidth is chosen so that
copying a result takes as long as computing one.

What to look for: work on different devices and links takes as long as the longest of its parts, not
as long as their sum. At least 0.9 of the shorter of computing and copying is hidden behind the
longer one. The exit status is 1 if an expectation is not met.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from prediction import Row, check, finish, show

from gemel import cpu, device, gpu, np, npx, profiler

SIDE, PRODUCTS, ROUNDS = 500, 40, 7


def run(x: np.ndarray) -> list[np.ndarray]:
    """Issue independent products on the device of x."""
    return [np.dot(x, x) for _ in range(PRODUCTS)]


def copy_to_cpu(results: list[np.ndarray]) -> list[np.ndarray]:
    """Issue copies of the results to the CPU."""
    return [y.as_in_ctx(cpu(0)) for y in results]


def milliseconds(function: Callable[[], Any]) -> float:
    """The time of a call, from an empty queue until all its work is done."""
    npx.waitall()
    start = time.perf_counter()
    results = function()
    npx.waitall()
    del results
    return (time.perf_counter() - start) * 1000


def typical(*functions: Callable[[], Any]) -> list[float]:
    """The shortest time of each function; the functions take turns.

    The minimum counts, because other programs on the machine can only add time.
    """
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(ROUNDS):
        for function, found in zip(functions, times, strict=True):
            found.append(milliseconds(function))
    return [min(found) for found in times]


def set_up() -> tuple[np.ndarray, np.ndarray]:
    """Limit the CPU to one core, and simulate a GPU. Returns an array on each.

    The GPU's link copies a result in the time of a product.
    """
    device.cores(cpu(0), 1)
    device.simulate(1)
    x_cpu = np.random.normal(size=(SIDE, SIDE), device=cpu(0))
    x_gpu = np.random.normal(size=(SIDE, SIDE), device=gpu(0))
    (computing,) = typical(lambda: run(x_gpu))
    gigabytes = 4 * SIDE * SIDE * PRODUCTS / (computing * 1e-3) / 1e9
    device.simulate(1, gigabytes_per_second=gigabytes, microseconds=10)
    print(f"the link carries {gigabytes:.2f} GB/s")
    return x_cpu, x_gpu


def compute_and_copy(x_gpu: np.ndarray) -> None:
    """Compute on the GPU, and copy each result to the CPU while the next one is computed."""
    ready = run(x_gpu)
    npx.waitall()

    def one_after_the_other() -> Any:
        results = run(x_gpu)
        npx.waitall()
        return copy_to_cpu(results)

    computing, copying, apart, together = typical(
        lambda: run(x_gpu),
        lambda: copy_to_cpu(ready),
        one_after_the_other,
        lambda: copy_to_cpu(run(x_gpu)),
    )
    rows = [
        Row("compute", None, computing),
        Row("copy", None, copying),
        Row("compute, wait, copy", computing + copying, apart),
        Row("compute and copy", max(computing, copying), together),
    ]
    show(f"{PRODUCTS} products of {SIDE} x {SIDE} on the GPU, and their way to the CPU", rows)
    hidden = (apart - together) / min(computing, copying)
    check(hidden >= 0.9, f"{hidden:.2f} of the shorter part is hidden behind the longer (>= 0.9)")


def cpu_gpu_and_link(x_cpu: np.ndarray, x_gpu: np.ndarray) -> None:
    """Compute on the CPU and on the GPU, and copy over the link, all at once."""
    ready = run(x_gpu)
    npx.waitall()
    on_cpu, on_gpu, both, copying, everything = typical(
        lambda: run(x_cpu),
        lambda: run(x_gpu),
        lambda: run(x_cpu) + run(x_gpu),
        lambda: copy_to_cpu(ready),
        lambda: copy_to_cpu(run(x_gpu)) + run(x_cpu),
    )
    rows = [
        Row("CPU", None, on_cpu),
        Row("GPU", None, on_gpu),
        Row("CPU & GPU", max(on_cpu, on_gpu), both),
        Row("link", None, copying),
        Row("CPU & GPU & link", max(on_cpu, on_gpu, copying), everything),
    ]
    show("two devices and the link", rows)
    share = both / (on_cpu + on_gpu)
    check(share < 0.75, f"CPU & GPU take {share:.2f} of the sum of their parts (< 0.75)")
    total = everything / (on_cpu + on_gpu + copying)
    check(total < 0.6, f"all three take {total:.2f} of the sum of their parts (< 0.6)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trace", metavar="FILE", help="also write a trace for Perfetto")
    arguments = parser.parse_args()
    x_cpu, x_gpu = set_up()
    compute_and_copy(x_gpu)
    cpu_gpu_and_link(x_cpu, x_gpu)
    if arguments.trace:
        profiler.set_config(filename=arguments.trace)
        profiler.set_state("run")
        with profiler.scope("CPU & GPU & link"):
            milliseconds(lambda: copy_to_cpu(run(x_gpu)) + run(x_cpu))
        print(f"\n{profiler.dumps()}\n\ntrace written to {profiler.dump()}")
    finish()


if __name__ == "__main__":
    main()
