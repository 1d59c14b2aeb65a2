"""Layers that normalize each example separately."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import np, npx
from gemel.gluon.block import Tensor
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.inputs import of_array, of_input
from gemel.gluon.nn.basic import elements_along, size_along, vector
from gemel.ranges import check_number, counted
from gemel.spec import whole

if TYPE_CHECKING:
    from gemel.gluon.parameter import Parameter


class _Norm(HybridBlock):
    """Base class with `gamma` and `beta`, which have one element per position along an axis."""

    def __init__(
        self,
        axis: int,
        epsilon: float,
        center: bool,
        scale: bool,
        beta_initializer: Any,
        gamma_initializer: Any,
        in_channels: int,
        **settings: Any,
    ) -> None:
        check_number(type(self).__name__, "epsilon", epsilon, 0)
        super().__init__(**settings)
        self._axis = whole(type(self).__name__, "axis", axis)
        self._epsilon = epsilon
        self.gamma = vector(self, "gamma", in_channels, gamma_initializer, trained=scale)
        self.beta = vector(self, "beta", in_channels, beta_initializer, trained=center)

    @of_input
    def infer_shape(self, x: Tensor) -> None:
        """One element for each position along the axis."""
        self.gamma.shape = self.beta.shape = (size_along(type(self).__name__, x, self._axis),)

    def _takes(self) -> str:
        return elements_along(self.gamma, self._axis)

    def _settings(self) -> str:
        return f"eps={self._epsilon}, axis={self._axis}"

    def __repr__(self) -> str:
        channels = None if self.gamma.shape is None else self.gamma.shape[0]
        said = f"center={self.beta.grad_req != 'null'}, scale={self.gamma.grad_req != 'null'}"
        return f"{type(self).__name__}({self._settings()}, {said}, in_channels={channels})"


class LayerNorm(_Norm):
    """Normalizes along one axis, the last one usually, then scales by gamma and shifts by beta.

    With `scale` or `center` off, gamma stays 1 or beta 0. Ba et al., Layer normalization, 2016.
    """

    def __init__(
        self,
        axis: int = -1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        **settings: Any,
    ) -> None:
        started = beta_initializer, gamma_initializer
        super().__init__(axis, epsilon, center, scale, *started, in_channels, **settings)

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The shape of `x`."""
        vectors = self.gamma.data(), self.beta.data()
        return npx.layer_norm(x, *vectors, axis=self._axis, eps=self._epsilon)


class GroupNorm(_Norm):
    """Normalizes groups of channels (axis 1) of each example, then scales and shifts each channel.

    Wu and He, Group normalization, ECCV 2018.
    """

    def __init__(
        self,
        num_groups: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        **settings: Any,
    ) -> None:
        started = beta_initializer, gamma_initializer
        super().__init__(1, epsilon, center, scale, *started, in_channels, **settings)
        self._num_groups = counted(type(self).__name__, "num_groups", num_groups)

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The shape of `x`."""
        gamma, beta = (self._for_channels(v.data(), x.shape[1]) for v in (self.gamma, self.beta))
        return npx.group_norm(x, gamma, beta, num_groups=self._num_groups, eps=self._epsilon)

    def _for_channels(self, vector: Tensor, channels: int) -> Tensor:
        """One element per channel; MXNet 1 and its files have one element per group."""
        groups = self._num_groups
        one_a_group = vector.shape[0] == groups and channels % groups == 0
        return np.repeat(vector, channels // groups) if one_a_group else vector

    def _settings(self) -> str:
        return f"eps={self._epsilon}, num_groups={self._num_groups}"


class InstanceNorm(_Norm):
    """Normalizes each channel (`axis`) of each example, then shifts and, if asked to, scales it.

    Ulyanov et al., Instance normalization: the missing ingredient for fast stylization, 2016.
    """

    def __init__(
        self,
        axis: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        **settings: Any,
    ) -> None:
        started = beta_initializer, gamma_initializer
        super().__init__(axis, epsilon, center, scale, *started, in_channels, **settings)

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The shape of `x`."""
        vectors = self.gamma.data(), self.beta.data()
        if self._axis == 1:
            return npx.instance_norm(x, *vectors, eps=self._epsilon)
        turned = x.swapaxes(1, self._axis)
        return npx.instance_norm(turned, *vectors, eps=self._epsilon).swapaxes(1, self._axis)


class Embedding(HybridBlock):
    """Looks up a row of `weight` (input_dim, output_dim) for each index in the input.

    Gradients are dense, whatever `sparse_grad` says. Raises `ArgumentError` unless both sizes are
    whole numbers from 1.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        sparse_grad: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        name = type(self).__name__
        rows = counted(name, "input_dim", input_dim)
        self._shape = rows, counted(name, "output_dim", output_dim)
        self.weight: Parameter = self.params.get(
            "weight", shape=self._shape, dtype=dtype, init=weight_initializer
        )

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """(...) -> (..., output_dim)."""
        return npx.embedding(x, self.weight.data(), *self._shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shape[0]} -> {self._shape[1]}, {self.weight.dtype})"


__all__ = ["Embedding", "GroupNorm", "InstanceNorm", "LayerNorm"]
