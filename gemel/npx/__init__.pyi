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

def arange_like(
    data: Any, start: float = 0.0, step: float = 1.0, repeat: int = 1, axis: int | None = None
) -> ndarray:
    """start, start + step, ..., each `repeat` times: in the shape of data, or along one axis of it."""

def attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    scale: float | None = None,
    causal: builtins.bool = False,
) -> ndarray:
    """softmax(query @ key.T * scale) @ value: (..., n, d), (..., m, d), (..., m, v) to (..., n, v)."""

def batch_dot(
    a: Any, b: Any, transpose_a: builtins.bool = False, transpose_b: builtins.bool = False
) -> ndarray:
    """The matrix products of two batches: (N, n, k) and (N, k, m) give (N, n, m)."""

def batch_flatten(data: Any) -> ndarray:
    """(batch, ...) to (batch, all elements of an example)."""

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

def elu(data: Any, alpha: float = 1.0) -> ndarray:
    """data where positive, alpha * (exp(data) - 1) elsewhere (Clevert et al., ICLR 2016)."""

def embedding(
    data: Any,
    weight: Any,
    input_dim: int | None = None,
    output_dim: int | None = None,
    dtype: Any = None,
    sparse_grad: builtins.bool = False,
) -> ndarray:
    """The rows of weight (input_dim, output_dim) that data names: (...) to (..., output_dim)."""

def erf(x: Any, /) -> ndarray:
    """Gauss's error function."""

def foreach(body: Callable[..., Any], data: Any, init_states: Any) -> Any:
    """body(element, states) -> (output, states), for each element of the first axis of data."""

def from_dlpack(x: Any, /, *, device: Any = None, copy: builtins.bool | None = None) -> Any:
    """Another library's array as one of gemel's, over the same memory: writes of one are the
    other's, too. Operations on it finish before their call returns."""

def from_numpy(ndarray: Any, zero_copy: builtins.bool = True) -> Any:
    """A NumPy array's memory as an array; with ``zero_copy=False``, a copy of it."""

def fully_connected(
    x: Any,
    weight: Any,
    bias: Any = None,
    num_hidden: int | None = None,
    no_bias: builtins.bool = False,
    flatten: builtins.bool = True,
) -> ndarray:
    """x @ weight.T + bias, weight (units, inputs); `flatten` joins all axes of x but the first."""

def gather_nd(data: Any, indices: Any) -> ndarray:
    """data[indices[0], indices[1], ...]: indices (m, ...) say where along each of the first m axes."""

def gelu(x: Any, /) -> ndarray:
    """x times the normal distribution function of x (Hendrycks and Gimpel, 2016)."""

def group_norm(
    x: Any, gamma: Any, beta: Any, /, num_groups: int = 1, eps: float = 0.001
) -> ndarray:
    """x (N, C, ...) normalised over groups of its channels, times gamma plus beta, which have one
    element for each channel, or for each group."""

def index_add(data: Any, indices: Any, val: Any) -> ndarray:
    """data with val added at `indices` (m, n), as `gather_nd` has them; what meets is added up."""

def index_update(data: Any, indices: Any, val: Any) -> ndarray:
    """data with val at `indices` (m, n), as `gather_nd` has them; of what meets the last stays."""

def instance_norm(x: Any, gamma: Any, beta: Any, /, eps: float = 0.001) -> ndarray:
    """Each channel of each example of x (N, C, ...) normalised, times gamma plus beta."""

def l2_normalization(data: Any, eps: float = 1e-10, mode: str = "instance") -> ndarray:
    """data / sqrt(sum(data ** 2) + eps): the sum is over an example ("instance"), its channels
    ("channel", axis 1), or each channel's space ("spatial")."""

def layer_norm(
    data: Any,
    gamma: Any,
    beta: Any,
    axis: int = -1,
    eps: float = 1e-05,
    output_mean_var: builtins.bool = False,
) -> Any:
    """x normalised along one axis, times gamma plus beta."""

def leaky_relu(
    data: Any, gamma: Any = None, act_type: str = "leaky", slope: float = 0.25
) -> ndarray:
    """data where positive; elsewhere, by act_type: "leaky": slope * data, "prelu": gamma * data
    (a gamma for each channel, or one), "elu": slope * (exp(data) - 1). "selu" and "gelu" are those."""

def load(file: Any, device: Any = None) -> dict[str, ndarray] | list[ndarray]:
    """The arrays in `file`: a dictionary if they are named, else a list."""

def log_softmax(data: Any, axis: int = -1, temperature: float | None = None) -> ndarray:
    """The logarithm of `softmax`, accurate where softmax is nearly 0 or 1."""

def logsumexp(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """log(sum(exp(x))) over the given axes, or all, without overflow."""

def masked_log_softmax(
    data: Any, mask: Any, axis: int = -1, temperature: float | None = None
) -> ndarray:
    """log_softmax(data / temperature) of the elements whose mask is true; the others are -inf."""

def masked_softmax(
    data: Any,
    mask: Any,
    axis: int = -1,
    temperature: float | None = None,
    normalize: builtins.bool = True,
) -> ndarray:
    """softmax(data / temperature) of the elements whose mask is true; the others are 0."""

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
    count_include_pad: builtins.bool | None = True,
    layout: str | None = None,
) -> ndarray:
    """One number for each window of data (N, C, *space): the largest, the average, the sum or the
    p-norm of its elements."""

