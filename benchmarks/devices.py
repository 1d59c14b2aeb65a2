"""Data-parallel training on two logical devices: `python -m benchmarks devices`.

A 512-256-128-2 network is trained with a batch of 4096 on one device with one core, on two devices
with one core each, and on one device with two cores, in turns. Processor time is measured, too: it
remains meaningful while other programs run.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from benchmarks.engine import Figures, Promise, report
from benchmarks.machine import ROOT

BATCH, STEPS, ROUNDS = 4096, 8, 9

PROMISES = (
    Promise("training", "gain", "one device / two, a core each", "", 1.8, True),
    Promise("training", "share", "one device with two cores / two with a core", "", 0.95, True),
    Promise("training", "work", "the same in processor time: two / one", "", 1.05),
    Promise("training", "one", "a step on one device", "ms", None),
    Promise("training", "issue", "of that, issuing it", "ms", None),
    Promise("training", "issue_two", "issuing it on two", "ms", None),
    Promise("training", "apart", "largest difference of parameters after 100 steps", "", 1e-4),
)


def stepper(numbers: list[int]) -> tuple[Callable[[], None], list[object]]:
    """A training step on some devices, and the parameters that it changes."""
    from gemel import autograd, cpu, gluon, init, np
    from gemel.gluon import nn

    places = [cpu(number) for number in numbers]
    np.random.seed(0)
    net = nn.HybridSequential()
    for inputs, units, activation in ((512, 256, "relu"), (256, 128, "relu"), (128, 2, None)):
        net.add(nn.Dense(units, activation, in_units=inputs))
    net.initialize(init.Xavier(), device=places)
    net.hybridize()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})
    x = np.random.normal(size=(BATCH, 512))
    y = (x[:, :256].sum(axis=1) > 0).astype("int64")

    def step() -> None:
        parts = [gluon.utils.split_and_load(part, places) for part in (x, y)]
        with autograd.record():
            losses = [loss(net(a), b) for a, b in zip(*parts, strict=True)]
        for one in losses:
            one.backward()
        trainer.step(BATCH)

    return step, list(net.collect_params().values())


def training() -> Figures:
    """Time the three ways in turns. The minimum counts, because other programs only add time."""
    from gemel import cpu, device, np, npx

    (alone, whole), (both, split) = stepper([0]), stepper([0, 1])
    for _ in range(100):
        alone()
        both()
    apart = max(
        np.abs(a.data() - b.data(cpu(0))).max().item()  # type: ignore[attr-defined]
        for a, b in zip(whole, split, strict=True)
    )
    ways = {"one": (alone, 1), "two": (both, 1), "cores": (alone, None)}
    wall, work, issue = ({name: float("inf") for name in ways} for _ in range(3))
    for _ in range(ROUNDS):
        for name, (step, cores) in ways.items():
            for number in (0, 1):
                device.cores(number, cores)
            npx.waitall()
            start = time.perf_counter(), time.process_time(), time.thread_time()
            for _ in range(STEPS):
                step()
            issue[name] = min(issue[name], time.thread_time() - start[2])
            npx.waitall()
            wall[name] = min(wall[name], time.perf_counter() - start[0])
            work[name] = min(work[name], time.process_time() - start[1])
    each = 1000 / STEPS
    return {
        "gain": wall["one"] / wall["two"],
        "share": wall["cores"] / wall["two"],
        "work": work["two"] / work["one"],
        "one": wall["one"] * each,
        "issue": issue["one"] * each,
        "issue_two": issue["two"] * each,
        "apart": apart,
    }


CASES: dict[str, Callable[[], Figures]] = {"training": training}


def run(rounds: int) -> bool:
    """Measure and print every promise. Returns whether one was broken."""
    return report("data-parallel training", "benchmarks.devices", PROMISES, list(CASES), rounds)


if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if entry not in ("", str(ROOT))] + [str(ROOT)]
    print(json.dumps(CASES[sys.argv[1]]()))
