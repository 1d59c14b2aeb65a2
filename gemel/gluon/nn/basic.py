"""The most common layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import np, npx
from gemel.dtype import as_dtype
from gemel.errors import ArgumentError, AxisError, ShapeError, UnknownNameError, suggestion
from gemel.gluon.block import Block, Tensor
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.inputs import of_array, of_input
from gemel.gluon.nn.activations import Activation
from gemel.ranges import check_number, check_probability, counted
from gemel.spec import whole, wholes

if TYPE_CHECKING:
    from collections.abc import Callable

    from gemel.gluon.parameter import Parameter


class Dense(HybridBlock):
    """A fully connected layer: activation(x @ weight.T + bias).

    With `flatten` (the default) all values of an example form one row, and the result is (batch,
    units). Without it only the last axis changes, to `units`. With `in_units=0` the first input
    determines it. `weight` is (units, in_units), `bias` (units,). Raises `ArgumentError` unless
    `units` is a whole number from 1.
    """

    def __init__(
        self,
        units: int,
        activation: str | None = None,
        use_bias: bool = True,
        flatten: bool = True,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_units: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self._units = units = counted(type(self).__name__, "units", units)
        self._flatten = flatten
        self.weight: Parameter = self.params.get(
            "weight", shape=(units, in_units), dtype=dtype, init=weight_initializer
        )
        self.bias: Parameter | None = None
        if use_bias:
            self.bias = self.params.get("bias", shape=(units,), dtype=dtype, init=bias_initializer)
        self.act: Activation | None = None
        if activation is not None:
            with self.name_scope():
                self.act = Activation(activation, prefix=f"{activation}_")

    @of_input
    def infer_shape(self, x: Tensor) -> None:
        """The weight has as many columns as an example has values."""
        if len(x.shape) <= self._flatten:
            raise ShapeError(f"Dense: the input {list(x.shape)} has no axis of units")
        columns = x.shape[-1]
        if self._flatten:
            columns = 1
            for size in x.shape[1:]:
                columns *= int(size)
        self.weight.shape = (self._units, int(columns))

    def _takes(self) -> str:
        size = (self.weight.shape or (0, -1))[1]
        values = "in_units" if size < 0 else str(size)
        return (
            f"(batch, {values}), further axes counting as one"
            if self._flatten
            else f"(..., {values})"
        )

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """(batch, ...) -> (batch, units), or (..., in_units) -> (..., units) without `flatten`."""
        bias = None if self.bias is None else self.bias.data()
        y = npx.fully_connected(x, self.weight.data(), bias, flatten=self._flatten)
        return y if self.act is None else self.act(y)

    def __repr__(self) -> str:
        inputs = None if self.weight.shape is None else self.weight.shape[1]
        activation = "linear" if self.act is None else repr(self.act)
        return f"{type(self).__name__}({inputs} -> {self._units}, {activation})"


class Flatten(HybridBlock):
    """(batch, ...) -> (batch, all values of an example)."""

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The examples as rows."""
        return npx.batch_flatten(x)

    def __repr__(self) -> str:
        return type(self).__name__


