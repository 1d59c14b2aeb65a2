"""Initializers: the contents of a parameter's array before training.

An initializer is called with a parameter's name and array, and fills the array in place. A network
parameter is filled as a weight, whatever its name, by its own initializer or the one given to
`initialize`. If you call an initializer yourself, the ending of the name selects the values: zeros
for biases and means, ones for scales and variances.
"""

from __future__ import annotations

import re
from math import ceil, erf, sqrt
from os import PathLike
from typing import TYPE_CHECKING, Any

from gemel import np, npx
from gemel.errors import (
    ArgumentError,
    OperandError,
    ShapeError,
    UnknownNameError,
    check_class,
    check_keywords,
    unknown_name,
)
from gemel.ranges import check_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from gemel.np import ndarray


class InitDesc(str):
    """A parameter's name with its `attrs` and the network's `global_init`."""

    attrs: dict[str, Any]
    global_init: Any

    def __new__(cls, name: str, attrs: Any = None, global_init: Any = None) -> InitDesc:
        """The name, as a string with extra attributes."""
        found = super().__new__(cls, name)
        found.attrs, found.global_init = attrs or {}, global_init
        return found


class Initializer:
    """Base class of initializers: subclasses define `_init_weight(name, array)`, which fills a
    weight.

    They may also define `_init_bias`, `_init_gamma`, `_init_beta`, `_init_zero`, `_init_one` and
    `_init_default`. `dumps` writes the keywords given to `__init__`.
    """

    _kwargs: dict[str, Any] = {}  # noqa: RUF012 -- replaced, never changed

    def __new__(cls, *arguments: Any, **settings: Any) -> Any:
        """Check the keywords before `__init__` gets them."""
        check_keywords(cls, settings)
        return super().__new__(cls)

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs

    def __call__(self, name: str, array: ndarray) -> None:
        """Fill `array`, the parameter called `name`, in place."""
        if not isinstance(name, str) or not hasattr(array, "as_in_ctx"):
            raise OperandError(
                f"{type(self).__name__}: it fills an array of gemel's in place, and takes its name "
                f"and the array, not {name!r} and {array!r}"
            )
        own = name.attrs.get("__init__") if isinstance(name, InitDesc) else None
        fill = next((fill for endings, fill in _FILLS if name.endswith(endings)), "_init_default")
        filling, fill = (create(own), "_init_weight") if own else (self, fill)
        found = getattr(filling, fill)(name, array)
        if found is not None and found is not array:
            raise ArgumentError(
                f"{type(filling).__name__}.{fill} returned a {type(found).__name__}; it must fill "
                f"the array that it is given, in place: array[...] = values"
            )

    def _init_weight(self, name: str, array: ndarray) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not define how to fill {name}")

    def _init_zero(self, name: str, array: ndarray) -> None:
        array[...] = 0

    def _init_one(self, name: str, array: ndarray) -> None:
        array[...] = 1

    def _init_bias(self, name: str, array: ndarray) -> None:
        self._init_zero(name, array)

    def _init_beta(self, name: str, array: ndarray) -> None:
        self._init_zero(name, array)

    def _init_gamma(self, name: str, array: ndarray) -> None:
        self._init_one(name, array)

    def _init_default(self, name: str, array: ndarray) -> None:
        self._init_weight(name, array)

    def dumps(self) -> str:
        """Its name and keywords as JSON, which `create` reads: ``["normal", {"sigma": 0.5}]``."""
        import json

        described = [type(self).__name__.lower(), self._kwargs]
        return json.dumps(described, default=lambda array: array.tolist())

    def set_verbosity(self, verbose: bool = False, print_func: Any = None) -> Initializer:
        """Return itself. Accepted for old code: ``initialize(verbose=True)`` prints the
        parameters."""
        return self

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and self.dumps() == other.dumps()

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return _called(self, {k: v for k, v in vars(self).items() if not k.startswith("_")})


def _called(initializer: Initializer, settings: dict[str, Any]) -> str:
    shown = ", ".join(f"{key}={value!r}" for key, value in settings.items())
    return f"{type(initializer).__name__}({shown})"


