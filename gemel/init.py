"""Initializers: what a parameter's array holds before training.

An initializer is called with a parameter's name and array, and fills the array in place. The ending
of the name says what the array is for: weights get what the initializer is about, biases and means
zeros, scales and variances ones.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.errors import ShapeError, unknown_name

if TYPE_CHECKING:
    from gemel.np import ndarray


class Initializer:
    """Base class: subclasses say in `_init_weight(name, array)` how a weight is filled."""

    def __call__(self, name: str, array: ndarray) -> None:
        """Fill `array`, the parameter called `name`, in place."""
        if name.endswith(("bias", "beta", "running_mean", "moving_mean")):
            self._init_zero(name, array)
        elif name.endswith(("gamma", "running_var", "moving_var")):
            self._init_one(name, array)
        else:
            self._init_weight(name, array)

    def _init_weight(self, name: str, array: ndarray) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how to fill {name}")

    def _init_zero(self, name: str, array: ndarray) -> None:
        array[...] = 0

    def _init_one(self, name: str, array: ndarray) -> None:
        array[...] = 1

    def __repr__(self) -> str:
        values = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({values})"


class Zero(Initializer):
    """Zeros."""

    def _init_weight(self, name: str, array: ndarray) -> None:
        array[...] = 0


class One(Initializer):
    """Ones."""

    def _init_weight(self, name: str, array: ndarray) -> None:
        array[...] = 1


class Constant(Initializer):
    """One value everywhere: a number, or an array (or nested list) that broadcasts."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def _init_weight(self, name: str, array: ndarray) -> None:
        array[...] = self.value


class Uniform(Initializer):
    """Uniform in [-scale, scale)."""

    def __init__(self, scale: float = 0.07) -> None:
        self.scale = scale

    def _init_weight(self, name: str, array: ndarray) -> None:
        _fill_uniform(array, self.scale)


class Normal(Initializer):
    """Normal with mean 0 and standard deviation `sigma`."""

    def __init__(self, sigma: float = 0.01) -> None:
        self.sigma = sigma

    def _init_weight(self, name: str, array: ndarray) -> None:
        _fill_normal(array, self.sigma)


class Xavier(Initializer):
    """Random weights that keep the scale of signals and gradients from layer to layer.

    The variance is magnitude / factor, the factor being the number of inputs (``"in"``), of
    outputs (``"out"``) or their mean (``"avg"``); ``rnd_type`` is ``"uniform"`` or ``"gaussian"``.
    Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks,
    AISTATS 2010.
    """

    def __init__(
        self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3
    ) -> None:
        if rnd_type not in ("uniform", "gaussian"):
            raise unknown_name("Xavier rnd_type", rnd_type, ("uniform", "gaussian"))
        if factor_type not in ("avg", "in", "out"):
            raise unknown_name("Xavier factor_type", factor_type, ("avg", "in", "out"))
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)

    def _init_weight(self, name: str, array: ndarray) -> None:
        scale = sqrt(self.magnitude / self._factor(name, array.shape))
        if self.rnd_type == "uniform":
            _fill_uniform(array, scale)
        else:
            _fill_normal(array, scale)

    def _factor(self, name: str, shape: tuple[int, ...]) -> float:
        if len(shape) < 2:
            raise ShapeError(
                f"Xavier: {name} has shape {shape}; it needs at least 2 dimensions "
                "(outputs, inputs, ...); give this parameter another initializer"
            )
        window = 1
        for size in shape[2:]:
            window *= size
        outputs, inputs = shape[0] * window, shape[1] * window
        factors = {"avg": (inputs + outputs) / 2, "in": inputs, "out": outputs}
        # A layer without inputs or outputs has no weights to scale.
        return float(factors[self.factor_type]) or 1.0


def _fill_uniform(array: ndarray, scale: float) -> None:
    array[...] = np.random.uniform(
        -scale, scale, size=array.shape, dtype=array.dtype, device=array.device
    )


def _fill_normal(array: ndarray, sigma: float) -> None:
    array[...] = np.random.normal(
        0.0, sigma, size=array.shape, dtype=array.dtype, device=array.device
    )


_BY_NAME: dict[str, type[Initializer]] = {
    "zero": Zero,
    "zeros": Zero,
    "one": One,
    "ones": One,
    "uniform": Uniform,
    "normal": Normal,
    "gaussian": Normal,
    "xavier": Xavier,
}


def create(value: Any) -> Initializer:
    """The initializer meant by an `Initializer` (class or object), or by a name such as 'xavier'.

    Raises `UnknownNameError`, which suggests the nearest name.
    """
    if isinstance(value, Initializer):
        return value
    if isinstance(value, type) and issubclass(value, Initializer):
        return value()
    if not isinstance(value, str) or value.lower() not in _BY_NAME:
        raise unknown_name("initializer", value, _BY_NAME)
    return _BY_NAME[value.lower()]()
