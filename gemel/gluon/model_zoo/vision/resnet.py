"""Residual networks of both versions: a block learns what to add to its input."""

from __future__ import annotations

from typing import Any

from gemel import npx
from gemel.gluon import nn
from gemel.gluon.block import Tensor
from gemel.gluon.model_zoo.vision.parts import Network, conv, relu, sequence


class _Residual(nn.HybridBlock):
    """A block that adds its input to its result; a convolution adapts the input if shapes
    differ."""

    def __init__(
        self,
        channels: int,
        stride: int,
        downsample: bool = False,
        in_channels: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self._make(channels, stride, in_channels)
        self.downsample: nn.HybridBlock | None = None
        if downsample:
            self.downsample = self._turned(conv(channels, 1, stride, in_channels=in_channels))

    def _make(self, channels: int, stride: int, in_channels: int) -> None:
        raise NotImplementedError

    def _turned(self, convolution: nn.HybridBlock) -> nn.HybridBlock:
        return convolution

    def _beside(self, x: Tensor) -> Tensor:
        return x if self.downsample is None else self.downsample(x)


class _V1(_Residual):
    """relu(body(x) + x): every convolution is normalized after it."""

    body: nn.HybridSequential

    def _turned(self, convolution: nn.HybridBlock) -> nn.HybridBlock:
        return sequence(convolution, nn.BatchNorm())

    def forward(self, x: Tensor) -> Tensor:
        """(batch, in_channels, height, width) -> (batch, channels, height / stride, ...)."""
        return npx.relu(self.body(x) + self._beside(x))


class BasicBlockV1(_V1):
    """Two 3 x 3 convolutions. He et al., Deep residual learning, CVPR 2016."""

    def _make(self, channels: int, stride: int, in_channels: int) -> None:
        self.body = sequence(
            conv(channels, 3, stride, 1, in_channels=in_channels),
            nn.BatchNorm(),
            relu(),
            conv(channels, 3, 1, 1, in_channels=channels),
            nn.BatchNorm(),
        )


class BottleneckV1(_V1):
    """A 3 x 3 convolution of a quarter of the channels between two of 1 x 1."""

    def _make(self, channels: int, stride: int, in_channels: int) -> None:
        self.body = sequence(
            nn.Conv2D(channels // 4, 1, stride),
            nn.BatchNorm(),
            relu(),
            conv(channels // 4, 3, 1, 1, in_channels=channels // 4),
            nn.BatchNorm(),
            relu(),
            nn.Conv2D(channels, 1),
            nn.BatchNorm(),
        )


class _V2(_Residual):
    """body(x) + x: every convolution is normalized before it.

    He et al., Identity mappings in deep residual networks, ECCV 2016.
    """

    def _make(self, channels: int, stride: int, in_channels: int) -> None:
        for number, step in enumerate(self._convolutions(channels, stride, in_channels), 1):
            setattr(self, f"bn{number}", nn.BatchNorm())
            setattr(self, f"conv{number}", step)
        self._count = number

    def _convolutions(self, channels: int, stride: int, in_channels: int) -> list[Any]:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """(batch, in_channels, height, width) -> (batch, channels, height / stride, ...)."""
        shortcut = x
        for number in range(1, self._count + 1):
            x = npx.relu(getattr(self, f"bn{number}")(x))
            if number == 1 and self.downsample is not None:
                shortcut = self.downsample(x)
            x = getattr(self, f"conv{number}")(x)
        return x + shortcut


class BasicBlockV2(_V2):
    """Two 3 x 3 convolutions."""

    def _convolutions(self, channels: int, stride: int, in_channels: int) -> list[Any]:
        return [
            conv(channels, 3, stride, 1, in_channels=in_channels),
            conv(channels, 3, 1, 1, in_channels=channels),
        ]


class BottleneckV2(_V2):
    """A 3 x 3 convolution of a quarter of the channels between two of 1 x 1."""

    def _convolutions(self, channels: int, stride: int, in_channels: int) -> list[Any]:
        inner = channels // 4
        return [
            conv(inner, 1),
            conv(inner, 3, stride, 1, in_channels=inner),
            conv(channels, 1),
        ]


class ResNetV1(Network):
    """Stages of `layers` blocks of a kind with `channels[1:]` channels, after a first convolution.

    `thumbnail`: for small images, which are not made smaller before the first stage.
    """

    def __init__(
        self,
        block: type[_Residual],
        layers: list[int],
        channels: list[int],
        classes: int = 1000,
        thumbnail: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        with self.name_scope():
            self.features = sequence(self._before())
            if thumbnail:
                self.features.add(conv(channels[0], 3, 1, 1))
            else:
                self.features.add(
                    conv(channels[0], 7, 2, 3), nn.BatchNorm(), relu(), nn.MaxPool2D(3, 2, 1)
                )
            for stage, count in enumerate(layers):
                self.features.add(_stage(block, count, channels[stage : stage + 2], stage))
            self.features.add(*self._after())
            self.output = nn.Dense(classes, in_units=channels[-1])

    def _before(self) -> list[nn.HybridBlock]:
        return []

    def _after(self) -> list[nn.HybridBlock]:
        return [nn.GlobalAvgPool2D()]


class ResNetV2(ResNetV1):
    """`ResNetV1` with blocks that normalize first; the image and the last result are, too."""

    def _before(self) -> list[nn.HybridBlock]:
        return [nn.BatchNorm(scale=False, center=False)]

    def _after(self) -> list[nn.HybridBlock]:
        return [nn.BatchNorm(), relu(), nn.GlobalAvgPool2D(), nn.Flatten()]


def _stage(
    block: type[_Residual], count: int, channels: list[int], stage: int
) -> nn.HybridSequential:
    before, own = channels
    made = sequence(prefix=f"stage{stage + 1}_")
    with made.name_scope():
        stride = 1 if stage == 0 else 2
        made.add(block(own, stride, own != before, in_channels=before, prefix=""))
        for _ in range(count - 1):
            made.add(block(own, 1, in_channels=own, prefix=""))
    return made


#: By the number of layers: the kind of block, the blocks in each stage, and the channels.
RESNETS: dict[int, tuple[int, list[int], list[int]]] = {
    18: (0, [2, 2, 2, 2], [64, 64, 128, 256, 512]),
    34: (0, [3, 4, 6, 3], [64, 64, 128, 256, 512]),
    50: (1, [3, 4, 6, 3], [64, 256, 512, 1024, 2048]),
    101: (1, [3, 4, 23, 3], [64, 256, 512, 1024, 2048]),
    152: (1, [3, 8, 36, 3], [64, 256, 512, 1024, 2048]),
}
EDITIONS: dict[int, Any] = {
    1: (ResNetV1, (BasicBlockV1, BottleneckV1)),
    2: (ResNetV2, (BasicBlockV2, BottleneckV2)),
}


def resnet(version: int, layers: int, **settings: Any) -> Network:
    """The residual network of that version and number of layers."""
    network, blocks = EDITIONS[version]
    kind, counts, channels = RESNETS[layers]
    made: Network = network(blocks[kind], counts, channels, **settings)
    return made