#: The methods for the endings of names.
_FILLS = (
    (("weight",), "_init_weight"),
    (("bias",), "_init_bias"),
    (("gamma",), "_init_gamma"),
    (("beta",), "_init_beta"),
    (("running_mean", "moving_mean", "moving_inv_var", "moving_avg", "min"), "_init_zero"),
    (("running_var", "moving_var", "max"), "_init_one"),
)

# --- by name --------------------------------------------------------------------------------

_BY_NAME: dict[str, type[Initializer]] = {}


def alias(*names: str) -> Callable[[type[Initializer]], type[Initializer]]:
    """A decorator that gives an initializer more names."""

    def decorated(kind: type[Initializer]) -> type[Initializer]:
        _BY_NAME.update({name.lower(): kind for name in names})
        return kind

    return decorated


def register(klass: type[Initializer]) -> type[Initializer]:
    """Register an initializer (a decorator): it can be requested by its class's name, in any case.

    >>> @register
    ... class Sevens(Initializer):
    ...     def _init_weight(self, name, array):
    ...         array[...] = 7
    >>> create("sevens")
    """
    check_class("init.register", klass)
    return alias(klass.__name__)(klass)


def create(value: Any, **keywords: Any) -> Initializer:
    """Create an initializer from an `Initializer` (class or object), a name such as 'xavier', or
    the text of `dumps`.

    Raises `UnknownNameError`, which suggests the nearest name.
    """
    if isinstance(value, Initializer):
        return value
    if isinstance(value, type) and issubclass(value, Initializer):
        return value(**keywords)
    if isinstance(value, str) and value.startswith("["):
        value, keywords = _described(value)
    if not isinstance(value, str) or value.lower() not in _BY_NAME:
        raise unknown_name("initializer", value, _BY_NAME)
    return _BY_NAME[value.lower()](**keywords)


def _described(text: str) -> tuple[Any, dict[str, Any]]:
    """The name and the keywords of the text of `dumps`. Raises `ArgumentError` for another."""
    import json

    try:
        name, keywords = json.loads(text)
        return name, {**keywords}
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"create: {text!r} is not the text of an initializer's dumps, such as "
            '["normal", {"sigma": 0.5}]'
        ) from error


# --- the same everywhere --------------------------------------------------------------------


@register
@alias("zeros")
class Zero(Initializer):
    """Zeros."""

    def _init_weight(self, name: str, array: ndarray) -> None:
        array[...] = 0


@register
@alias("ones")
class One(Initializer):
    """Ones."""

    def _init_weight(self, name: str, array: ndarray) -> None:
        array[...] = 1


@register
class Constant(Initializer):
    """One value everywhere: a number, or an array (or nested list) that broadcasts."""

    def __init__(self, value: Any = 0.0) -> None:
        super().__init__(value=value)
        self.value = value

    def _init_weight(self, name: str, array: ndarray) -> None:
        array[...] = self.value


# --- random ---------------------------------------------------------------------------------


@register
class Uniform(Initializer):
    """Uniform in [-scale, scale)."""

    def __init__(self, scale: float = 0.07) -> None:
        check_number("Uniform", "scale", scale, 0)
        super().__init__(scale=scale)
        self.scale = scale

    def _init_weight(self, name: str, array: ndarray) -> None:
        _fill(array, "uniform", self.scale)


@register
@alias("gaussian")
class Normal(Initializer):
    """Normal with mean 0 and standard deviation `sigma`."""

    def __init__(self, sigma: float = 0.01) -> None:
        check_number("Normal", "sigma", sigma, 0)
        super().__init__(sigma=sigma)
        self.sigma = sigma

    def _init_weight(self, name: str, array: ndarray) -> None:
        _fill(array, "gaussian", self.sigma)


@register
class TruncNorm(Initializer):
    """Normal with this mean and standard deviation, truncated at 2 standard deviations from the
    mean.

    Each number is the inverse distribution function of a uniform one.
    """

    def __init__(self, mean: float = 0.0, stdev: float = 0.01) -> None:
        check_number("TruncNorm", "mean", mean)
        check_number("TruncNorm", "stdev", stdev, 0)
        super().__init__(mean=mean, stdev=stdev)
        self.mean = mean
        self.stdev = stdev

    def _init_weight(self, name: str, array: ndarray) -> None:
        within = erf(sqrt(2))  # the probability of that interval
        drawn = np.random.uniform(-within, within, size=array.shape, device=array.device)
        array[...] = self.mean + self.stdev * sqrt(2) * npx.erfinv(drawn)


