"""MobileNets: depthwise convolutions, and 1 x 1 convolutions between the channels."""

from __future__ import annotations

from typing import Any

from gemel import np, npx
from gemel.gluon import nn
from gemel.gluon.block import Tensor
from gemel.gluon.model_zoo.vision.parts import Network, conv, relu, sequence


def _normed(act: Any, *how: Any, **settings: Any) -> list[nn.HybridBlock]:
    """A convolution with its normalization, and an activation if one is given."""
    return [conv(*how, **settings), nn.BatchNorm(), *([act()] if act is not None else [])]


class ReLU6(nn.HybridBlock):
    """min(max(x, 0), 6)."""

    def forward(self, x: Tensor) -> Tensor:
        """The function of each element; the shape of `x`."""
        return np.clip(x, 0, 6)


# --- version 1 --------------------------------------------------------------------------------

#: Channels and stride of each pair of convolutions.
PAIRS = [
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2),
    (1024, 1),
]  # fmt: skip


class MobileNet(Network):
    """`multiplier` times the usual channels.

    Howard et al., MobileNets: efficient convolutional neural networks for mobile vision
    applications, 2017.
    """

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **settings: Any) -> None:
        super().__init__(**settings)
        with self.name_scope():
            before = int(32 * multiplier)
            self.features = sequence(_normed(relu, before, 3, 2, 1))
            for usual, stride in PAIRS:
                channels = int(usual * multiplier)
                self.features.add(
                    *_normed(relu, before, 3, stride, 1, groups=before),
                    *_normed(relu, channels, 1),
                )
                before = channels
            self.features.add(nn.GlobalAvgPool2D(), nn.Flatten())
            self.output = nn.Dense(classes)


# --- version 2 --------------------------------------------------------------------------------

#: Expansion, channels, repetitions, stride of the first.
BOTTLENECKS = [
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
]  # fmt: skip