class Dropout(HybridBlock):
    """In training, sets each value to 0 with probability `rate` and scales up the others.

    Values that differ only in their position along `axes` are kept or dropped together. Srivastava
    et al., Dropout: a simple way to prevent neural networks from overfitting, JMLR 15, 2014.
    """

    def __init__(self, rate: float, axes: tuple[int, ...] = (), **settings: Any) -> None:
        check_probability(type(self).__name__, "rate", rate)
        axes = wholes(type(self).__name__, "axes", axes)
        super().__init__(**settings)
        self._rate = rate
        self._axes = tuple(axes)

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The shape of `x`; `x` itself unless training."""
        if self._rate == 0:
            return x
        if self._axes:
            return npx.dropout(x, p=self._rate, axes=self._axes)
        return npx.dropout(x, p=self._rate)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p = {self._rate}, axes={self._axes})"


def vector(
    block: HybridBlock, name: str, channels: int, initializer: Any, trained: bool
) -> Parameter:
    """A parameter with a number for each channel; if not `trained`, it is a running statistic."""
    return block.params.get(
        name,
        shape=(channels,),
        init=initializer,
        grad_req="write" if trained else "null",
        differentiable=trained,
    )


def size_along(name: str, x: Tensor, axis: int) -> int:
    """The length of the input along an axis. Raises `AxisError` if it has no such axis."""
    if not -len(x.shape) <= axis < len(x.shape):
        raise AxisError(f"{name}: the input {list(x.shape)} has no axis {axis}")
    return int(x.shape[axis])


def elements_along(vector: Parameter, axis: int) -> str:
    """The input that a layer accepts whose parameter has one element per position along an axis."""
    return f"{vector.shape[0]} elements along axis {axis}" if vector.shape else ""


class BatchNorm(HybridBlock):
    """Normalizes each channel (`axis`) to mean 0 and variance 1 over the batch, then scales it.

    In training it uses the batch's statistics and updates the running ones: momentum * running + (1
    - momentum) * batch's. Otherwise it uses the running statistics. Without `scale` gamma stays 1;
    without `center` beta stays 0. Ioffe and Szegedy, Batch normalization: accelerating deep network
    training by reducing internal covariate shift, ICML 2015.
    """

    def __init__(
        self,
        axis: int = 1,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        in_channels: int = 0,
        **settings: Any,
    ) -> None:
        name = type(self).__name__
        check_number(name, "momentum", momentum, 0, 1)
        check_number(name, "epsilon", epsilon, 0)
        super().__init__(**settings)
        self._axis = whole("BatchNorm", "axis", axis)
        self._kwargs: dict[str, Any] = {
            "axis": axis,
            "eps": epsilon,
            "momentum": momentum,
            "fix_gamma": not scale,
            "use_global_stats": use_global_stats,
        }
        self.gamma = vector(self, "gamma", in_channels, gamma_initializer, trained=scale)
        self.beta = vector(self, "beta", in_channels, beta_initializer, trained=center)
        self.running_mean = vector(
            self, "running_mean", in_channels, running_mean_initializer, trained=False
        )
        self.running_var = vector(
            self, "running_var", in_channels, running_variance_initializer, trained=False
        )

    @of_input
    def infer_shape(self, x: Tensor) -> None:
        """One value of each parameter for each channel."""
        channels = size_along("BatchNorm", x, self._axis)
        for parameter in (self.gamma, self.beta, self.running_mean, self.running_var):
            parameter.shape = (channels,)

    def _takes(self) -> str:
        return elements_along(self.gamma, self._axis)

    def cast(self, dtype: Any) -> None:
        """Change the dtype; statistics of float16 data stay float32, because float16 may
        overflow."""
        super().cast(as_dtype(dtype).compute)

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The shape of `x`."""
        return npx.batch_norm(
            x,
            self.gamma.data(),
            self.beta.data(),
            self.running_mean.data(),
            self.running_var.data(),
            **self._kwargs,
        )

    def __repr__(self) -> str:
        channels = None if self.gamma.shape is None else self.gamma.shape[0]
        said = ", ".join(f"{key}={value}" for key, value in self._kwargs.items())
        return f"{type(self).__name__}({said}, in_channels={channels})"


class BatchNormReLU(BatchNorm):
    """`BatchNorm` followed by relu."""

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The shape of `x`."""
        return npx.relu(super().forward(x))


class Identity(HybridBlock):
    """Returns its input."""

    def forward(self, x: Tensor) -> Tensor:
        """`x`."""
        return x


def _function(given: Any) -> Callable[..., Any]:
    """The function itself, or the one of that name in `np` or `npx`."""
    if callable(given):
        return given  # type: ignore[no-any-return]
    if not isinstance(given, str):
        raise ArgumentError(
            f"Lambda: {given!r} is not a function; give a function, or the name of one in np or npx"
        )
    found: Callable[..., Any] | None = getattr(npx, given, None) or getattr(np, given, None)
    if found is None:
        hint = suggestion(given, (*npx.__all__, *np.__all__))
        raise UnknownNameError(f"Lambda: neither np nor npx has a function {given!r}{hint}")
    return found


class Lambda(Block):
    """A function, or the name of one in `np` or `npx`, as a block."""

    def __init__(self, function: Any, **settings: Any) -> None:
        super().__init__(**settings)
        self._function = _function(function)

    def forward(self, *arguments: Any) -> Any:
        """The result of the function."""
        return self._function(*arguments)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self._function, '__name__', '')})"


class HybridLambda(HybridBlock):
    """A function of arrays or symbols, or the name of one in `np` or `npx`, as a hybrid block.

    A function whose first parameter is `F` gets the operations there, as `hybrid_forward` does.
    """

    def __init__(self, function: Any, **settings: Any) -> None:
        super().__init__(**settings)
        self._function = _function(function)
        code = getattr(self._function, "__code__", None)
        self._takes_operations = code is not None and code.co_varnames[:1] == ("F",)

    def hybrid_forward(self, F: Any, *arguments: Any, **parameters: Any) -> Any:  # noqa: N803
        """The result of the function."""
        if self._takes_operations:
            return self._function(F, *arguments)
        return self._function(*arguments)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self._function, '__name__', '')})"
