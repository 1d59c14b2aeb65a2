"""gemel from process start to a first inference.

Usage: start_gemel.py prepare|run FOLDER VARIANT.

`prepare` saves the parameters in gemel's own format. The kernels come from gemel's cache on disk.
"""

import time

started = time.perf_counter()

import sys  # noqa: E402
from itertools import pairwise  # noqa: E402

from gemel import gluon, np  # noqa: E402

imported = time.perf_counter()


def network(sizes: list[int]) -> gluon.nn.HybridSequential:
    """The network, without values of its parameters."""
    net = gluon.nn.HybridSequential()
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        activation = "relu" if index < len(sizes) - 2 else None
        net.add(gluon.nn.Dense(outputs, activation=activation, in_units=inputs))
    return net


def numbers(count: int, position: int = 0) -> list[float]:
    """Some of the prepared numbers."""
    import array

    values = array.array("f")
    with open("numbers.bin", "rb") as file:
        file.seek(4 * position)
        values.fromfile(file, count)
    return values.tolist()


def prepare(sizes: list[int]) -> None:
    """Save the parameters."""
    net = network(sizes)
    net.initialize()
    position = sizes[0]
    for layer, (inputs, outputs) in zip(net, pairwise(sizes), strict=True):
        weight = np.array(numbers(inputs * outputs, position)).reshape(outputs, inputs)
        layer.weight.set_data(weight)
        position += inputs * outputs
        layer.bias.set_data(np.array(numbers(outputs, position)))
        position += outputs
    net.save_parameters("mlp.params")


def main(sizes: list[int]) -> None:
    """Load the parameters, infer, and print the time stamps."""
    net = network(sizes)
    net.load_parameters("mlp.params")
    if sys.argv[3] == "hybridized":
        net.hybridize()
    values = net(np.array([numbers(sizes[0])])).reshape(-1).tolist()
    inferred = time.perf_counter()

    import json

    heavy = [name for name in ("numpy", "llvmlite") if name in sys.modules]
    stamps = {"started": started, "imported": imported, "inferred": inferred}
    print(json.dumps({**stamps, "values": values, "heavy": heavy}))


sizes_of_layers = [512, 256, 128, 2]
if sys.argv[1] == "run":
    main(sizes_of_layers)
else:
    prepare(sizes_of_layers)
