"""NumPy from process start to a first inference.

Usage: start_numpy.py prepare|run FOLDER VARIANT.
"""

import time

started = time.perf_counter()

import sys  # noqa: E402
from itertools import pairwise  # noqa: E402

import numpy  # noqa: E402

imported = time.perf_counter()


def main() -> None:
    """Read the numbers, infer, and print the time stamps."""
    import json

    with open("sizes.json") as file:
        sizes = json.load(file)
    numbers = numpy.fromfile("numbers.bin", numpy.float32)
    x, position = numbers[: sizes[0]].reshape(1, -1), sizes[0]
    for inputs, outputs in pairwise(sizes):
        weight = numbers[position : position + inputs * outputs].reshape(outputs, inputs)
        position += inputs * outputs
        x = x @ weight.T + numbers[position : position + outputs]
        position += outputs
        if position < len(numbers):
            x = numpy.maximum(x, 0)
    values = x.ravel().tolist()
    inferred = time.perf_counter()
    stamps = {"started": started, "imported": imported, "inferred": inferred}
    print(json.dumps({**stamps, "values": values, "heavy": []}))


if sys.argv[1] == "run":
    main()
