"""Writes the results of MXNet 1.9.1's layers to `layers.npz` beside this file.

Run it with a Python that has mxnet==1.9.1 and numpy==1.23.5. Each layer is a text that both
libraries understand. For each layer the file has the input, the parameters by name, the result,
and the gradients for a random gradient of the result.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy

HERE = Path(__file__).parent

#: Layers as text, and the shapes of their inputs.
LAYERS: dict[str, tuple[int, ...]] = {
    "Dense(3, activation='relu')": (2, 3, 2),
    "Dense(3, flatten=False, use_bias=False)": (2, 3, 2),
    "Conv1D(4, 3, 2, 1, groups=2)": (2, 2, 7),
    "Conv2D(4, (3, 2), (2, 1), (1, 0), (1, 2), activation='sigmoid')": (2, 2, 5, 6),
    "Conv3D(2, 2, 1, 1, use_bias=False)": (1, 2, 3, 2, 3),
    "Conv1DTranspose(2, 3, 2, 1, 1)": (2, 2, 4),
    "Conv2DTranspose(2, (4, 3), 2, 1, (1, 0), groups=2, in_channels=4)": (2, 4, 3, 2),
    "Conv3DTranspose(2, 2, activation='tanh')": (1, 2, 2, 2, 2),
    "MaxPool1D()": (2, 2, 7),
    "MaxPool2D(3, 2, 1, ceil_mode=True)": (2, 2, 6, 7),
    "MaxPool3D(2, 1)": (1, 2, 3, 3, 2),
    "AvgPool1D(3, 2, 1, count_include_pad=False)": (2, 2, 7),
    "AvgPool2D(3, 2, 1, ceil_mode=True)": (2, 2, 6, 7),
    "AvgPool2D((3, 2), (2, 1), (1, 0), ceil_mode=True, count_include_pad=False)": (2, 2, 6, 7),
    "AvgPool3D(2, 2)": (1, 2, 4, 4, 3),
    "GlobalMaxPool1D()": (2, 2, 7),
    "GlobalMaxPool2D()": (2, 2, 3, 4),
    "GlobalMaxPool3D()": (2, 2, 3, 2, 2),
    "GlobalAvgPool1D()": (2, 2, 7),
    "GlobalAvgPool2D()": (2, 2, 3, 4),
    "GlobalAvgPool3D()": (2, 2, 3, 2, 2),
    "ReflectionPad2D((0, 0, 0, 0, 1, 2, 2, 1))": (2, 2, 3, 4),
    "BatchNorm()": (3, 2, 4),
    "BatchNorm(axis=-1, epsilon=0.01, scale=False)": (3, 2, 4),
    "BatchNorm(use_global_stats=True, momentum=0.5)": (3, 2, 4),
    "BatchNorm(center=False, momentum=0.7)": (3, 2),
    "LayerNorm()": (2, 3, 4),
    "LayerNorm(axis=1, epsilon=0.01, center=False)": (2, 3, 4),
    "InstanceNorm(scale=True)": (2, 3, 4),
    "InstanceNorm(axis=2)": (2, 3, 4),
    "GroupNorm(2, epsilon=0.01)": (2, 4, 3),
    "Embedding(5, 3)": (2, 3),
    "Activation('softrelu')": (3, 4),
    "Activation('softsign')": (3, 4),
    "LeakyReLU(0.2)": (3, 4),
    "PReLU()": (3, 4),
    "PReLU(in_channels=4)": (3, 4, 2),
    "ELU(0.5)": (3, 4),
    "SELU()": (3, 4),
    "GELU()": (3, 4),
    "Swish(1.5)": (3, 4),
    "Flatten()": (2, 3, 2),
}


def drawn(name: str, shape: tuple[int, ...]) -> Any:
    """Random numbers that depend only on the name."""
    draw = numpy.random.RandomState(zlib.crc32(name.encode()))
    if name.endswith("x") and name.startswith("Embedding"):
        return draw.randint(0, 5, shape).astype("float32")
    found = draw.standard_normal(shape)
    return (1 + abs(found) if name.endswith("var") else found).astype("float32")


def main() -> None:
    """Let MXNet compute everything."""
    import mxnet
    from mxnet.gluon import nn

    found = {}
    for text, shape in LAYERS.items():
        net = eval(f"nn.{text}", {"nn": nn})
        x = mxnet.nd.array(drawn(f"{text} x", shape))
        if not text.startswith("Embedding"):
            x.attach_grad()
        net.initialize()
        net(x)
        for name, parameter in net._collect_params_with_prefix().items():
            value = drawn(f"{text} {name}", parameter.shape)
            found[f"{text} {name}"] = value
            parameter.set_data(mxnet.nd.array(value))
        found[f"{text} predicted"] = net(x).asnumpy()
        with mxnet.autograd.record():
            y = net(x)
        y.backward(mxnet.nd.array(drawn(f"{text} head", y.shape)))
        found[f"{text} trained"] = y.asnumpy()
        if x.grad is not None:
            found[f"{text} dx"] = x.grad.asnumpy()
        for name, parameter in net._collect_params_with_prefix().items():
            if parameter.grad_req != "null":
                found[f"{text} d{name}"] = parameter.grad().asnumpy()
            elif "running" in name:
                found[f"{text} new {name}"] = parameter.data().asnumpy()
    numpy.savez_compressed(HERE / "layers.npz", **found)


if __name__ == "__main__":
    main()
