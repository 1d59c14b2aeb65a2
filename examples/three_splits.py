"""Compare three ways to split a network over four GPUs: by data, between layers, across layers.

    python examples/three_splits.py            # under a minute
    python examples/three_splits.py --quick    # smaller, to see that it runs

The same network learns scikit-learn's digits on one device and on four simulated GPUs, each behind
a link of its own:

- by data: each GPU has the whole network, and a quarter of each batch
- between layers: each GPU has some of the layers, and the batch passes through in micro-batches
- across layers: each GPU has a quarter of each large layer, and the whole batch

What to look for: after four steps, each way has the parameters of one device, up to rounding. A
table then shows, for each way, the time of a step, what each link carries, what each GPU holds, and
how long the GPUs are idle. Below it are what each GPU waited for, and the idle time of a pipeline
by the number of micro-batches. docs/parallel.md explains the arithmetic. The exit status is 1 if a
check fails.

The times come from the engine's trace of a step, replayed as if each GPU had a core of its own
(replay.py). Only the last column, "ms here", is the time on this machine, whose cores the GPUs
share.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from prediction import check, finish, introduce
from replay import FREE, Link, Step, named, replay

from gemel import cpu, device, gluon, gpu, init, np, npx, profiler
from gemel.gluon import nn, parallel

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("examples/three_splits.py needs scikit-learn's digits: pip install scikit-learn")

QUICK = "--quick" in sys.argv
GPUS = 4
PAIRS = 4  # of layers, one with WIDE outputs and one with NARROW
NARROW, WIDE = (64, 128) if QUICK else (256, 1024)
BATCH, STEPS = (96, 6) if QUICK else (512, 40)
COMPARED = 4  # steps before parameters are compared; later, differences of rounding grow
MICRO_BATCHES = 8
LINK = Link(gigabytes_per_second=4.0, microseconds=20.0)

loss = gluon.loss.SoftmaxCrossEntropyLoss()


def network(cut: bool = False) -> nn.HybridSequential:
    """A network: 64 pixels, pairs of layers, ten scores.

    `cut` makes the pairs of layers that can be split, by columns and by rows.
    """
    first, second = (parallel.ColumnDense, parallel.RowDense) if cut else (nn.Dense, nn.Dense)
    net = nn.HybridSequential()
    net.add(nn.Dense(NARROW, activation="relu", in_units=64))
    for _ in range(PAIRS):
        net.add(first(WIDE, activation="relu", in_units=NARROW))
        net.add(second(NARROW, activation="relu", in_units=WIDE))
    net.add(nn.Dense(10, in_units=NARROW))
    np.random.seed(0)
    net.initialize(init.MSRAPrelu(slope=0))
    return net


#: The layers where stages begin. A stage is a pair; the first and last layer join the nearest.
CUT = [1 + 2 * pair for pair in range(1, PAIRS)]
DEVICES = [gpu(number) for number in range(GPUS)]


def pipeline(order: str, micro_batches: int = MICRO_BATCHES) -> parallel.Split:
    """The network as a pipeline, with one pair of layers in each stage."""
    return parallel.Pipeline(network(), DEVICES, micro_batches, order, CUT)


WAYS: dict[str, Callable[[], parallel.Split]] = {
    "one device": lambda: parallel.DataParallel(network(), [cpu(0)]),
    "by data": lambda: parallel.DataParallel(network(), DEVICES),
    "between layers, GPipe": lambda: pipeline("gpipe"),
    "between layers, 1F1B": lambda: pipeline("1f1b"),
    "across layers": lambda: parallel.TensorParallel(network(cut=True), DEVICES),
}


class Digits(NamedTuple):
    """Images as rows of 64 values from 0 to 1, and which digits they are."""

    x: Any
    y: Any

    def batch(self, number: int) -> Digits:
        """A batch; after the last one, batches start again near the beginning."""
        begin = number * BATCH % (len(self.x) - BATCH + 1)
        return Digits(self.x[begin : begin + BATCH], self.y[begin : begin + BATCH])


def digits() -> tuple[Digits, Digits]:
    """The digits to learn, and 300 held out."""
    images, labels = load_digits(return_X_y=True)
    x, y = np.array(images / 16, dtype="float32"), np.array(labels)
    held = 300
    return Digits(x[held:], y[held:]), Digits(x[:held], y[:held])


class Trained(NamedTuple):
    """A split network after its training."""

    split: parallel.Split
    trainer: gluon.Trainer
    values: list[Any]  # the parameters after COMPARED steps
    accuracy: float
    milliseconds: float  # of a step, on this machine


def trained(make: Callable[[], parallel.Split], data: Digits, held: Digits) -> Trained:
    """Train a split network on the digits, for STEPS steps."""
    split = make()
    split.hybridize()
    settings = {"learning_rate": 0.005, "momentum": 0.9}
    trainer = gluon.Trainer(split.collect_params(), "sgd", settings)
    start, timed = 0.0, STEPS - COMPARED
    values: list[Any] = []
    for number in range(STEPS):
        if number == COMPARED:
            values = [p.gathered().copyto(cpu(0)) for p in split.collect_params().values()]
            npx.waitall()
            start = time.perf_counter()
        split.step(trainer, *data.batch(number), loss)
    npx.waitall()
    taken = (time.perf_counter() - start) * 1000 / timed
    found = split(held.x).as_in_ctx(cpu(0)).argmax(axis=1)
    return Trained(split, trainer, values, float((found == held.y).mean()), taken)


def traced(split: parallel.Split, trainer: gluon.Trainer, batch: Digits) -> Any:
    """The engine's trace of one training step."""
    npx.waitall()
    profiler.set_state("run")
    split.step(trainer, *batch, loss)
    profiler.set_state("stop")
    return profiler.recording()


