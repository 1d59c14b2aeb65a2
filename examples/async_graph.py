"""Draw the graph of a training step: a two-layer perceptron on a CPU and two simulated GPUs.

    python examples/async_graph.py              # draws step.svg
    python examples/async_graph.py step.json    # the same graph as JSON

The program does not say what may run in parallel. `profiler.graph()` records the operations that
the engine ran in the step, and the dependencies between them.

What to look for in the drawing: each half of the batch is copied to its GPU, and both GPUs compute
at the same time. The gradients of a layer are summed on the CPU as soon as backward has computed
them, while the GPUs still compute the gradients of the layer before it. The program also prints the
operations of each device and the longest chain of dependent operations.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from gemel import autograd, cpu, device, gpu, np, npx, profiler

SIZES = (64, 32, 10)
BATCH, RATE = 128, 0.1


class Perceptron(NamedTuple):
    """Weights and biases of two layers, on one device."""

    parameters: list[np.ndarray]

    def loss(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The summed squared error."""
        w1, b1, w2, b2 = self.parameters
        hidden = npx.relu(np.dot(x, w1) + b1)
        return np.square(np.dot(hidden, w2) + b2 - y).sum()


def parameters() -> list[np.ndarray]:
    """The initial parameters of the network, on the CPU."""
    found = []
    for rows, columns in zip(SIZES, SIZES[1:], strict=False):
        found += [np.random.normal(scale=0.1, size=(rows, columns)), np.zeros((columns,))]
    return found


def on_device(values: list[np.ndarray], place: device.Device) -> Perceptron:
    """A copy of the network on a device, ready to be differentiated."""
    copies = [value.as_in_ctx(place) for value in values]
    for copy in copies:
        copy.attach_grad()
    return Perceptron(copies)


def step(
    values: list[np.ndarray], networks: list[Perceptron], x: np.ndarray, y: np.ndarray
) -> list[np.ndarray]:
    """Run one training step. Returns the loss of each device's part of the batch."""
    places = [network.parameters[0].device for network in networks]
    size = len(x) // len(places)
    parts = [slice(i * size, (i + 1) * size) for i in range(len(places))]
    data = [
        (x[part].as_in_ctx(place), y[part].as_in_ctx(place))
        for part, place in zip(parts, places, strict=True)
    ]
    with autograd.record():
        losses = [net.loss(*pair) for net, pair in zip(networks, data, strict=True)]
    for loss in losses:
        loss.backward()
    # Backward computes the gradients of the last layer first, so they are summed first.
    for index in reversed(range(len(values))):
        reduce_and_update(values[index], [net.parameters[index] for net in networks])
    return losses


def reduce_and_update(value: np.ndarray, copies: list[np.ndarray]) -> None:
    """Sum the gradients of one parameter on the CPU, update it, and copy it to all devices."""
    total = sum(copy.grad.as_in_ctx(cpu(0)) for copy in copies)
    value -= RATE / BATCH * total
    for copy in copies:
        value.copyto(copy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "file", nargs="?", default="step.svg", help=".svg or .json (default: step.svg)"
    )
    arguments = parser.parse_args()
    device.simulate(2)
    np.random.seed(0)
    values = parameters()
    networks = [on_device(values, gpu(i)) for i in range(2)]
    x, y = np.random.normal(size=(BATCH, SIZES[0])), np.random.normal(size=(BATCH, SIZES[-1]))
    first = sum(loss.item() for loss in step(values, networks, x, y))
    with profiler.graph() as graph:
        losses = step(values, networks, x, y)
    graph.save(arguments.file)
    last = sum(loss.item() for loss in losses)
    print(f"loss {first:.1f}, after a step {last:.1f}")
    for name, nodes in graph.devices().items():
        print(f"{name}: {', '.join(node.name for node in nodes)}")
    print(f"{len(graph.nodes)} operations, {len(graph.copies())} copies between devices")
    print(f"the longest chain: {' > '.join(node.name for node in graph.critical_path())}")
    print(f"drawn in {arguments.file}")


if __name__ == "__main__":
    main()
