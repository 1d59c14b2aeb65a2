"""Memory: how far a training loop may run ahead of the engine, and what that costs.

    python examples/async_memory.py

Three loops train the same network:

    barrier   waits after each batch until all work is done
    overlap   waits for the batch before the one it has just issued
    none      never waits: it issues batch after batch

The engine bounds the number of queued operations, and allocates memory when an operation starts,
not when it is issued. The prediction is therefore that `none` needs the memory of `barrier` plus
that of the batches in flight, and takes no longer.

What to look for: `none` holds at most 64 MB more than `barrier`, takes at most 5 % longer, and runs
at least two batches ahead. The exit status is 1 if an expectation is not met.

Each loop runs in a process of its own, because the peak memory of a process never goes down.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from prediction import Row, check, finish, show

from gemel import _core, autograd, gluon, np, npx, profiler
from gemel.gluon import nn

BATCH, INPUTS = 1024, 512
LOOPS = ("barrier", "overlap", "none")
#: How much more memory a loop may hold than the one with barriers.
ALLOWED_MEGABYTES = 64


def batches(count: int) -> Iterator[tuple[Any, Any]]:
    """Random examples and constant labels, computed by the engine."""
    for _ in range(count):
        yield np.random.normal(size=(BATCH, INPUTS)), np.ones((BATCH,))


def network() -> tuple[Any, Any, Any]:
    """A perceptron with two hidden layers, its loss and its trainer."""
    net = nn.Sequential()
    net.add(nn.Dense(2048, activation="relu"), nn.Dense(512, activation="relu"), nn.Dense(1))
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.005})
    return net, gluon.loss.L2Loss(), trainer


def train(kind: str, count: int, traced: bool) -> dict[str, float]:
    """Run one loop.

    Returns its time, how much the peak memory grew during it (all arrays, and the whole process),
    and, if traced, how many batches it ran ahead.
    """
    net, loss, trainer = network()

    def step(x: Any, y: Any) -> Any:
        with autograd.record():
            value = loss(y, net(x))
        value.backward()
        trainer.step(BATCH)
        return value

    for x, y in batches(2):
        step(x, y)
    npx.waitall()
    before = _core.counters()["bytes_in_use"]
    _core.reset_peak()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if traced:
        profiler.set_state("run")
    start = time.perf_counter()
    last = None
    for x, y in batches(count):
        value = step(x, y)
        if kind == "barrier":
            npx.waitall()
        elif kind == "overlap" and last is not None:
            last.wait_to_read()
        last = value
    npx.waitall()
    seconds = time.perf_counter() - start
    found = {
        "seconds": seconds,
        "megabytes": (_core.counters()["peak_bytes"] - before) / 1e6,
        "resident": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident) / 1e3,
        "operations": _core.counters()["operations"],
    }
    if traced:
        found["ahead"] = batches_ahead(profiler.recording())
    return found


def batches_ahead(trace: profiler.Trace) -> float:
    """How many batches, at most, were issued before an earlier one had drawn its examples.

    The operation `normal` draws them, once for each batch.
    """
    starts = [o for o in trace.operations if o.name == "normal"]
    most = 0
    for index, first in enumerate(starts):
        issued = sum(1 for later in starts[index + 1 :] if later.issued < first.finished)
        most = max(most, issued)
    return float(most)


def in_process(kind: str, count: int, traced: bool = False) -> dict[str, float]:
    """Run one loop in a new process."""
    command = [sys.executable, __file__, "--loop", kind, "--batches", str(count)]
    output = subprocess.run(
        command + ["--traced"] * traced, check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument(
        "--rounds", type=int, default=3, help="processes for each loop (default: 3)"
    )
    parser.add_argument("--loop", choices=LOOPS, help="run one loop, in this process")
    parser.add_argument(
        "--traced", action="store_true", help="with --loop: count the batches issued ahead"
    )
    arguments = parser.parse_args()
    if arguments.loop:
        print(json.dumps(train(arguments.loop, arguments.batches, arguments.traced)))
        return
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in LOOPS}
    for _ in range(arguments.rounds):
        for kind in LOOPS:
            found[kind].append(in_process(kind, arguments.batches))
    best = {kind: min(runs, key=lambda run: run["seconds"]) for kind, runs in found.items()}
    report(best, arguments.batches)
    ahead = in_process("none", min(arguments.batches, 60), traced=True)["ahead"]
    check(ahead >= 2, f"{ahead:.0f} batches were issued ahead of the one that ran (at least 2)")
    finish()


def report(best: dict[str, dict[str, float]], batches_run: int) -> None:
    """Print the table and check the expectations."""
    barrier, none = best["barrier"], best["none"]
    rows = [Row(f"{kind}: time", barrier["seconds"], best[kind]["seconds"], "s") for kind in LOOPS]
    rows += [
        Row(f"{kind}: memory", barrier["megabytes"], best[kind]["megabytes"], "MB")
        for kind in LOOPS
    ]
    show(f"{batches_run} batches of {BATCH}, waiting after each, one behind, never", rows)
    more = none["megabytes"] - barrier["megabytes"]
    resident = none["resident"] - barrier["resident"]
    check(more < ALLOWED_MEGABYTES, f"never waiting holds {more:.1f} MB more (< 64)")
    check(resident < ALLOWED_MEGABYTES, f"the process is {resident:.1f} MB larger (< 64)")
    check(none["seconds"] <= 1.05 * barrier["seconds"], "and takes no longer")


if __name__ == "__main__":
    main()
