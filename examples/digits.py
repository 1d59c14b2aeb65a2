"""Train a network on handwritten digits twice: imperatively, and compiled by hybridize().

    python examples/digits.py

The data are scikit-learn's 1,797 digits of 8 x 8 pixels, written by 43 people. The same code builds
both networks. The second is hybridized: its forward pass is one compiled program, and its backward
pass another.

What to look for: both networks classify at least 97 % of the test images correctly, and the
hybridized one takes less time per image. With the same parameters, both predict the same digits. A
network restored from saved parameters gives exactly the same outputs. The program stops with FAILED
if a check does not hold; the times are not checked.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time

try:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
except ImportError:
    sys.exit("examples/digits.py needs scikit-learn's digits: pip install scikit-learn")

from gemel import autograd, gluon, init, np, npx
from gemel.gluon import nn

BATCH_SIZE = 32
LEARNING_RATE = 0.001
REQUIRED_ACCURACY = 0.97

#: Images, one row each, and their labels.
Examples = tuple[np.ndarray, np.ndarray]


def main() -> None:
    arguments = parse_arguments()
    train, test = load_data(arguments.seed)

    imperative = make_network()
    hybrid = make_network()
    hybrid.hybridize()

    results = []
    for title, network in (("imperative", imperative), ("hybridized", hybrid)):
        np.random.seed(arguments.seed)
        network.initialize(init.Xavier())
        seconds = fit(title, network, train, arguments.epochs)
        results.append((title, accuracy(network, test), seconds, time_per_image(network, test)))

    print()
    for title, correct, seconds, microseconds in results:
        print(
            f"{title}: test accuracy {correct:.2%}, {seconds:.3f} s per epoch, "
            f"{microseconds:.1f} us per image"
        )
    for title, correct, _, _ in results:
        check(
            correct >= REQUIRED_ACCURACY,
            f"the {title} network reaches {correct:.2%} on the test images; "
            f"{REQUIRED_ACCURACY:.0%} is expected",
        )
    check_same_predictions(imperative, hybrid, test)
    check_saved_parameters(imperative, test)
    print("all checks passed")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30, help="passes over the data (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="seed of random numbers (default: 0)")
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error("--epochs must be at least 1")
    return arguments


def load_data(seed: int) -> tuple[gluon.data.ArrayDataset, Examples]:
    """Three quarters of the digits to train on, and a quarter to test on.

    Each digit has the same share of both parts.
    """
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")  # pixels are 0 to 16
    parts = train_test_split(
        images, labels.astype("int32"), test_size=0.25, stratify=labels, random_state=seed
    )
    train_images, test_images, train_labels, test_labels = parts
    print(f"{len(train_images)} images to train on, {len(test_images)} to test")
    return (
        gluon.data.ArrayDataset(train_images, train_labels),
        (np.array(test_images), np.array(test_labels)),
    )


def make_network() -> nn.HybridSequential:
    network = nn.HybridSequential()
    network.add(
        nn.Dense(256, activation="relu"),
        nn.Dense(128, activation="relu"),
        nn.Dense(10),
    )
    return network


def fit(
    title: str, network: nn.HybridSequential, train: gluon.data.ArrayDataset, epochs: int
) -> float:
    """Train and print one line per epoch. Returns the median time of an epoch in seconds."""
    batches = gluon.data.DataLoader(train, BATCH_SIZE, shuffle=True)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    settings = {"learning_rate": LEARNING_RATE}
    trainer = gluon.Trainer(network.collect_params(), "adam", settings)
    times = []
    for epoch in range(1, epochs + 1):
        begin = time.perf_counter()
        total = np.zeros(())
        for images, labels in batches:
            with autograd.record():
                batch_loss = loss(network(images), labels)
            batch_loss.backward()
            trainer.step(len(images))
            total += batch_loss.sum()  # stays an array: nothing waits for the engine here
        mean = total.item() / len(train)  # waits for the whole epoch
        times.append(time.perf_counter() - begin)
        print(f"{title}: epoch {epoch:2d}, loss {mean:.4f}, {times[-1]:.3f} s", flush=True)
    return sorted(times)[len(times) // 2]


def predict(network: nn.HybridSequential, test: Examples) -> np.ndarray:
    """The network's outputs for all test images."""
    images, _ = test
    outputs: np.ndarray = network(images)
    return outputs


def accuracy(network: nn.HybridSequential, test: Examples) -> float:
    """The share of test images whose digit is recognised."""
    _, labels = test
    digits = predict(network, test).argmax(axis=1)
    return float((digits == labels).astype("float32").mean())


def time_per_image(network: nn.HybridSequential, test: Examples) -> float:
    """The time for one image at a time, in microseconds: the best of five rounds."""
    images, _ = test
    single = [images[i : i + 1] for i in range(200)]
    rounds = []
    for _ in range(5):
        begin = time.perf_counter()
        for image in single:
            network(image)
        npx.waitall()
        rounds.append((time.perf_counter() - begin) / len(single))
    return min(rounds) * 1e6


def check_same_predictions(
    imperative: nn.HybridSequential, hybrid: nn.HybridSequential, test: Examples
) -> None:
    """Check that both networks predict the same when they have the same parameters."""
    values = imperative.collect_params()
    for name, parameter in hybrid.collect_params().items():
        parameter.set_data(values[name].data())
    left = predict(imperative, test)
    right = predict(hybrid, test)
    difference = np.abs(left - right).max().item()
    same = left.argmax(axis=1).tolist() == right.argmax(axis=1).tolist()
    print(f"same parameters: outputs differ by at most {difference:.1e}")
    check(same, "imperative and hybridized networks predict different digits")
    check(difference < 1e-4, f"imperative and hybridized outputs differ by {difference:.1e}")


def check_saved_parameters(network: nn.HybridSequential, test: Examples) -> None:
    """Check that a new network with the saved parameters gives exactly the same outputs."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "digits.params")
        network.save_parameters(path)
        size = os.path.getsize(path)
        restored = make_network()
        restored.load_parameters(path)
    same = predict(network, test).tolist() == predict(restored, test).tolist()
    check(same, "the network read back from its file gives other outputs")
    print(f"saved and reloaded {size} bytes of parameters: the outputs are the same")


def check(passed: bool, problem: str) -> None:
    if not passed:
        sys.exit(f"FAILED: {problem}")


if __name__ == "__main__":
    main()
