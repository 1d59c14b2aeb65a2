"""MXNet 1's random numbers: from numbers, from arrays of parameters, and like another array."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gemel import np, npx
from gemel.legacy.declare import legacy
from gemel.ops.distribution import shape_of

#: By MXNet's names: the settings with their defaults, and the function that draws numbers.
DRAWN: dict[str, tuple[dict[str, float], Callable[..., Any]]] = {
    "uniform": ({"low": 0.0, "high": 1.0}, np.random.uniform),
    "normal": ({"loc": 0.0, "scale": 1.0}, np.random.normal),
    "exponential": (
        {"lam": 1.0},
        lambda lam, size, dtype=None: np.random.exponential(1 / lam, size, dtype),
    ),
    "gamma": ({"alpha": 1.0, "beta": 1.0}, np.random.gamma),
    "poisson": ({"lam": 1.0}, np.random.poisson),
    "negative_binomial": ({"k": 1, "p": 1.0}, np.random.negative_binomial),
    "generalized_negative_binomial": (
        {"mu": 1.0, "alpha": 1.0},
        lambda mu, alpha, size, dtype=None: np.random.poisson(
            np.random.gamma(1 / alpha, mu * alpha, size), dtype=dtype
        ),
    ),
}
#: The names of the parameters in operations on arrays, if they differ from the settings.
INPUTS = {"normal": ("mu", "sigma")}


def _shaped(shape: Any) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,) if shape else ()


def _plain(x: Any) -> Any:
    """A plain array, without MXNet 1's behaviour, where comparisons give numbers."""
    return x.as_np_ndarray() if isinstance(x, np.ndarray) else x


def _declared(name: str, defaults: dict[str, float], draw: Callable[..., Any]) -> None:
    """Declare the three operations of a distribution: from numbers, from arrays, like an array."""

    def given(settings: dict[str, Any]) -> list[Any]:
        chosen = {**defaults, **{k: v for k, v in settings.items() if v is not None}}
        return [float(chosen[each]) for each in defaults]

    def plain(shape: Any = None, dtype: Any = None, **settings: Any) -> Any:
        size = (1,) if shape is None else _shaped(shape)
        return draw(*given(settings), size=size, dtype=_named(dtype))

    def of_arrays(*data: Any, shape: Any = None, dtype: Any = None) -> Any:
        more = _shaped(shape)
        size = (*shape_of(name, None, data), *more)
        spread = [_plain(x).reshape((*x.shape, *[1] * len(more))) for x in data]
        return draw(*spread, size=size, dtype=_named(dtype))

    def like(data: Any, **settings: Any) -> Any:
        return draw(*given(settings), size=data.shape).astype(data.dtype)

    plain.__doc__ = f"Random numbers ({name}) of these settings."
    of_arrays.__doc__ = f"Random numbers ({name}): in this shape for each element of the settings."
    like.__doc__ = f"Random numbers ({name}) in the shape of an array."
    names = {"uniform": ("uniform",), "normal": ("normal",)}.get(name, ())
    legacy(f"_random_{name}", f"random_{name}", *names, inputs=0)(plain).settings = (
        *defaults, "shape", "dtype",
    )  # fmt: skip
    sample = legacy(f"_sample_{name}", f"sample_{name}")(of_arrays)
    sample.variadic, sample.settings = False, ("shape", "dtype")
    sample.inputs = INPUTS.get(name, tuple(defaults))
    sample.axes = dict.fromkeys(sample.inputs, "...")
    legacy(f"_random_{name}_like", f"{name}_like", inputs=1)(like).settings = tuple(defaults)


def _named(dtype: Any) -> Any:
    return "float32" if dtype in (None, "None") else dtype


for _name, (_defaults, _draw) in DRAWN.items():
    _declared(_name, _defaults, _draw)