def relu(x: Any, /) -> ndarray:
    """max(x, 0); NaN stays NaN."""

def reset_np() -> None:
    """Back to NumPy's own: Python integers become int64 arrays."""

def reshape_like(
    lhs: Any,
    rhs: Any,
    lhs_begin: int | None = None,
    lhs_end: int | None = None,
    rhs_begin: int | None = None,
    rhs_end: int | None = None,
) -> ndarray:
    """lhs in the shape of rhs; or some axes of lhs (from begin to before end) in those of rhs."""

def save(file: Any, arr: dict[str, ndarray] | list[ndarray] | ndarray) -> None:
    """Write arrays (named, a list, or a single one) to `file`."""

def selu(data: Any) -> ndarray:
    """`elu` scaled so that mean 0 and variance 1 stay (Klambauer et al., NeurIPS 2017)."""

def sequence_last(
    data: Any,
    sequence_length: Any = None,
    use_sequence_length: builtins.bool = False,
    axis: int = 0,
) -> ndarray:
    """The last element of each sequence; `axis` (0 or 1) is time, the other batch."""

def sequence_mask(
    data: Any,
    sequence_length: Any = None,
    use_sequence_length: builtins.bool = False,
    value: float = 0.0,
    axis: int = 0,
) -> ndarray:
    """data with `value` behind the end of each sequence; `axis` (0 or 1) is time, the other batch."""

def sequence_reverse(
    data: Any,
    sequence_length: Any = None,
    use_sequence_length: builtins.bool = False,
    axis: int = 0,
) -> ndarray:
    """Each sequence backwards, what is behind its end left where it is; `axis` 0 or 1 is time."""

def set_np(
    shape: builtins.bool = True, array: builtins.bool = True, dtype: builtins.bool = False
) -> None:
    """MXNet's NumPy mode: Python integers become float32 arrays, unless `dtype` is set."""

def sigmoid(x: Any, /) -> ndarray:
    """1 / (1 + exp(-x)), without overflow on either side."""

def silu(data: Any, beta: float = 1.0) -> ndarray:
    """data * sigmoid(beta * data), also called swish (Ramachandran et al., 2017)."""

def smooth_l1(data: Any, scalar: float = 1.0) -> ndarray:
    """abs(data) - 0.5 / scalar**2, but 0.5 * (scalar * data)**2 where abs(data) < 1 / scalar**2."""

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

def to_dlpack_for_read(data: ndarray) -> Any:
    """A DLPack capsule over the elements, for whoever takes it first. Waits until nothing is
    pending on them."""

def to_dlpack_for_write(data: ndarray) -> Any:
    """A DLPack capsule over the elements, for whoever takes it first. Waits until nothing is
    pending on them."""

def topk(
    data: Any,
    k: int = 1,
    axis: int | None = -1,
    ret_typ: str = "indices",
    is_ascend: builtins.bool = False,
    dtype: Any = "int64",
) -> Any:
    """The k largest elements of each row along an axis (smallest with `is_ascend`), in order."""

def waitall() -> None:
    """Wait until everything issued has been computed; raises the first error nobody has seen."""

def while_loop(
    cond: Callable[..., Any], func: Callable[..., Any], loop_vars: Any, max_iterations: int
) -> Any:
    """func(*variables) -> (output, variables) while cond(*variables) holds, at most so often."""

__all__ = [
    "activation",
    "arange_like",
    "attention",
    "batch_dot",
    "batch_flatten",
    "batch_norm",
    "callback",
    "cond",
    "convolution",
    "cpu",
    "current_device",
    "deconvolution",
    "dropout",
    "elu",
    "embedding",
    "erf",
    "foreach",
    "from_dlpack",
    "from_numpy",
    "fully_connected",
    "gather_nd",
    "gelu",
    "gpu",
    "group_norm",
    "index_add",
    "index_update",
    "instance_norm",
    "l2_normalization",
    "layer_norm",
    "leaky_relu",
    "load",
    "log_softmax",
    "logsumexp",
    "masked_log_softmax",
    "masked_softmax",
    "num_gpus",
    "one_hot",
    "pick",
    "pooling",
    "priority",
    "relu",
    "reset_np",
    "reshape_like",
    "save",
    "selu",
    "sequence_last",
    "sequence_mask",
    "sequence_reverse",
    "set_np",
    "sigmoid",
    "silu",
    "smooth_l1",
    "softmax",
    "softplus",
    "softsign",
    "stop_gradient",
    "synchronize",
    "to_dlpack_for_read",
    "to_dlpack_for_write",
    "topk",
    "try_all_gpus",
    "try_gpu",
    "waitall",
    "while_loop",
]
