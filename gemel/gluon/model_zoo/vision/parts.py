"""Common parts of the networks: features and output, and short names for layers."""

from __future__ import annotations

from typing import Any

from gemel.gluon import nn
from gemel.gluon.block import Tensor


class Network(nn.HybridBlock):
    """A classifier of images (batch, 3, height, width): `features`, and `output` for the classes.

    Replace `output` to train the features for other classes.
    """

    features: nn.HybridSequential
    output: nn.HybridBlock

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) -> (batch, classes), before any softmax."""
        return self.output(self.features(x))


def sequence(*layers: Any, prefix: str = "") -> nn.HybridSequential:
    """The layers in sequence, including those in lists; their names count on from outside."""
    made = nn.HybridSequential(prefix=prefix)
    for layer in layers:
        made.add(*(layer if isinstance(layer, list) else [layer]))
    return made


def beside(*layers: Any, prefix: str = "") -> nn.HybridConcatenate:
    """The layers in parallel; their channels are concatenated."""
    return nn.HybridConcatenate(*layers, axis=1, prefix=prefix)


def conv(channels: int, kernel: Any, stride: int = 1, pad: Any = 0, **settings: Any) -> nn.Conv2D:
    """A convolution without bias, as is usual before a normalization."""
    return nn.Conv2D(channels, kernel, stride, pad, use_bias=False, **settings)


def relu() -> nn.Activation:
    """max(x, 0) as a layer."""
    return nn.Activation("relu")
