"""The guarantees of the engine, measured: `python -m benchmarks engine`.

Each case runs in processes of its own, which take turns. Figures are medians over the processes,
and each case checks what it has computed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

from benchmarks.machine import ROOT
from benchmarks.table import print_rows

TIMEOUT_SECONDS = 300
Figures = dict[str, float]


class Promise(NamedTuple):
    """A figure of a case and its bound. Figures with the `limit` None are only shown."""

    case: str
    figure: str
    text: str
    unit: str
    limit: float | None
    at_least: bool = False

    def kept(self, value: float) -> bool:
        """Whether a value is within the bound."""
        if self.limit is None:
            return True
        return value >= self.limit if self.at_least else value <= self.limit


PROMISES = (
    Promise("behind", "add", "1M-element add behind 20 products, beyond its own time", "ms", 1.0),
    Promise("behind", "chain", "chain of ten small operations there", "ms", 1.0),
    Promise("behind", "other", "operation on cpu(1) there", "ms", 1.0),
    Promise("behind", "queue", "the 20 products themselves", "ms", None),
    Promise("devices", "two", "two devices / one, a core each", "", 0.55),
    Promise("devices", "whole", "two devices with a core / one with both", "", 1.05),
    Promise("link", "hidden", "hidden share of copying behind computing", "", 0.9, True),
    Promise("link", "both", "CPU & GPU / the sum of the parts", "", 0.75),
    Promise("loop", "time", "training loop: no barrier / barrier per batch, time", "", 1.05),
    Promise("loop", "memory", "training loop: memory beyond that with a barrier", "MB", 64),
    Promise("loop", "tracing", "training loop: traced / not traced, time", "", 1.10),
)


# --- cases ----------------------------------------------------------------------------------


def seconds(function: Callable[[], Any]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def behind() -> Figures:
    """Small operations issued behind twenty queued products of 1500 x 1500."""
    from gemel import cpu, np, npx

    a = np.random.normal(size=(1500, 1500))
    big, other = np.ones((1000, 1000)), np.ones((1000, 1000), device=cpu(1))

    def chain() -> Any:
        y = (big * 2)[:4, :4]
        for _ in range(10):
            y = y + 1
        return y

    works: dict[str, tuple[Callable[[], Any], float]] = {
        "add": (lambda: big + 1, 2.0),
        "chain": (chain, 12.0),
        "other": (lambda: other + 1, 2.0),
    }
    found: Figures = {}
    for name, (work, value) in works.items():
        work().wait_to_read()
        npx.waitall()
        own = median(seconds(lambda w=work: w().wait_to_read()) for _ in range(9))
        late = []
        for _ in range(3):
            queue = [np.dot(a, a) for _ in range(20)]
            time.sleep(0.02)
            start = time.perf_counter()
            result = work()
            result.wait_to_read()
            late.append(time.perf_counter() - start)
            assert result[0, 0].item() == value
            npx.waitall()
            del queue
        found[name] = (median(late) - own) * 1e3
    found["queue"] = 1e3 * seconds(lambda: [[np.dot(a, a) for _ in range(20)], npx.waitall()])
    return found


def devices() -> Figures:
    """40 independent products on one device and on two."""
    from gemel import cpu, device, np, npx

    xs = [np.random.normal(size=(512, 512), device=cpu(i)) for i in (0, 1)]

    def run(*parts: tuple[Any, int]) -> float:
        npx.waitall()
        results = []
        start = time.perf_counter()
        for x, count in parts:
            results += [np.dot(x, x) for _ in range(count)]
        npx.waitall()
        spent = time.perf_counter() - start
        assert (results[0] == results[19]).all() and len(results) == 40
        return spent

    run((xs[0], 20), (xs[1], 20))
    times: dict[str, list[float]] = {"one": [], "two": [], "whole": []}
    for _ in range(7):
        for i in (0, 1):
            device.cores(i, 1)
        times["one"].append(run((xs[0], 40)))
        times["two"].append(run((xs[0], 20), (xs[1], 20)))
        for i in (0, 1):
            device.cores(i)
        times["whole"].append(run((xs[0], 40)))
    best = {name: min(values) for name, values in times.items()}
    return {"two": best["two"] / best["one"], "whole": best["two"] / best["whole"]}


def link() -> Figures:
    """Overlap of computing and copying; a CPU and a simulated GPU at once."""
    from gemel import cpu, device, gpu, np, npx

    device.cores(0, 1)
    device.simulate(1)
    x_cpu = np.random.normal(size=(500, 500))
    x_gpu = x_cpu.as_in_ctx(gpu(0))

    def run(x: Any) -> list[Any]:
        return [np.dot(x, x) for _ in range(40)]

    def home(results: list[Any]) -> list[Any]:
        return [y.as_in_ctx(cpu(0)) for y in results]

    def apart() -> list[Any]:
        results = run(x_gpu)
        npx.waitall()
        return home(results)

    def timed(function: Callable[[], list[Any]]) -> float:
        npx.waitall()
        start = time.perf_counter()
        results = function()
        npx.waitall()
        spent = time.perf_counter() - start
        assert (results[0].as_in_ctx(cpu(0)) == results[-1].as_in_ctx(cpu(0))).all()
        return spent

    computing = min(timed(lambda: run(x_gpu)) for _ in range(3))
    device.simulate(1, gigabytes_per_second=40e6 / computing / 1e9, microseconds=10)
    ready = run(x_gpu)
    works: dict[str, Callable[[], list[Any]]] = {
        "compute": lambda: run(x_gpu),
        "copy": lambda: home(ready),
        "apart": apart,
        "together": lambda: home(run(x_gpu)),
        "cpu": lambda: run(x_cpu),
        "both": lambda: run(x_cpu) + run(x_gpu),
    }
    best = {name: float("inf") for name in works}
    for _ in range(7):
        for name, work in works.items():
            best[name] = min(best[name], timed(work))
    hidden = (best["apart"] - best["together"]) / min(best["compute"], best["copy"])
    return {"hidden": hidden, "both": best["both"] / (best["cpu"] + best["compute"])}


def loop() -> Figures:
    """A training loop with a barrier per batch, without one, and traced."""
    from gemel import _core, autograd, gluon, np, npx, profiler
    from gemel.gluon import nn

    net = nn.Sequential()
    net.add(nn.Dense(2048, activation="relu"), nn.Dense(512, activation="relu"), nn.Dense(1))
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.005})
    loss_of = gluon.loss.L2Loss()

    def train(count: int, barrier: bool) -> tuple[float, float]:
        npx.waitall()
        _core.reset_peak()
        start = time.perf_counter()
        for _ in range(count):
            x, y = np.random.normal(size=(1024, 512)), np.ones((1024,))
            with autograd.record():
                loss = loss_of(y, net(x))
            loss.backward()
            trainer.step(1024)
            if barrier:
                npx.waitall()
        npx.waitall()
        spent = time.perf_counter() - start
        assert abs(loss.mean().item()) < 10
        return spent, _core.counters()["peak_bytes"] / 1e6

    train(3, True)
    found: dict[str, list[tuple[float, float]]] = {"barrier": [], "none": [], "traced": []}
    for _ in range(5):
        found["barrier"].append(train(12, True))
        found["none"].append(train(12, False))
        profiler.set_state("run")
        found["traced"].append(train(12, False))
        profiler.set_state("stop")
    best = {name: min(time for time, _ in runs) for name, runs in found.items()}
    peak = {name: max(memory for _, memory in runs) for name, runs in found.items()}
    return {
        "time": best["none"] / best["barrier"],
        "memory": peak["none"] - peak["barrier"],
        "tracing": best["traced"] / best["none"],
    }


CASES: dict[str, Callable[[], Figures]] = {
    "behind": behind,
    "devices": devices,
    "link": link,
    "loop": loop,
}


# --- the table ------------------------------------------------------------------------------


def once(module: str, case: str) -> Figures:
    """Run one case in a process of its own. Returns its figures."""
    process = subprocess.run(
        [sys.executable, "-m", module, case],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    if process.returncode != 0:
        raise RuntimeError(f"{case}: {process.stderr.strip()}")
    found: Figures = json.loads(process.stdout.splitlines()[-1])
    return found


def run(rounds: int) -> bool:
    """Measure and print every promise. Returns whether one was broken."""
    return report("what the engine promises", "benchmarks.engine", PROMISES, list(CASES), rounds)


def report(
    title: str, module: str, promises: tuple[Promise, ...], cases: list[str], rounds: int
) -> bool:
    """Measure a module's cases and print its promises. Returns whether one was broken."""
    found: dict[str, list[Figures]] = {case: [] for case in cases}
    for _ in range(rounds):
        for case in cases:
            found[case].append(once(module, case))
    rows, broken = [], False
    for promise in promises:
        values = [figures[promise.figure] for figures in found[promise.case]]
        value = median(values)
        broken |= not promise.kept(value)
        sign = ">=" if promise.at_least else "<="
        limit = "" if promise.limit is None else f"{sign} {promise.limit:g}"
        verdict = "" if promise.limit is None else "kept" if promise.kept(value) else "BROKEN"
        spread = f"{min(values):.3g}-{max(values):.3g}"
        rows.append([promise.text, f"{value:.3g} {promise.unit}".strip(), spread, limit, verdict])
    print(f"## {title}, medians of {rounds} processes\n")
    print_rows(["", "measured", "range", "promised", ""], rows)
    return broken


if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if entry not in ("", str(ROOT))] + [str(ROOT)]
    print(json.dumps(CASES[sys.argv[1]]()))