def held_bytes(found: Trained) -> dict[int, int]:
    """The bytes of parameters, gradients and momentum, by device."""
    total: dict[int, int] = {}
    for parameter in found.split.collect_params().values():
        for array in parameter.list_data():
            code = array.device.code
            total[code] = total.get(code, 0) + 3 * array.nbytes
    return total


def megabytes(*counts: float) -> str:
    """Byte counts in megabytes: one number if they are equal, else the smallest and largest."""
    low, high = min(counts) / 1e6, max(counts) / 1e6
    return f"{high:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"


def show(name: str, found: Trained, step: Step) -> None:
    """Print one row of the table."""
    inwards = [step.moved.get((device.code, True), 0) for device in DEVICES]
    outwards = [step.moved.get((device.code, False), 0) for device in DEVICES]
    held = held_bytes(found)
    print(
        f"  {name:22} {step.whole / 1000:8.2f} {megabytes(*inwards):>13} "
        f"{megabytes(*outwards):>13} {megabytes(*(held[d.code] for d in DEVICES)):>14} "
        f"{megabytes(*step.kept.values()):>13} {step.idle:7.1%} {found.milliseconds:9.1f}"
    )


def waits(name: str, step: Step) -> None:
    """Print what each GPU waited for."""
    for code, reasons in step.waited.items():
        said = ", ".join(f"{share / step.whole:6.1%} for {why}" for why, share in reasons.items())
        print(f"  {name:22} {named(code)}: computing {step.busy[code] / step.whole:6.1%}, {said}")
        name = ""


def compare(data: Digits, held: Digits) -> None:
    """Train in each way, compare the parameters, and print the tables."""
    results = {name: trained(make, data, held) for name, make in WAYS.items()}
    alone = results["one device"]
    print(
        f"\nbatch {BATCH}: how far the parameters are from one device's after {COMPARED} steps, "
        f"and what they know after {STEPS}"
    )
    for name, found in results.items():
        furthest = max(
            np.abs(a - b).max().item() for a, b in zip(found.values, alone.values, strict=True)
        )
        check(furthest < 1e-5, f"{name:22} {furthest:.1e}; {found.accuracy:.1%} of held-out digits")
    steps = {
        name: replay(traced(found.split, found.trainer, data.batch(0)), GPUS, LINK)
        for name, found in results.items()
        if name != "one device"
    }
    print(
        f"\na step; links of {LINK.gigabytes_per_second:g} GB/s and {LINK.microseconds:g} us each "
        f"way; {MICRO_BATCHES} micro-batches\n"
        f"  {'':22} {'ms':>8} {'MB in/link':>13} {'MB out/link':>13} {'MB held/GPU':>14} "
        f"{'activations':>13} {'idle':>7} {'ms here':>9}"
    )
    for name, step in steps.items():
        show(name, results[name], step)
    print(
        "  (held: parameters, gradients and momentum; a copy between GPUs is on the sender's\n"
        "  link; ms here: wall time, the GPUs sharing this machine's cores)"
    )
    print("\nwhat must be waited for")
    for name, step in steps.items():
        waits(name, step)
    expected(steps)


