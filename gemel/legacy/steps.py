"""MXNet's rarer optimizer steps as operations: for float16 weights with a float32 copy, for several
arrays at once, and LAMB, AdamW, FTRL and FTML. They overwrite states and return the new weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel import np
from gemel.errors import ArgumentError
from gemel.legacy.declare import Legacy, legacy
from gemel.legacy.updates import clipped, nag_mom_update, overwritten, sgd_mom_update, sgd_update

# --- other optimizers -----------------------------------------------------------------------


@legacy("ftrl_update", inputs=4)
def ftrl_update(
    weight: Any, grad: Any, z: Any, n: Any, lr: float, lamda1: float = 0.01, beta: float = 1.0,
    wd: float = 0.0, rescale_grad: float = 1.0, clip_gradient: float = -1.0,
) -> Any:  # fmt: skip
    """A step of FTRL (McMahan et al., Ad click prediction, 2013)."""
    grad = clipped(rescale_grad * grad, clip_gradient)
    before = np.sqrt(n)
    overwritten(n, n + grad * grad)
    overwritten(z, z + grad - (np.sqrt(n) - before) * weight / lr)
    found = (np.sign(z) * lamda1 - z) / ((beta + np.sqrt(n)) / lr + wd)
    return np.where(np.abs(z) > lamda1, found, 0)


@legacy("ftml_update", inputs=5)
def ftml_update(
    weight: Any, grad: Any, d: Any, v: Any, z: Any, lr: float, beta1: float = 0.6,
    beta2: float = 0.999, epsilon: float = 1e-8, t: int = 1, wd: float = 0.0,
    rescale_grad: float = 1.0, clip_grad: float = -1.0,
) -> Any:  # fmt: skip
    """A step of FTML (Zheng and Kwok, Follow the moving leader, ICML 2017)."""
    grad = clipped(rescale_grad * grad + wd * weight, clip_grad)
    overwritten(v, beta2 * v + (1 - beta2) * grad * grad)
    new = (1 - beta1**t) / lr * (np.sqrt(v / (1 - beta2**t)) + epsilon)
    overwritten(z, beta1 * z + (1 - beta1) * grad - (new - beta1 * d) * weight)
    overwritten(d, new)
    return -z / d


@legacy("rmspropalex_update", inputs=5)
def rmspropalex_update(
    weight: Any, grad: Any, n: Any, g: Any, delta: Any, lr: float, gamma1: float = 0.95,
    gamma2: float = 0.9, epsilon: float = 1e-8, wd: float = 0.0, rescale_grad: float = 1.0,
    clip_gradient: float = -1.0, clip_weights: float = -1.0,
) -> Any:  # fmt: skip
    """A step of RMSProp with the gradient's variance (Graves, Generating sequences, 2013)."""
    grad = clipped(rescale_grad * grad + wd * weight, clip_gradient)
    overwritten(n, gamma1 * n + (1 - gamma1) * grad * grad)
    overwritten(g, gamma1 * g + (1 - gamma1) * grad)
    overwritten(delta, gamma2 * delta - lr * grad / np.sqrt(np.maximum(n - g * g, 0) + epsilon))
    return clipped(weight + delta, clip_weights)


@legacy("_contrib_adamw_update", "_adamw_update", inputs=5)
def adamw_update(
    weight: Any, grad: Any, mean: Any, var: Any, rescale_grad: Any, lr: float, eta: float,
    beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, wd: float = 0.0,
    clip_gradient: float = -1.0,
) -> Any:  # fmt: skip
    """A step of AdamW (Loshchilov and Hutter, 2019), skipped if `rescale_grad`, an array of one
    number, is 0 or not finite.
    """
    scale = np.asarray(rescale_grad, dtype="float32").reshape(())
    fits = np.logical_and(np.isfinite(scale), np.not_equal(scale, 0))
    grad = clipped(grad * np.where(fits, scale, 0), clip_gradient)
    overwritten(mean, np.where(fits, beta1 * mean + (1 - beta1) * grad, mean))
    overwritten(var, np.where(fits, beta2 * var + (1 - beta2) * grad * grad, var))
    step = eta * (lr * mean / (np.sqrt(var) + epsilon) + wd * weight)
    return np.where(fits, weight - step, weight)


