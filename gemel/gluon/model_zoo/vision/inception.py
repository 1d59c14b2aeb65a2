"""Inception v3, as a table."""

from __future__ import annotations

from typing import Any

from gemel.gluon import nn
from gemel.gluon.model_zoo.vision.parts import Network, beside, conv, relu, sequence

# A tuple is a convolution: channels, kernel, stride, padding. A list is a branch, whose first
# element may be a pooling layer; "split" is followed by parallel branches.
Branches = list[Any]
WIDE, TALL = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))


def _a(pooled: int) -> Branches:
    return [
        [(64, 1)],
        [(48, 1), (64, 5, 1, 2)],
        [(64, 1), (96, 3, 1, 1), (96, 3, 1, 1)],
        ["avg", (pooled, 1)],
    ]


def _c(channels: int) -> Branches:
    return [
        [(192, 1)],
        [(channels, 1), (channels, *WIDE), (192, *TALL)],
        [(channels, 1), (channels, *TALL), (channels, *WIDE), (channels, *TALL), (192, *WIDE)],
        ["avg", (192, 1)],
    ]


_B: Branches = [[(384, 3, 2)], [(64, 1), (96, 3, 1, 1), (96, 3, 2)], ["max"]]
_D: Branches = [
    [(192, 1), (320, 3, 2)],
    [(192, 1), (192, *WIDE), (192, *TALL), (192, 3, 2)],
    ["max"],
]
_BOTH: Branches = ["split", [(384, (1, 3), 1, (0, 1))], [(384, (3, 1), 1, (1, 0))]]
_E: Branches = [
    [(320, 1)],
    [[(384, 1)], _BOTH],
    [[(448, 1), (384, 3, 1, 1)], _BOTH],
    ["avg", (192, 1)],
]
#: The modules, by the prefix of their layers' names.
MODULES: dict[str, Branches] = {
    "A1_": _a(32), "A2_": _a(64), "A3_": _a(64), "B_": _B, "C1_": _c(128), "C2_": _c(160),
    "C3_": _c(160), "C4_": _c(192), "D_": _D, "E1_": _E, "E2_": _E,
}  # fmt: skip


class Inception3(Network):
    """For images of 299 x 299.

    Szegedy et al., Rethinking the Inception architecture for computer vision, CVPR 2016.
    """

    def __init__(self, classes: int = 1000, **settings: Any) -> None:
        super().__init__(**settings)
        with self.name_scope():
            self.features = sequence(
                [_made(step) for step in ((32, 3, 2), (32, 3), (64, 3, 1, 1), "max")],
                [_made(step) for step in ((80, 1), (192, 3), "max")],
            )
            for prefix, branches in MODULES.items():
                module = beside(prefix=prefix)
                with module.name_scope():
                    module.add(*map(_made, branches))
                self.features.add(module)
            self.features.add(nn.AvgPool2D(8), nn.Dropout(0.5))
            self.output = nn.Dense(classes)


def _made(step: Any) -> nn.HybridBlock:
    if step == "avg":
        return nn.AvgPool2D(3, 1, 1)
    if step == "max":
        return nn.MaxPool2D(3, 2)
    if isinstance(step, tuple):
        return sequence(conv(*step), nn.BatchNorm(epsilon=0.001), relu())
    if step[0] == "split":
        return beside(*map(_made, step[1:]))
    return sequence(*map(_made, step))