class LinearBottleneck(nn.HybridBlock):
    """A block with `t` times the channels inside; adds its input if that has the same shape."""

    def __init__(
        self, in_channels: int, channels: int, t: int, stride: int, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.use_shortcut = stride == 1 and in_channels == channels
        wide = in_channels * t
        with self.name_scope():
            self.out = nn.HybridSequential()
            self.out.add(
                *_normed(ReLU6, wide, 1),
                *_normed(ReLU6, wide, 3, stride, 1, groups=wide),
                *_normed(None, channels, 1),
            )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, in_channels, height, width) -> (batch, channels, height / stride, ...)."""
        y = self.out(x)
        return y + x if self.use_shortcut else y


class MobileNetV2(Network):
    """`multiplier` times the usual channels.

    Sandler et al., MobileNetV2: inverted residuals and linear bottlenecks, CVPR 2018.
    """

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **settings: Any) -> None:
        super().__init__(**settings)
        with self.name_scope():
            before = int(32 * multiplier)
            self.features = nn.HybridSequential(prefix="features_")
            with self.features.name_scope():
                self.features.add(*_normed(ReLU6, before, 3, 2, 1))
                for t, usual, count, stride in BOTTLENECKS:
                    channels = int(usual * multiplier)
                    for step in range(count):
                        first = step == 0
                        self.features.add(
                            LinearBottleneck(before, channels, t, stride if first else 1)
                        )
                        before = channels
                last = int(1280 * max(multiplier, 1.0))
                self.features.add(*_normed(ReLU6, last, 1), nn.GlobalAvgPool2D())
            self.output = sequence(prefix="output_")
            with self.output.name_scope():
                self.output.add(conv(classes, 1, prefix="pred_"), nn.Flatten())


# --- version 3 --------------------------------------------------------------------------------

# Kernel, inner channels, channels, whether it has squeeze-and-excite, activation, stride.
LARGE = [
    (3, 16, 16, False, "relu", 1), (3, 64, 24, False, "relu", 2), (3, 72, 24, False, "relu", 1),
    (5, 72, 40, True, "relu", 2), (5, 120, 40, True, "relu", 1), (5, 120, 40, True, "relu", 1),
    (3, 240, 80, False, "swish", 2), (3, 200, 80, False, "swish", 1),
    (3, 184, 80, False, "swish", 1), (3, 184, 80, False, "swish", 1),
    (3, 480, 112, True, "swish", 1), (3, 672, 112, True, "swish", 1),
    (5, 672, 160, True, "swish", 2), (5, 960, 160, True, "swish", 1),
    (5, 960, 160, True, "swish", 1),
]  # fmt: skip
SMALL = [
    (3, 16, 16, True, "relu", 2), (3, 72, 24, False, "relu", 2), (3, 88, 24, False, "relu", 1),
    (5, 96, 40, True, "swish", 2), (5, 240, 40, True, "swish", 1), (5, 240, 40, True, "swish", 1),
    (5, 120, 48, True, "swish", 1), (5, 144, 48, True, "swish", 1), (5, 288, 96, True, "swish", 2),
    (5, 576, 96, True, "swish", 1), (5, 576, 96, True, "swish", 1),
]  # fmt: skip


class HardSwish(nn.HybridBlock):
    """x * min(max(x + 3, 0), 6) / 6."""

    def forward(self, x: Tensor) -> Tensor:
        """The function of each element; the shape of `x`."""
        return x * _hard_sigmoid(x)


def _hard_sigmoid(x: Tensor) -> Tensor:
    return np.clip(x + 3, 0, 6) / 6


ACTIVATIONS: dict[str, Any] = {"relu": relu, "swish": HardSwish}


class SqueezeExcite(nn.HybridBlock):
    """Multiplies each channel by a weight computed from the averages of all channels.

    Hu et al., Squeeze-and-excitation networks, CVPR 2018.
    """

    def __init__(self, channels: int, **settings: Any) -> None:
        super().__init__(**settings)
        inner = max(8, (channels // 4 + 4) // 8 * 8)  # the nearest multiple of 8
        if inner < 0.9 * channels / 4:
            inner += 8
        with self.name_scope():
            self.squeeze = nn.Conv2D(inner, 1, in_channels=channels)
            self.excite = nn.Conv2D(channels, 1, in_channels=inner)

    def forward(self, x: Tensor) -> Tensor:
        """The shape of `x`."""
        mean = x.mean(axis=(2, 3), keepdims=True)
        return x * _hard_sigmoid(self.excite(npx.relu(self.squeeze(mean))))


class InvertedResidual(nn.HybridBlock):
    """A bottleneck of `inner` channels; added to its input where that has the same shape."""

    def __init__(
        self,
        before: int,
        kernel: int,
        inner: int,
        channels: int,
        weighted: bool,
        activation: str,
        stride: int,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.use_shortcut = stride == 1 and before == channels
        act = ACTIVATIONS[activation]
        with self.name_scope():
            self.out = sequence(
                _normed(act, inner, 1) if inner != before else [],
                _normed(act, inner, kernel, stride, kernel // 2, groups=inner),
                [SqueezeExcite(inner)] if weighted else [],
                _normed(None, channels, 1),
            )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, before, height, width) -> (batch, channels, height / stride, ...)."""
        y = self.out(x)
        return y + x if self.use_shortcut else y


class MobileNetV3(Network):
    """Bottlenecks as in a table, `last` features before the classes.

    Howard et al., Searching for MobileNetV3, ICCV 2019.
    """

    def __init__(self, table: list[Any], last: int, classes: int = 1000, **settings: Any) -> None:
        super().__init__(**settings)
        with self.name_scope():
            before = 16
            self.features = sequence(_normed(HardSwish, before, 3, 2, 1))
            for row in table:
                self.features.add(InvertedResidual(before, *row))
                before = row[2]
            self.features.add(
                *_normed(HardSwish, 6 * before, 1), nn.GlobalAvgPool2D(), nn.Flatten()
            )
            self.output = sequence(nn.Dense(last), HardSwish(), nn.Dropout(0.2), nn.Dense(classes))