@legacy("_contrib_group_adagrad_update", inputs=3)
def group_adagrad_update(
    weight: Any, grad: Any, history: Any, lr: float, rescale_grad: float = 1.0,
    clip_gradient: float = -1.0, epsilon: float = 1e-5,
) -> Any:  # fmt: skip
    """A step of AdaGrad whose history has one number for each row, its mean square."""
    grad = clipped(rescale_grad * grad, clip_gradient)
    axes = tuple(range(1, grad.ndim))
    overwritten(
        history, history + np.square(grad).mean(axis=axes, keepdims=True).reshape(history.shape)
    )
    rows = history.reshape((history.shape[0], *[1] * len(axes)))
    return weight - lr * grad / np.sqrt(rows + epsilon)


# --- LAMB -----------------------------------------------------------------------------------


@legacy("lamb_update_phase1", inputs=4)
def lamb_update_phase1(
    weight: Any, grad: Any, mean: Any, var: Any, beta1: float = 0.9, beta2: float = 0.999,
    epsilon: float = 1e-6, t: int = 1, bias_correction: bool = True, wd: float = 0.0,
    rescale_grad: float = 1.0, clip_gradient: float = -1.0,
) -> Any:  # fmt: skip
    """The direction of a LAMB step (You et al., 2020), before its length is set."""
    grad = clipped(rescale_grad * grad, clip_gradient)
    overwritten(mean, beta1 * mean + (1 - beta1) * grad)
    overwritten(var, beta2 * var + (1 - beta2) * grad * grad)
    first = 1 - beta1**t if bias_correction else 1.0
    second = 1 - beta2**t if bias_correction else 1.0
    return mean / first / (np.sqrt(var / second) + epsilon) + wd * weight


@legacy("lamb_update_phase2", inputs=4)
def lamb_update_phase2(
    weight: Any, g: Any, r1: Any, r2: Any, lr: float, lower_bound: float = -1.0,
    upper_bound: float = -1.0,
) -> Any:  # fmt: skip
    """The step of LAMB along g. r1 is the weight's norm, limited to the bounds, and r2 is g's."""
    r1 = np.maximum(r1, lower_bound) if lower_bound >= 0 else r1
    r1 = np.minimum(r1, upper_bound) if upper_bound >= 0 else r1
    known = np.logical_and(r1, r2)
    return weight - lr * np.where(known, r1 / np.where(known, r2, 1), 1.0) * g


# --- weights with a copy in float32 -----------------------------------------------------------


def _mixed(plain: Legacy) -> Callable[..., Any]:
    """The step on `weight32`; the new weight is its new value, rounded."""

    def step(weight: Any, grad: Any, *states: Any, **settings: Any) -> Any:
        *others, weight32 = states
        found = plain.function(weight32, grad.astype("float32"), *others, **settings)
        return overwritten(weight32, found).astype(weight.dtype)

    return step


@legacy("mp_sgd_update", inputs=3)
def mp_sgd_update(weight: Any, grad: Any, weight32: Any, lr: float, **settings: Any) -> Any:
    """`sgd_update` of a 16-bit weight with a copy in float32."""
    return _mixed(sgd_update)(weight, grad, weight32, lr=lr, **settings)


@legacy("mp_sgd_mom_update", inputs=4)
def mp_sgd_mom_update(
    weight: Any, grad: Any, mom: Any, weight32: Any, lr: float, **settings: Any
) -> Any:
    """`sgd_mom_update` of a 16-bit weight with a copy in float32."""
    return _mixed(sgd_mom_update)(weight, grad, mom, weight32, lr=lr, **settings)


@legacy("mp_nag_mom_update", inputs=4)
def mp_nag_mom_update(
    weight: Any, grad: Any, mom: Any, weight32: Any, lr: float, **settings: Any
) -> Any:
    """`nag_mom_update` of a 16-bit weight with a copy in float32."""
    return _mixed(nag_mom_update)(weight, grad, mom, weight32, lr=lr, **settings)


for _step, _plain in (
    (mp_sgd_update, sgd_update),
    (mp_sgd_mom_update, sgd_mom_update),
    (mp_nag_mom_update, nag_mom_update),
):
    _step.settings = _plain.settings


@legacy("mp_lamb_update_phase1", inputs=5)
def mp_lamb_update_phase1(
    weight: Any, grad: Any, mean: Any, var: Any, weight32: Any, beta1: float = 0.9,
    beta2: float = 0.999, epsilon: float = 1e-6, t: int = 1, bias_correction: bool = True,
    wd: float = 0.0, rescale_grad: float = 1.0, clip_gradient: float = -1.0,
) -> Any:  # fmt: skip
    """`lamb_update_phase1` of a 16-bit weight; the direction is in float32."""
    return lamb_update_phase1.function(
        weight32, grad.astype("float32"), mean, var, beta1, beta2, epsilon, t, bias_correction,
        wd, rescale_grad, clip_gradient,
    )  # fmt: skip


