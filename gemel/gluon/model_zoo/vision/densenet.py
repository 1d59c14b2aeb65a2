"""DenseNet: every layer sees the features of all layers before it."""

from __future__ import annotations

from typing import Any

from gemel.gluon import nn
from gemel.gluon.model_zoo.vision.parts import Network, beside, conv, relu, sequence

#: By the number of layers: the features of the first convolution, the features that each layer
#: adds, and the numbers of layers in the blocks.
DENSENETS = {
    121: (64, 32, [6, 12, 24, 16]),
    161: (96, 48, [6, 12, 36, 24]),
    169: (64, 32, [6, 12, 32, 32]),
    201: (64, 32, [6, 12, 48, 32]),
}


class DenseNet(Network):
    """Blocks of layers that add `growth_rate` features each, for images of 224 x 224.

    Huang et al., Densely connected convolutional networks, CVPR 2017.
    """

    def __init__(
        self,
        num_init_features: int,
        growth_rate: int,
        block_config: list[int],
        bn_size: int = 4,
        dropout: float = 0,
        classes: int = 1000,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        with self.name_scope():
            self.features = sequence(
                conv(num_init_features, 7, 2, 3), nn.BatchNorm(), relu(), nn.MaxPool2D(3, 2, 1)
            )
            features = num_init_features
            for stage, count in enumerate(block_config, 1):
                block = sequence(prefix=f"stage{stage}_")
                with block.name_scope():
                    for _ in range(count):
                        block.add(_layer(growth_rate, bn_size, dropout))
                self.features.add(block)
                features += count * growth_rate
                if stage < len(block_config):
                    features //= 2
                    self.features.add(_transition(features))
            self.features.add(nn.BatchNorm(), relu(), nn.AvgPool2D(7), nn.Flatten())
            self.output = nn.Dense(classes)


def _layer(growth_rate: int, bn_size: int, dropout: float) -> nn.HybridConcatenate:
    new = sequence(
        nn.BatchNorm(),
        relu(),
        conv(bn_size * growth_rate, 1),
        nn.BatchNorm(),
        relu(),
        conv(growth_rate, 3, pad=1),
        [nn.Dropout(dropout)] if dropout else [],
    )
    return beside(nn.Identity(), new)


def _transition(features: int) -> nn.HybridSequential:
    return sequence(nn.BatchNorm(), relu(), conv(features, 1), nn.AvgPool2D(2, 2))
