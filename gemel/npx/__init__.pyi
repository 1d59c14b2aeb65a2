"""`npx`: what neural networks need beyond NumPy, and the engine's switches.

Written by `make stubs`: change what is declared instead.
"""

import builtins
from collections.abc import Callable
from typing import Any

from gemel.device import cpu as cpu
from gemel.device import current_device as current_device
from gemel.device import gpu as gpu
from gemel.device import num_gpus as num_gpus
from gemel.device import try_all_gpus as try_all_gpus
from gemel.device import try_gpu as try_gpu
from gemel.ndarray import ndarray
from gemel.npx.engine import priority as priority

def activation(data: Any, act_type: str = "relu") -> ndarray:
    """An activation by its name. Raises `UnknownNameError`, suggesting the nearest."""

def batch_norm(
    x: Any,
    gamma: Any,
    beta: Any,
    running_mean: Any,
    running_var: Any,
    eps: float = 0.001,
    momentum: float = 0.9,
    fix_gamma: builtins.bool = False,
    use_global_stats: builtins.bool = False,
    axis: int = 1,
) -> ndarray:
    """x normalised over all axes but one, times gamma plus beta (Ioffe and Szegedy 2015)."""

def callback(function: Any, *arrays: Any, outputs: Any, name: str | None = None) -> Any:
    """Issue a Python function of NumPy arrays as an operation of the engine."""

def cond(
    predicate: Any, then_func: Callable[..., Any], else_func: Callable[..., Any], inputs: Any = ()
) -> Any:
    """then_func(*inputs) if the condition holds, else else_func(*inputs)."""

def convolution(
    data: Any,
    weight: Any,
    bias: Any = None,
    kernel: Any = None,
    stride: Any = None,
    dilate: Any = None,
    pad: Any = None,
    num_filter: int | None = None,
    num_group: int = 1,
    workspace: int = 1024,
    no_bias: builtins.bool = False,
    cudnn_tune: Any = None,
    cudnn_off: builtins.bool = False,
    layout: str | None = None,
) -> ndarray:
    """Convolution over one to three axes: data (N, C, *space), weight (filters, C / groups,
    *kernel), result (N, filters, *places), where there are
    (size + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1 places along an axis."""

def deconvolution(
    data: Any,
    weight: Any,
    bias: Any = None,
    kernel: Any = None,
    stride: Any = None,
    dilate: Any = None,
    pad: Any = None,
    adj: Any = None,
    target_shape: Any = None,
    num_filter: int | None = None,
    num_group: int = 1,
    workspace: int = 512,
    no_bias: builtins.bool = True,
    cudnn_tune: Any = None,
    cudnn_off: builtins.bool = False,
    layout: str | None = None,
) -> ndarray:
    """The transpose of `convolution`: data (N, C, *places), weight (C, filters / groups, *kernel),
    result (N, filters, *space), with
    (places - 1) * stride - 2 * pad + dilate * (kernel - 1) + 1 + adj elements along an axis."""

def dropout(data: Any, p: float = 0.5, mode: str = "training", axes: Any = ()) -> ndarray:
    """While training, elements set to 0 with probability p and the others scaled by 1 / (1 - p)."""

def erf(x: Any, /) -> ndarray:
    """Gauss's error function."""

def fully_connected(
    x: Any,
    weight: Any,
    bias: Any = None,
    num_hidden: int | None = None,
    no_bias: builtins.bool = False,
    flatten: builtins.bool = True,
) -> ndarray:
    """x @ weight.T + bias, weight (units, inputs); `flatten` joins all axes of x but the first."""

def gelu(x: Any, /) -> ndarray:
    """x times the normal distribution function of x (Hendrycks and Gimpel, 2016)."""

def leaky_relu(data: Any, act_type: str = "leaky", slope: float = 0.25) -> ndarray:
    """data where positive, slope * data elsewhere."""

def load(file: Any, device: Any = None) -> dict[str, ndarray] | list[ndarray]:
    """The arrays in `file`: a dictionary if they are named, else a list."""

def log_softmax(data: Any, axis: int = -1, temperature: float | None = None) -> ndarray:
    """The logarithm of `softmax`, accurate where softmax is nearly 0 or 1."""

def logsumexp(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """log(sum(exp(x))) over the given axes, or all, without overflow."""

def one_hot(
    x: Any, /, depth: int, on_value: float = 1.0, off_value: float = 0.0, dtype: Any = "float32"
) -> ndarray:
    """A new last axis of `depth` lanes: `on_value` in the lane x names, `off_value` elsewhere."""

def pick(
    data: Any, index: Any, axis: int = -1, mode: str = "clip", keepdims: builtins.bool = False
) -> ndarray:
    """From each row along an axis, the element at that row's index; out of range is clipped."""

def pooling(
    data: Any,
    kernel: Any = None,
    pool_type: str = "max",
    global_pool: builtins.bool = False,
    cudnn_off: builtins.bool = False,
    pooling_convention: str = "valid",
    stride: Any = None,
    pad: Any = None,
    p_value: int = 2,
    count_include_pad: builtins.bool = True,
    layout: str | None = None,
) -> ndarray:
    """One number for each window of data (N, C, *space): the largest, the average, the sum or the
    p-norm of its elements."""

def relu(x: Any, /) -> ndarray:
    """max(x, 0); NaN stays NaN."""

def reset_np() -> None:
    """Back to NumPy's own: Python integers become int64 arrays."""

def save(file: Any, arr: dict[str, ndarray] | list[ndarray] | ndarray) -> None:
    """Write arrays (named, a list, or a single one) to `file`."""

def set_np(
    shape: builtins.bool = True, array: builtins.bool = True, dtype: builtins.bool = False
) -> None:
    """MXNet's NumPy mode: Python integers become float32 arrays, unless `dtype` is set."""

def sigmoid(x: Any, /) -> ndarray:
    """1 / (1 + exp(-x)), without overflow on either side."""

def softmax(data: Any, axis: int = -1, temperature: float | None = None) -> ndarray:
    """exp(x / temperature) along an axis, divided by its sum."""

def softplus(x: Any, /) -> ndarray:
    """log(1 + exp(x)), without overflow."""

def softsign(x: Any, /) -> ndarray:
    """x / (1 + abs(x))."""

def stop_gradient(x: Any, /) -> ndarray:
    """The same elements; gradients do not pass."""

def synchronize(device: Any = None) -> None:
    """Wait until everything issued to a device has been computed, copies to it included."""

def waitall() -> None:
    """Wait until everything issued has been computed; raises the first error nobody has seen."""

__all__ = [
    "activation",
    "batch_norm",
    "callback",
    "cond",
    "convolution",
    "cpu",
    "current_device",
    "deconvolution",
    "dropout",
    "erf",
    "fully_connected",
    "gelu",
    "gpu",
    "leaky_relu",
    "load",
    "log_softmax",
    "logsumexp",
    "num_gpus",
    "one_hot",
    "pick",
    "pooling",
    "priority",
    "relu",
    "reset_np",
    "save",
    "set_np",
    "sigmoid",
    "softmax",
    "softplus",
    "softsign",
    "stop_gradient",
    "synchronize",
    "try_all_gpus",
    "try_gpu",
    "waitall",
]