@legacy("mp_lamb_update_phase2", inputs=5)
def mp_lamb_update_phase2(
    weight: Any, g: Any, r1: Any, r2: Any, weight32: Any, lr: float, lower_bound: float = -1.0,
    upper_bound: float = -1.0,
) -> Any:  # fmt: skip
    """`lamb_update_phase2` of a 16-bit weight with a copy in float32."""
    found = lamb_update_phase2.function(weight32, g, r1, r2, lr, lower_bound, upper_bound)
    return overwritten(weight32, found).astype(weight.dtype)


# --- several weights at once ------------------------------------------------------------------

#: By MXNet's names: the number of arrays for each weight, including itself, and the step.
SEVERAL: dict[str, tuple[int, Callable[..., Any]]] = {
    "sgd_update": (2, sgd_update.function),
    "sgd_mom_update": (3, sgd_mom_update.function),
    "mp_sgd_update": (3, _mixed(sgd_update)),
    "mp_sgd_mom_update": (4, _mixed(sgd_mom_update)),
}


def _several(name: str, each: int, step: Callable[..., Any]) -> None:
    """Declare a step for several weights: with rates and decays as settings, or as arrays."""
    settings = ("momentum",) if "mom" in name else ()

    def update(data: Any, rates: Any, decays: Any, keywords: dict[str, Any]) -> list[Any]:
        if len(data) % each or not len(data) // each == len(rates) == len(decays):
            raise ArgumentError(
                f"multi_{name}: {len(data)} arrays, {len(rates)} rates and {len(decays)} decays; "
                f"give {each} arrays, a rate and a decay for each weight"
            )
        groups = [data[first : first + each] for first in range(0, len(data), each)]
        every = zip(groups, rates, decays, strict=True)
        return [step(*group, lr=lr, wd=wd, **keywords) for group, lr, wd in every]

    def given(*data: Any, lrs: Any, wds: Any, num_weights: int = 1, **keywords: Any) -> list[Any]:
        return update(data, lrs, wds, keywords)

    def preloaded(*data: Any, num_weights: int = 1, **keywords: Any) -> list[Any]:
        *rest, rates, decays = data
        return update(rest, list(rates), list(decays), keywords)

    given.__doc__ = f"`{name}` of several weights: (weight, gradient, states) one after another."
    preloaded.__doc__ = f"`multi_{name}` whose last two arrays are the rates and the decays."
    common = ("num_weights", "rescale_grad", "clip_gradient", *settings)
    for prefix, function, own in (
        ("multi", given, ("lrs", "wds")),
        ("preloaded_multi", preloaded, ()),
    ):
        found = legacy(f"{prefix}_{name}", outputs=_weights)(function)
        found.settings = (*own, *common)


def _weights(settings: dict[str, Any]) -> int:
    return int(settings.get("num_weights", 1))


for _name, (_each, _how) in SEVERAL.items():
    _several(_name, _each, _how)


@legacy("multi_lars", inputs=4)
def multi_lars(
    lrs: Any, weights_sum_sq: Any, grads_sum_sq: Any, wds: Any, eta: float, eps: float,
    rescale_grad: float = 1.0,
) -> Any:  # fmt: skip
    """The rates of LARS (You et al., 2017), from the sums of squares of weights and gradients."""
    weights, grads = np.sqrt(weights_sum_sq), np.sqrt(grads_sum_sq)
    known = np.logical_and(weights, grads)
    scaled = eta * weights / (grads * rescale_grad + wds * weights + eps)
    return np.where(known, lrs * np.where(known, scaled, 1), lrs)


@legacy("multi_all_finite")
def multi_all_finite(*data: Any, num_arrays: int = 1, init_output: bool = True) -> Any:
    """Whether all numbers of all arrays are finite: 1 or 0."""
    found = np.stack([np.isfinite(each).all() for each in data]).all()
    return found.astype("float32").reshape(1)


@legacy("reset_arrays")
def reset_arrays(*data: Any, num_arrays: int = 1) -> None:
    """Overwrite arrays with zeros."""
    for each in data:
        overwritten(each, 0)
