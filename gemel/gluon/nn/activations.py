"""Layers that apply one function to every element."""

from __future__ import annotations

from typing import Any

from gemel import npx
from gemel.errors import unknown_name
from gemel.gluon.block import HybridBlock, Tensor
from gemel.ops.neural import ACTIVATIONS


class Activation(HybridBlock):
    """The activation function of that name: relu, sigmoid, tanh, softrelu, softsign, ..."""

    def __init__(self, activation: str, **settings: Any) -> None:
        if activation not in ACTIVATIONS:
            raise unknown_name("activation", activation, ACTIVATIONS)
        super().__init__(**settings)
        self._kind = activation

    def forward(self, x: Tensor) -> Tensor:
        """The function of each element; the shape of `x`."""
        return npx.activation(x, act_type=self._kind)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._kind})"


class LeakyReLU(HybridBlock):
    """x where it is positive, else alpha * x.

    Maas et al., Rectifier nonlinearities improve neural network acoustic models, ICML 2013.
    """

    def __init__(self, alpha: float, **settings: Any) -> None:
        super().__init__(**settings)
        self._alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """The function of each element; the shape of `x`."""
        return npx.leaky_relu(x, act_type="leaky", slope=self._alpha)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._alpha})"
