"""JAX from process start to a first inference.

Usage: start_jax.py prepare|run FOLDER VARIANT.

The compiled function comes from JAX's persistent cache.
"""

import time

started = time.perf_counter()

import sys  # noqa: E402
from itertools import pairwise  # noqa: E402

import jax  # noqa: E402
import numpy  # noqa: E402

imported = time.perf_counter()


def forward(layers: list, x: object) -> object:
    for weight, bias in layers[:-1]:
        x = jax.nn.relu(x @ weight.T + bias)
    weight, bias = layers[-1]
    return x @ weight.T + bias


def main() -> None:
    """Read the numbers, infer, and print the time stamps."""
    import json

    with open("sizes.json") as file:
        sizes = json.load(file)
    numbers = numpy.fromfile("numbers.bin", numpy.float32)
    x, position = numbers[: sizes[0]].reshape(1, -1), sizes[0]
    layers = []
    for inputs, outputs in pairwise(sizes):
        weight = numbers[position : position + inputs * outputs].reshape(outputs, inputs)
        position += inputs * outputs
        layers.append((weight, numbers[position : position + outputs]))
        position += outputs
    values = numpy.asarray(jax.jit(forward)(layers, x)).ravel().tolist()
    inferred = time.perf_counter()
    stamps = {"started": started, "imported": imported, "inferred": inferred}
    print(json.dumps({**stamps, "values": values, "heavy": ["numpy"]}))


if sys.argv[1] == "run":
    main()
