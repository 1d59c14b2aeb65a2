"""Writes facts about MXNet 1.9.1's model zoo to `zoo.json` beside this file.

Run with a Python that has mxnet==1.9.1 and numpy==1.23.5: ``python tests/references/zoo_mxnet.py``.
The facts are each network's number of parameters, a digest of their names and shapes at the usual
size of images, and its 10 outputs for the parameters and the image that `values` makes.
`zoo_small.bin` is a small residual network of the zoo's parts as MXNet saved it, with its outputs.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import numpy

HERE = Path(__file__).parent

#: The size of the images for the outputs: the smallest that the network accepts.
SIZES = {"alexnet": 64, "vgg": 32, "densenet": 224, "squeezenet": 224, "inception": 299}


def size_of(name: str) -> int:
    """The size of the image for a network's outputs."""
    return next((size for start, size in SIZES.items() if name.startswith(start)), 64)


def usual_size(name: str) -> int:
    """The usual size of images for a network."""
    return 299 if name.startswith("inception") else 224


def values(name: str, shape: tuple[int, ...]) -> Any:
    """The values of the parameter `name`: random numbers that depend only on the name."""
    drawn = numpy.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    if name.endswith("gamma"):
        drawn = 1 + 0.1 * drawn
    elif name.endswith("running_var"):
        drawn = 1 + 0.2 * abs(drawn)
    elif name.endswith(("bias", "beta", "running_mean")):
        drawn = 0.1 * drawn
    elif len(shape) > 1:
        drawn *= (2 / numpy.prod(shape[1:])) ** 0.5
    return drawn.astype("float32")


def digest(parameters: dict[str, Any], prefix: str) -> str:
    """A digest of the places, the names (without that of the network) and the shapes."""
    lines = sorted(
        f"{place} {p.name.removeprefix(prefix)} {tuple(p.shape)}" for place, p in parameters.items()
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def main() -> None:
    """Let MXNet compute everything."""
    import mxnet
    from mxnet.gluon.model_zoo import vision

    def filled(net: Any, shape: tuple[int, ...]) -> list[float]:
        net.initialize()
        net.infer_shape(mxnet.nd.zeros(shape))
        for name, parameter in net._collect_params_with_prefix().items():
            parameter.initialize()
            parameter.set_data(mxnet.nd.array(values(name, parameter.shape)))
        outputs = net(mxnet.nd.array(values("image", shape)))
        return [float(f"{x:.6g}") for x in outputs.asnumpy().ravel()]

    found = {}
    for name in sorted(n.strip() for n in str(error_of(vision)).split("\n\t")[1:]):
        net = vision.get_model(name)
        size = usual_size(name)
        net.infer_shape(mxnet.nd.zeros((1, 3, size, size)))
        parameters = net._collect_params_with_prefix()
        size = size_of(name)
        found[name] = {
            "count": len(parameters),
            "digest": digest(parameters, net.prefix),
            "outputs": filled(vision.get_model(name, classes=10), (1, 3, size, size)),
        }
        print(name, found[name])
    small = vision.ResNetV2(vision.BottleneckV2, [1, 1], [4, 8, 16], classes=3, thumbnail=True)
    found["small"] = {"outputs": filled(small, (2, 3, 8, 8))}
    small.save_parameters(str(HERE / "zoo_small.bin"))
    (HERE / "zoo.json").write_text(json.dumps(found, indent=1) + "\n")


def error_of(vision: Any) -> Exception:
    """The error that lists the names of all networks."""
    try:
        vision.get_model("?")
    except ValueError as error:
        return error
    raise AssertionError("there is no network of that name")


if __name__ == "__main__":
    main()