@legacy("_random_randint", "random_randint", inputs=0)
def random_randint(low: int, high: int, shape: Any = None, dtype: Any = "int32") -> Any:
    """Random whole numbers from low up to and without high."""
    dtype = "int32" if dtype in (None, "None") else dtype
    size = (1,) if shape is None else _shaped(shape)
    return np.random.randint(int(low), int(high), size=size, dtype=dtype)


@legacy("_sample_multinomial", "sample_multinomial", inputs=1)
def sample_multinomial(
    data: Any, shape: Any = None, get_prob: bool = False, dtype: Any = "int32"
) -> Any:
    """Positions drawn for each row of probabilities, and with `get_prob` the logarithms of their
    probabilities."""
    data, more = _plain(data), _shaped(shape)
    count = 1
    for extent in more:
        count *= extent
    bounds = np.cumsum(data, axis=-1)
    drawn = np.random.uniform(0.0, 1.0, size=(*data.shape[:-1], count)) * bounds[..., -1:]
    found = (bounds[..., None, :] <= drawn[..., None]).sum(axis=-1)
    shaped = found.astype(dtype).reshape((*data.shape[:-1], *more))
    if not get_prob:
        return shaped
    chosen = np.log(np.take_along_axis(data, found, axis=-1))
    return [shaped, chosen.reshape(shaped.shape)]


#: By MXNet's names: the logarithm of a distribution's density at x, given its parameters.
DENSITIES: dict[str, Callable[..., Any]] = {
    "uniform": lambda x, low, high: -np.log(high - low) + 0 * x,
    "normal": lambda x, mu, sigma: (
        -(((x - mu) / sigma) ** 2) / 2 - np.log(sigma) - 0.5 * math.log(2 * math.pi)
    ),
    "gamma": lambda x, alpha, beta: (
        alpha * np.log(beta) + (alpha - 1) * np.log(x) - beta * x - npx.gammaln(alpha)
    ),
    "exponential": lambda x, lam: np.log(lam) - lam * x,
    "poisson": lambda x, lam: x * np.log(lam) - npx.gammaln(x + 1) - lam,
    "negative_binomial": lambda x, k, p: (
        npx.gammaln(x + k) - npx.gammaln(x + 1) - npx.gammaln(k) + k * np.log(p) + x * np.log(1 - p)
    ),
    "generalized_negative_binomial": lambda x, mu, alpha: DENSITIES["negative_binomial"](
        x, 1 / alpha, 1 / (mu * alpha + 1)
    ),
}


def _density(name: str, density: Callable[..., Any]) -> None:
    def pdf(sample: Any, *data: Any, is_log: bool = False) -> Any:
        more = [1] * (len(sample.shape) - len(data[0].shape))
        found = density(sample, *(x.reshape((*x.shape, *more)) for x in data))
        return found if is_log else np.exp(found)

    pdf.__doc__ = f"The density ({name}) at each sample, of the settings of its row."
    legacy(f"_random_pdf_{name}", f"random_pdf_{name}")(pdf)


for _name, _of in DENSITIES.items():
    _density(_name, _of)


@legacy(
    "_random_pdf_dirichlet",
    "random_pdf_dirichlet",
    inputs=2,
    axes={"sample": "..., d", "alpha": "..., d"},
)
def random_pdf_dirichlet(sample: Any, alpha: Any, is_log: bool = False) -> Any:
    """The density at each sample (a row of shares), for the corresponding row of alpha."""
    spread = [1] * (len(sample.shape) - len(alpha.shape))
    alpha = alpha.reshape((*alpha.shape[:-1], *spread, alpha.shape[-1]))
    found = ((alpha - 1) * np.log(sample)).sum(axis=-1) + npx.gammaln(alpha.sum(axis=-1))
    found = found - npx.gammaln(alpha).sum(axis=-1)
    return found if is_log else np.exp(found)


@legacy("_shuffle", "shuffle", inputs=1)
def shuffle(data: Any) -> Any:
    """The slices along the first axis in random order."""
    return np.random.permutation(data)
