"""Layers that apply one function to every element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import init, np, npx
from gemel.errors import unknown_name
from gemel.gluon.block import Tensor
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.inputs import of_array
from gemel.ops.activations import ACTIVATIONS
from gemel.ranges import check_number

if TYPE_CHECKING:
    from gemel.gluon.parameter import Parameter


class Activation(HybridBlock):
    """The activation function of that name: relu, sigmoid, tanh, softrelu, softsign, ..."""

    _act_type: str

    def __init__(self, activation: str, **settings: Any) -> None:
        # The name of the block is made from it.
        object.__setattr__(self, "_act_type", activation_named(activation))
        super().__init__(**settings)

    def _alias(self) -> str:
        return self._act_type

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The function of each element; the shape of `x`."""
        return npx.activation(x, act_type=self._act_type)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._act_type})"


def activation_named(name: str) -> str:
    """The name of an activation. Raises `UnknownNameError` if there is no such activation."""
    if name not in ACTIVATIONS:
        raise unknown_name("activation", name, ACTIVATIONS)
    return name


class LeakyReLU(HybridBlock):
    """x where it is positive, else alpha * x.

    Maas et al., Rectifier nonlinearities improve neural network acoustic models, ICML 2013.
    """

    def __init__(self, alpha: float, **settings: Any) -> None:
        super().__init__(**settings)
        check_number(type(self).__name__, "alpha", alpha)
        self._alpha = alpha

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The function of each element; the shape of `x`."""
        return npx.leaky_relu(x, act_type="leaky", slope=self._alpha)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._alpha})"


class PReLU(HybridBlock):
    """x where it is positive, else alpha * x, where alpha is learnt: one, or one for each channel.

    He et al., Delving deep into rectifiers, ICCV 2015.
    """

    def __init__(
        self, alpha_initializer: Any = None, in_channels: int = 1, **settings: Any
    ) -> None:
        super().__init__(**settings)
        started = init.Constant(0.25) if alpha_initializer is None else alpha_initializer
        self.alpha: Parameter = self.params.get("alpha", shape=(in_channels,), init=started)

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The function of each element; the shape of `x`."""
        return npx.leaky_relu(x, gamma=self.alpha.data(), act_type="prelu")


class ELU(HybridBlock):
    """x where it is positive, else alpha * (exp(x) - 1).

    Clevert et al., Fast and accurate deep network learning by exponential linear units, ICLR 2016.
    """

    def __init__(self, alpha: float = 1.0, **settings: Any) -> None:
        super().__init__(**settings)
        check_number(type(self).__name__, "alpha", alpha)
        self._alpha = alpha

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The function of each element; the shape of `x`."""
        return npx.elu(x, alpha=self._alpha)


class SELU(HybridBlock):
    """ELU, scaled so that mean 0 and variance 1 stay.

    Klambauer et al., Self-normalizing neural networks, NeurIPS 2017.
    """

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The function of each element; the shape of `x`."""
        return npx.selu(x)


class GELU(HybridBlock):
    """x times the normal distribution function of x, exactly ("erf"), or nearly, by a tanh.

    Hendrycks and Gimpel, Gaussian error linear units, 2016.
    """

    def __init__(self, approximation: str = "erf", **settings: Any) -> None:
        if approximation not in ("erf", "tanh"):
            raise unknown_name("approximation of GELU", approximation, ("erf", "tanh"))
        super().__init__(**settings)
        self._near = approximation == "tanh"

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The function of each element; the shape of `x`."""
        if not self._near:
            return npx.gelu(x)
        return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


class Swish(HybridBlock):
    """x * sigmoid(beta * x). Ramachandran et al., Searching for activation functions, 2017."""

    def __init__(self, beta: float = 1.0, **settings: Any) -> None:
        super().__init__(**settings)
        check_number(type(self).__name__, "beta", beta)
        self._beta = beta

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The function of each element; the shape of `x`."""
        return npx.silu(x, beta=self._beta)


class SiLU(Swish):
    """x * sigmoid(x). Elfwing et al., Sigmoid-weighted linear units, 2017."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(1.0, **settings)
