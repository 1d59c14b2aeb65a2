"""PyTorch from process start to a first inference.

Usage: start_torch.py prepare|run FOLDER VARIANT.
"""

import time

started = time.perf_counter()

import sys  # noqa: E402
from itertools import pairwise  # noqa: E402

import torch  # noqa: E402

imported = time.perf_counter()


def main() -> None:
    """Read the numbers, infer, and print the time stamps."""
    import json

    with open("sizes.json") as file:
        sizes = json.load(file)
    with open("numbers.bin", "rb") as file:
        numbers = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    x, position = numbers[: sizes[0]].reshape(1, -1), sizes[0]
    modules: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        linear = torch.nn.utils.skip_init(torch.nn.Linear, inputs, outputs)
        weight = numbers[position : position + inputs * outputs].reshape(outputs, inputs)
        position += inputs * outputs
        linear.weight.data = weight
        linear.bias.data = numbers[position : position + outputs]
        position += outputs
        modules += [linear, torch.nn.ReLU()]
    net = torch.nn.Sequential(*modules[:-1])
    if sys.argv[3] == "compile":
        net = torch.compile(net)
    with torch.inference_mode():
        values = net(x).ravel().tolist()
    inferred = time.perf_counter()
    heavy = [name for name in ("numpy",) if name in sys.modules]
    stamps = {"started": started, "imported": imported, "inferred": inferred}
    print(json.dumps({**stamps, "values": values, "heavy": heavy}))


if sys.argv[1] == "run":
    main()
