"""Networks that are one sequence of layers: AlexNet, VGG, SqueezeNet."""

from __future__ import annotations

from typing import Any

from gemel import init
from gemel.gluon import nn
from gemel.gluon.model_zoo.vision.parts import Network, beside, relu, sequence


class AlexNet(Network):
    """Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014."""

    def __init__(self, classes: int = 1000, **settings: Any) -> None:
        super().__init__(**settings)
        with self.name_scope():
            self.features = sequence(
                nn.Conv2D(64, 11, 4, 2, activation="relu"),
                nn.MaxPool2D(3, 2),
                nn.Conv2D(192, 5, padding=2, activation="relu"),
                nn.MaxPool2D(3, 2),
                nn.Conv2D(384, 3, padding=1, activation="relu"),
                nn.Conv2D(256, 3, padding=1, activation="relu"),
                nn.Conv2D(256, 3, padding=1, activation="relu"),
                nn.MaxPool2D(3, 2),
                nn.Flatten(),
                nn.Dense(4096, activation="relu"),
                nn.Dropout(0.5),
                nn.Dense(4096, activation="relu"),
                nn.Dropout(0.5),
            )
            self.output = nn.Dense(classes)


#: The number of convolutions in each block of a VGG network, by the number of its layers.
VGG_LAYERS = {
    11: [1, 1, 2, 2, 2],
    13: [2, 2, 2, 2, 2],
    16: [2, 2, 3, 3, 3],
    19: [2, 2, 4, 4, 4],
}
VGG_FILTERS = [64, 128, 256, 512, 512]


class VGG(Network):
    """Blocks of `layers` convolutions with `filters` channels and a pooling layer.

    Simonyan and Zisserman, Very deep convolutional networks for large-scale image recognition,
    ICLR 2015.
    """

    def __init__(
        self,
        layers: list[int],
        filters: list[int],
        classes: int = 1000,
        batch_norm: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        drawn = init.Xavier("gaussian", "out", 2)
        with self.name_scope():
            self.features = sequence()
            for count, channels in zip(layers, filters, strict=True):
                for _ in range(count):
                    self.features.add(
                        nn.Conv2D(channels, 3, padding=1, weight_initializer=drawn),
                        *([nn.BatchNorm()] if batch_norm else []),
                        relu(),
                    )
                self.features.add(nn.MaxPool2D(strides=2))
            for _ in range(2):
                self.features.add(
                    nn.Dense(4096, activation="relu", weight_initializer="normal"), nn.Dropout(0.5)
                )
            self.output = nn.Dense(classes, weight_initializer="normal")


#: The layers between a SqueezeNet's first convolution and its output: "pool", or a fire module's
#: channels, squeezed and expanded by each of two paths.
FIRES: dict[str, list[Any]] = {
    "1.0": [
        "pool", (16, 64), (16, 64), (32, 128), "pool", (32, 128), (48, 192), (48, 192), (64, 256),
        "pool", (64, 256),
    ],
    "1.1": [
        "pool", (16, 64), (16, 64), "pool", (32, 128), (32, 128), "pool", (48, 192), (48, 192),
        (64, 256), (64, 256),
    ],
}  # fmt: skip


class SqueezeNet(Network):
    """Fire modules: few channels (squeeze), seen by two convolutions side by side (expand).

    Iandola et al., SqueezeNet: AlexNet-level accuracy with 50x fewer parameters, 2016.
    """

    def __init__(self, version: str, classes: int = 1000, **settings: Any) -> None:
        super().__init__(**settings)
        first = (96, 7, 2) if version == "1.0" else (64, 3, 2)
        with self.name_scope():
            self.features = sequence(nn.Conv2D(*first), relu())
            for step in FIRES[version]:
                self.features.add(
                    nn.MaxPool2D(3, 2, ceil_mode=True) if step == "pool" else _fire(*step)
                )
            self.features.add(nn.Dropout(0.5))
            self.output = sequence(nn.Conv2D(classes, 1), relu(), nn.AvgPool2D(13), nn.Flatten())


def _fire(squeezed: int, expanded: int) -> nn.HybridSequential:
    first = _path(squeezed, 1)
    return sequence(first, beside(_path(expanded, 1), _path(expanded, 3, 1)))


def _path(channels: int, kernel: int, pad: int = 0) -> nn.HybridSequential:
    return sequence(nn.Conv2D(channels, kernel, padding=pad), relu())
