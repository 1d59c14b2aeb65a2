"""MXNet 1's optimizer steps as operations: they overwrite states and return the new weight."""

from __future__ import annotations

from typing import Any

from gemel import np
from gemel.legacy.declare import legacy


def clipped(grad: Any, limit: float) -> Any:
    """Values limited to [-limit, limit]; unchanged if the limit is negative."""
    return np.clip(grad, -limit, limit) if limit >= 0 else grad


def overwritten(state: Any, value: Any) -> Any:
    """A state, into which its new value has been written."""
    state[...] = value
    return state


@legacy("sgd_update", inputs=2)
def sgd_update(
    weight: Any, grad: Any, lr: float, wd: float = 0.0, rescale_grad: float = 1.0,
    clip_gradient: float = -1.0, lazy_update: bool = True,
) -> Any:  # fmt: skip
    """weight - lr * (grad + wd * weight), with the gradient rescaled and clipped first."""
    return (1 - lr * wd) * weight - lr * clipped(rescale_grad * grad, clip_gradient)


@legacy("sgd_mom_update", inputs=3)
def sgd_mom_update(
    weight: Any, grad: Any, mom: Any, lr: float, momentum: float = 0.0, wd: float = 0.0,
    rescale_grad: float = 1.0, clip_gradient: float = -1.0, lazy_update: bool = True,
) -> Any:  # fmt: skip
    """`sgd_update` with momentum, which is kept in `mom`."""
    step = lr * clipped(rescale_grad * grad, clip_gradient) + lr * wd * weight
    return weight + overwritten(mom, momentum * mom - step)


@legacy("nag_mom_update", inputs=3)
def nag_mom_update(
    weight: Any, grad: Any, mom: Any, lr: float, momentum: float = 0.0, wd: float = 0.0,
    rescale_grad: float = 1.0, clip_gradient: float = -1.0,
) -> Any:  # fmt: skip
    """`sgd_mom_update` with Nesterov momentum."""
    step = lr * (clipped(rescale_grad * grad, clip_gradient) + wd * weight)
    return weight + momentum * overwritten(mom, momentum * mom - step) - step


@legacy("adam_update", inputs=4)
def adam_update(
    weight: Any, grad: Any, mean: Any, var: Any, lr: float, beta1: float = 0.9,
    beta2: float = 0.999, epsilon: float = 1e-8, wd: float = 0.0, rescale_grad: float = 1.0,
    clip_gradient: float = -1.0, lazy_update: bool = True,
) -> Any:  # fmt: skip
    """A step of Adam (Kingma and Ba, 2015) without the correction of the first steps."""
    grad = clipped(rescale_grad * grad + wd * weight, clip_gradient)
    overwritten(mean, beta1 * mean + (1 - beta1) * grad)
    overwritten(var, beta2 * var + (1 - beta2) * grad * grad)
    return weight - lr * mean / (np.sqrt(var) + epsilon)


@legacy("rmsprop_update", inputs=3)
def rmsprop_update(
    weight: Any, grad: Any, n: Any, lr: float, gamma1: float = 0.95, epsilon: float = 1e-8,
    wd: float = 0.0, rescale_grad: float = 1.0, clip_gradient: float = -1.0,
    clip_weights: float = -1.0,
) -> Any:  # fmt: skip
    """A step of RMSProp (Tieleman and Hinton, 2012)."""
    grad = clipped(rescale_grad * grad + wd * weight, clip_gradient)
    overwritten(n, gamma1 * n + (1 - gamma1) * grad * grad)
    return clipped(weight - lr * grad / np.sqrt(n + epsilon), clip_weights)


@legacy("signsgd_update", inputs=2)
def signsgd_update(
    weight: Any, grad: Any, lr: float, wd: float = 0.0, rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Any:  # fmt: skip
    """`sgd_update` with the signs of the gradient only."""
    return (1 - lr * wd) * weight - lr * np.sign(grad)


@legacy("signum_update", inputs=3)
def signum_update(
    weight: Any, grad: Any, mom: Any, lr: float, momentum: float = 0.0, wd: float = 0.0,
    rescale_grad: float = 1.0, clip_gradient: float = -1.0, wd_lh: float = 0.0,
) -> Any:  # fmt: skip
    """`signsgd_update` with the signs of the momentum, which is kept in `mom`."""
    grad = clipped(rescale_grad * grad, clip_gradient) + wd * weight
    overwritten(mom, momentum * mom - (1 - momentum) * grad)
    return (1 - lr * wd_lh) * weight + lr * np.sign(mom)