@register
class Orthogonal(Initializer):
    """`scale` times a matrix (outputs, all inputs) with orthonormal rows, or columns if it is tall.

    `rand_type` is the distribution of the matrix it is computed from: ``"uniform"`` or
    ``"normal"``. Saxe et al., Exact solutions to the nonlinear dynamics of learning in deep linear
    networks, ICLR 2014.
    """

    def __init__(self, scale: float = 1.414, rand_type: str = "uniform") -> None:
        if rand_type not in ("uniform", "normal"):
            raise unknown_name("Orthogonal rand_type", rand_type, ("uniform", "normal"))
        check_number("Orthogonal", "scale", scale)
        super().__init__(scale=scale, rand_type=rand_type)
        self.scale = scale
        self.rand_type = rand_type

    def _init_weight(self, name: str, array: ndarray) -> None:
        _check_matrix("Orthogonal", name, array.shape)
        # The factorization is of double precision if the array is, else of single.
        precision = "float64" if array.dtype == "float64" else "float32"
        shape = (array.shape[0], array.size // max(array.shape[0], 1))
        drawn = np.zeros(shape, dtype=precision)
        _fill(drawn, "uniform" if self.rand_type == "uniform" else "gaussian", 1.0)
        tall = drawn.shape[0] > drawn.shape[1]
        found, _ = np.linalg.qr(drawn if tall else drawn.T)
        array[...] = self.scale * (found if tall else found.T).reshape(array.shape)


@register
class Xavier(Initializer):
    """Random weights that keep the scale of signals and gradients from layer to layer.

    With ``rnd_type="gaussian"`` the variance is magnitude / factor, the factor being the number of
    inputs (``"in"``), of outputs (``"out"``) or their mean (``"avg"``). With ``"uniform"`` the
    numbers are within plus or minus the square root of that ratio, so the variance is a third of
    it: the default magnitude 3 makes it 1 / factor. Glorot and Bengio, Understanding the
    difficulty of training deep feedforward neural networks, AISTATS 2010.
    """

    def __init__(
        self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3
    ) -> None:
        if rnd_type not in ("uniform", "gaussian"):
            raise unknown_name("Xavier rnd_type", rnd_type, ("uniform", "gaussian"))
        if factor_type not in ("avg", "in", "out"):
            raise unknown_name("Xavier factor_type", factor_type, ("avg", "in", "out"))
        check_number(type(self).__name__, "magnitude", magnitude, 0)
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)

    def _init_weight(self, name: str, array: ndarray) -> None:
        _check_matrix(type(self).__name__, name, array.shape)
        _fill(array, self.rnd_type, sqrt(self.magnitude / self._factor(array.shape)))

    def _factor(self, shape: tuple[int, ...]) -> float:
        window = 1
        for size in shape[2:]:
            window *= size
        outputs, inputs = shape[0] * window, shape[1] * window
        factors = {"avg": (inputs + outputs) / 2, "in": inputs, "out": outputs}
        # A layer without inputs or outputs has no weights to scale.
        return float(factors[self.factor_type]) or 1.0


@register
class MSRAPrelu(Xavier):
    """Gaussian `Xavier` of magnitude 2 / (1 + slope²), for layers that end in a PReLU of `slope`.

    He et al., Delving deep into rectifiers, ICCV 2015.
    """

    def __init__(self, factor_type: str = "avg", slope: float = 0.25) -> None:
        check_number("MSRAPrelu", "slope", slope)
        super().__init__("gaussian", factor_type, 2.0 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}

    def __repr__(self) -> str:
        return _called(self, self._kwargs)


# --- for one kind of layer ------------------------------------------------------------------


@register
class Bilinear(Initializer):
    """The kernel (.., .., height, width) of a transposed convolution that enlarges images."""

    def _init_weight(self, name: str, array: ndarray) -> None:
        if len(array.shape) != 4:
            raise ShapeError(f"Bilinear: {name} has shape {array.shape}; it needs 4 dimensions")
        half = ceil(array.shape[3] / 2)
        centre = (2 * half - 1 - half % 2) / (2 * half)
        rows, columns = (1 - np.abs(np.arange(n) / half - centre) for n in array.shape[2:])
        array[...] = rows.reshape((-1, 1)) * columns


