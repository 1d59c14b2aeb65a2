"""Data-parallel training: split each batch over two devices and sum their gradients.

    python examples/multi_device.py            # needs scikit-learn: pip install scikit-learn
    python examples/multi_device.py --quick    # smaller, to see that it runs

The program has three parts:

1. from scratch: the parameters of each device are in a list, and the program sums the gradients
2. with `split_and_load` and a `Trainer`, which sums the gradients
3. larger batches: real digits with batches of B, 4B and 16B. More devices mean larger batches,
   which need a larger learning rate, reached in a warm-up.

The devices are the logical devices `cpu(0)` and `cpu(1)` with one core each. What the program shows
of their speed holds for any two devices.

What to look for: training on two devices gives the same parameters as on one, up to rounding. It is
at least 1.8 times as fast as on one of them. With a warm-up, larger batches cost less than 2 % of
the accuracy. The exit status is 1 if an expectation is not met. With `--quick` nothing is expected
of speed and accuracy.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from prediction import Row, check, finish, introduce, show

from gemel import autograd, cpu, device, gluon, init, lr_scheduler, np, npx
from gemel.device import Device
from gemel.gluon import nn
from gemel.gluon.utils import split_and_load

try:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
except ImportError:
    sys.exit("examples/multi_device.py needs scikit-learn's digits: pip install scikit-learn")

ONE, TWO = [cpu(0)], [cpu(0), cpu(1)]
QUICK = "--quick" in sys.argv
BATCH, STEPS, ROUNDS = (256, 2, 1) if QUICK else (4096, 8, 9)
SMALL, EPOCHS = 16, 4 if QUICK else 20  # the batch size B, and passes over the digits
WARM_UP = EPOCHS // 4

Batch = tuple[np.ndarray, np.ndarray]
loss = gluon.loss.SoftmaxCrossEntropyLoss()


# ---- from scratch


def get_parameters(values: list[np.ndarray], place: Device) -> list[np.ndarray]:
    """Copy the parameters to a device, and attach gradients."""
    copies = [value.copyto(place) for value in values]
    for parameter in copies:
        parameter.attach_grad()
    return copies


def mlp(x: np.ndarray, parameters: list[np.ndarray]) -> np.ndarray:
    """A perceptron with two layers."""
    w1, b1, w2, b2 = parameters
    return np.dot(npx.relu(np.dot(x, w1) + b1), w2) + b2


def all_reduce(gradients: list[np.ndarray]) -> None:
    """Give every device the sum of all devices' gradients of one parameter."""
    for other in gradients[1:]:
        gradients[0][...] += other.as_in_ctx(gradients[0].device)
    for other in gradients[1:]:
        gradients[0].copyto(other)


def step_from_scratch(replicas: list[list[np.ndarray]], batch: Batch, rate: float) -> None:
    """Run one training step.

    Each device computes its gradients, these are summed, and each device makes the same update.
    """
    places = [replica[0].device for replica in replicas]
    x, y = (split_and_load(part, places) for part in batch)
    with autograd.record():
        losses = [loss(mlp(a, p), b) for a, b, p in zip(x, y, replicas, strict=True)]
    for one in losses:
        one.backward()
    for same in zip(*replicas, strict=True):
        all_reduce([parameter.grad for parameter in same])
    for replica in replicas:
        for parameter in replica:
            parameter[...] -= rate / len(batch[0]) * parameter.grad


def from_scratch(train: Batch) -> None:
    np.random.seed(0)
    shapes = (64, 32), (32,), (32, 10), (10,)
    values = [np.random.normal(0, 0.1, size=shape) for shape in shapes]
    alone = [get_parameters(values, cpu(0))]
    both = [get_parameters(values, place) for place in TWO]
    for begin in range(0, 1024, 64):
        batch = tuple(part[begin : begin + 64] for part in train)
        for replicas in (alone, both):
            step_from_scratch(replicas, batch, 0.5)
    print("from scratch, 16 steps on two devices and on one")
    pairs = zip(alone[0], both[0], strict=True)
    furthest = max(np.abs(a - b).max().item() for a, b in pairs)
    check(furthest < 1e-5, f"the parameters differ by at most {furthest:.1e}")


# ---- with a Trainer


def make_network(places: list[Device], *units: int) -> nn.HybridSequential:
    np.random.seed(1)
    net = nn.HybridSequential()
    for before, after in zip(units[:-2], units[1:-1], strict=True):
        net.add(nn.Dense(after, activation="relu", in_units=before))
    net.add(nn.Dense(units[-1], in_units=units[-2]))
    net.initialize(init.Xavier(), device=places)
    net.hybridize()
    return net


def stepper(places: list[Device], batch: Batch) -> tuple[Callable[[], None], nn.HybridSequential]:
    """A training step of a 512-256-128-2 network on some devices, and the network."""
    net = make_network(places, 512, 256, 128, 2)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})

    def step() -> None:
        x, y = (split_and_load(part, places) for part in batch)
        with autograd.record():
            losses = [loss(net(a), b) for a, b in zip(x, y, strict=True)]
        for one in losses:
            one.backward()
        trainer.step(len(batch[0]))

    return step, net