def expected(steps: dict[str, Step]) -> None:
    """Compare the traces with the arithmetic of docs/parallel.md."""
    print("\narithmetic")
    weights = (
        64 * NARROW + NARROW + PAIRS * (2 * NARROW * WIDE + NARROW + WIDE) + 10 * NARROW + 10
    ) * 4
    batch = BATCH * 4
    # Each gradient is summed on one of the four GPUs: three parts arrive there, three sums leave.
    # A ring would carry as much, a sum on the CPU a third more.
    summed = sum(steps["by data"].moved.values()) / (2 * 3 * weights)
    check(0.95 < summed < 1.4, f"by data: links carry {summed:.2f} x 2 (p - 1) x the gradients")
    for name in ("between layers, GPipe", "between layers, 1F1B"):
        passed = sum(steps[name].moved.values()) / ((GPUS - 1) * 2 * NARROW * batch + 64 * batch)
        check(0.95 < passed < 1.1, f"{name}: {passed:.2f} x the cuts, each way once, and the batch")
    reduced = sum(steps["across layers"].moved.values()) / (
        GPUS * (PAIRS * 2 * 2 * NARROW * batch + 64 * batch)
    )
    check(
        0.95 < reduced < 1.3,
        f"across layers: {reduced:.2f} x an all-reduce for each pair, forward and backward",
    )
    gpipe, turns = (steps[f"between layers, {name}"].kept for name in ("GPipe", "1F1B"))
    ratio = gpipe[DEVICES[-1].code] / turns[DEVICES[-1].code]
    check(ratio > 3, f"the last stage keeps {ratio:.1f} x as much with GPipe as with 1F1B")


def bubbles(data: Digits) -> None:
    """Compare the idle time of pipelines with (p - 1) / (m + p - 1), if copies take no time.

    p is the number of stages, m that of micro-batches.
    """
    print("\nthe bubble of a pipeline: idle share of all devices, copies free, and with the links")
    print("   m   (p-1)/(m+p-1)    GPipe     1F1B   with links: GPipe     1F1B")
    counts = (1, 4, 8) if QUICK else (1, 2, 4, 8, 16)
    for count in counts:
        free, real = [], []
        for order in ("gpipe", "1f1b"):
            split = pipeline(order, count)
            split.hybridize()
            trainer = gluon.Trainer(split.collect_params(), "sgd")
            for _ in range(3):  # after these, everything is compiled
                split.step(trainer, *data.batch(0), loss)
            trace = traced(split, trainer, data.batch(0))
            free.append(replay(trace, GPUS, FREE).idle)
            real.append(replay(trace, GPUS, LINK).idle)
        known = (GPUS - 1) / (count + GPUS - 1)
        print(
            f"  {count:2}   {known:13.1%} {free[0]:8.1%} {free[1]:8.1%} {real[0]:19.1%} "
            f"{real[1]:8.1%}"
        )
        # The formula assumes equal stages, but the first and the last have one layer more.
        near = all(abs(share - known) < (0.2 if QUICK else 0.06) for share in free)
        check(near, f"m = {count}: both orders are as idle as the formula says")


def main() -> None:
    introduce(__doc__, "--quick")
    device.simulate(GPUS, LINK.gigabytes_per_second, LINK.microseconds)
    data, held = digits()
    compare(data, held)
    bubbles(data)
    npx.waitall()
    finish()


if __name__ == "__main__":
    main()