@register
class LSTMBias(Initializer):
    """Zeros, except `forget_bias` for the forget gate, the second of the four gates of an LSTM."""

    def __init__(self, forget_bias: float = 1.0) -> None:
        super().__init__(forget_bias=forget_bias)
        self.forget_bias = forget_bias

    def _init_weight(self, name: str, array: ndarray) -> None:
        units = array.shape[0] // 4
        array[...] = 0
        array[units : 2 * units] = self.forget_bias


# --- made of others -------------------------------------------------------------------------


@register
class Mixed(Initializer):
    """Several initializers: uses the first whose regular expression matches the start of the name.

    The patterns are matched with the names of parameters (``dense0_bias``).
    """

    def __init__(self, patterns: Any, initializers: Any) -> None:
        for name, given in (("patterns", patterns), ("initializers", initializers)):
            if isinstance(given, str) or not hasattr(given, "__len__"):
                raise ArgumentError(f"Mixed: {name} is {given!r}; it must be a list")
        if len(patterns) != len(initializers):
            raise ArgumentError(
                f"Mixed: {len(patterns)} patterns and {len(initializers)} initializers; give one "
                "initializer for each pattern"
            )
        super().__init__(
            patterns=list(patterns), initializers=[create(i).dumps() for i in initializers]
        )
        pairs = zip(patterns, initializers, strict=True)
        self.map = [(_compiled(pattern), create(each)) for pattern, each in pairs]

    def __call__(self, name: str, array: ndarray) -> None:
        """Fill `array`. Raises `UnknownNameError` if no pattern matches the name."""
        for pattern, initializer in self.map:
            if pattern.match(name):
                initializer(str(name), array)
                return
        raise UnknownNameError(
            f"Mixed: the name {name} matches none of the patterns; add '.*' as the last one"
        )

    _init_weight = __call__


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ArgumentError(
            f"Mixed: the pattern {pattern!r} is not a regular expression: {error}"
        ) from error


class Load(Initializer):
    """Arrays from a parameter file or a dictionary; other parameters are left to `default_init`.

    The names are those of parameters (``dense0_weight``); ``arg:`` and ``aux:`` before them are
    dropped. `verbose` prints where each came from.
    """

    def __init__(self, param: Any, default_init: Any = None, verbose: bool = False) -> None:
        super().__init__()
        found: Any = npx.load(param) if isinstance(param, (str, PathLike)) else param
        if not hasattr(found, "keys"):
            raise ArgumentError(
                f"Load: {type(found).__name__} has no names; give a dictionary of arrays by name, "
                "or a file of one"
            )
        self.param = {name.removeprefix("arg:").removeprefix("aux:"): found[name] for name in found}
        self.default_init = default_init
        self.verbose = verbose

    def __call__(self, name: str, array: ndarray) -> None:
        """Fill `array`. Raises `ShapeError`, and `UnknownNameError` for a name there is not."""
        value = self.param.get(name)
        if value is None and self.default_init is None:
            raise unknown_name("loaded parameter", name, self.param)
        if self.verbose:
            print(f"{name}: {'by default' if value is None else 'loaded'}")
        if value is None:
            create(self.default_init)(str(name), array)
            return
        if tuple(value.shape) != tuple(array.shape):
            raise ShapeError(
                f"Load: {name} has shape {array.shape}, but the loaded array has {value.shape}"
            )
        array[...] = value

    _init_weight = __call__


def _check_matrix(who: str, name: str, shape: tuple[int, ...]) -> None:
    if len(shape) < 2:
        raise ShapeError(
            f"{who}: {name} has shape {shape}; it needs at least 2 dimensions "
            "(outputs, inputs, ...); give this parameter another initializer"
        )


def _fill(array: ndarray, kind: str, scale: float) -> None:
    """Uniform numbers in [-scale, scale), or normal ones with standard deviation `scale`."""
    low, draw = (-scale, np.random.uniform) if kind == "uniform" else (0.0, np.random.normal)
    array[...] = draw(low, scale, size=array.shape, dtype=array.dtype, device=array.device)