def milliseconds(step: Callable[[], None]) -> float:
    """The mean time of a step, from an empty queue until all work is done."""
    npx.waitall()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    npx.waitall()
    return (time.perf_counter() - start) * 1000 / STEPS


def shares(*cores: int | None) -> None:
    """Set how many cores `cpu(0)` and `cpu(1)` have; None means all."""
    for number, count in enumerate(cores):
        device.cores(number, count)


def concise() -> None:
    np.random.seed(2)
    x = np.random.normal(size=(BATCH, 512))
    batch = x, (x[:, :256].sum(axis=1) > 0).astype("int64")
    alone, net = stepper(ONE, batch)
    both, parallel = stepper(TWO, batch)
    for _ in range(100):
        alone()
        both()
    pairs = zip(net.collect_params().values(), parallel.collect_params().values(), strict=True)
    furthest = max(np.abs(a.data() - b.data(cpu(0))).max().item() for a, b in pairs)
    print("\nwith a Trainer, 100 steps on two devices and on one")
    check(furthest < 1e-4, f"the parameters differ by at most {furthest:.1e}")

    times: list[list[float]] = [[], [], []]
    for _ in range(ROUNDS):  # in turns; the minimum counts, as noise only adds time
        for found, step, cores in zip(times, (alone, both, alone), (1, 1, None), strict=True):
            shares(cores, cores)
            found.append(milliseconds(step))
    shares(None, None)
    slow, parallel_time, whole = map(min, times)
    rows = [
        Row("cpu(0), one core", None, slow),
        Row("cpu(0) and cpu(1), a core each", slow / 2, parallel_time),
        Row("cpu(0), two cores", slow / 2, whole),
    ]
    show(f"a training step of the network 512-256-128-2, batch {BATCH}", rows)
    if QUICK:
        return
    gain, share = slow / parallel_time, whole / parallel_time
    check(gain >= 1.8, f"two devices are {gain:.2f} x as fast as one (>= 1.8)")
    check(share >= 0.95, f"and {share:.2f} x as fast as one with their cores (>= 0.95)")


# ---- larger batches


def load_data() -> tuple[Batch, Batch]:
    """Scikit-learn's 1,797 digits, a quarter of them held out."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16, labels, random_state=0, stratify=labels)
    x, x_test, y, y_test = (
        np.array(part, dtype="float32" if part.ndim == 2 else "int64") for part in parts
    )
    return (x, y), (x_test, y_test)


def accuracy_after(train: Batch, test: Batch, batch: int, rate: float, warm_up: int) -> float:
    """The test accuracy of a network trained on two devices.

    The learning rate rises to `rate` during the first `warm_up` epochs.
    """
    net = make_network(TWO, 64, 64, 10)
    steps = len(train[0]) // batch
    plan = lr_scheduler.CosineScheduler(
        EPOCHS * steps, base_lr=rate, warmup_steps=warm_up * steps, warmup_begin_lr=rate / 20
    )
    settings: dict[str, Any] = {"lr_scheduler": plan, "momentum": 0.9}
    trainer = gluon.Trainer(net.collect_params(), "sgd", settings)
    data = gluon.data.ArrayDataset(*train)
    for x, y in (b for _ in range(EPOCHS) for b in gluon.data.DataLoader(data, batch, True)):
        parts = [split_and_load(part, TWO, even_split=False) for part in (x, y)]
        with autograd.record():
            losses = [loss(net(a), b) for a, b in zip(*parts, strict=True)]
        for one in losses:
            one.backward()
        trainer.step(len(x))
    return float((net(test[0]).argmax(axis=1) == test[1]).mean())


def larger_batches(train: Batch, test: Batch) -> None:
    print(f"\n{EPOCHS} epochs of {len(train[0])} digits on two devices, B = {SMALL}")
    print("  batch   learning rate   the same   scaled   scaled, after a warm-up")
    rate, found = 0.05, {}
    for factor in (1, 4, 16):
        batch = factor * SMALL
        same, jump, warm = (
            accuracy_after(train, test, batch, r, w)
            for r, w in ((rate, 0), (factor * rate, 0), (factor * rate, WARM_UP))
        )
        found[factor] = same, jump, warm
        print(f"  {batch:5}   {factor * rate:13}   {same:8.1%}   {jump:6.1%}   {warm:6.1%}")
    if QUICK:
        return
    lost = found[1][0] - min(found[4][2], found[16][2])
    check(lost < 0.02, f"with a warm-up, larger batches lose {lost:.1%} of {found[1][0]:.1%}")
    check(found[16][2] > found[16][0], "and with the small batch's rate they learn less")


def main() -> None:
    introduce(__doc__, "--quick")
    train, test = load_data()
    from_scratch(train)
    concise()
    larger_batches(train, test)
    finish()


if __name__ == "__main__":
    main()
