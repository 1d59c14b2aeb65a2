"""`npx`: operations of neural networks beyond NumPy, and the engine's switches.

Written by `make stubs`: change what is declared instead.
"""

import builtins
from collections.abc import Callable
from typing import Any

from gemel.device import cpu as cpu
from gemel.device import cpu_pinned as cpu_pinned
from gemel.device import current_context as current_context
from gemel.device import current_device as current_device
from gemel.device import gpu as gpu
from gemel.device import gpu_memory_info as gpu_memory_info
from gemel.device import num_gpus as num_gpus
from gemel.device import try_all_gpus as try_all_gpus
from gemel.device import try_gpu as try_gpu
from gemel.ndarray import ndarray
from gemel.npx import image as image
from gemel.npx import random as random
from gemel.npx.engine import priority as priority

def activation(data: Any, act_type: str = "relu", *, out: Any = None) -> ndarray:
    """An activation by its name. Raises `UnknownNameError`, suggesting the nearest."""

def adaptive_pooling(
    data: Any,
    output_size: Any,
    pool_type: str = "avg",
    layout: str | None = None,
    *,
    out: Any = None,
) -> ndarray:
    """The average or the largest element ("max") of each part of data (N, C, *space)."""

def arange_like(
    data: Any,
    start: float = 0.0,
    step: float = 1.0,
    repeat: int = 1,
    axis: int | None = None,
    *,
    out: Any = None,
) -> ndarray:
    """start, start + step, ..., each `repeat` times: in the shape of data, or along one axis of it."""

def attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    scale: float | None = None,
    causal: builtins.bool = False,
    bias: Any = None,
    *,
    out: Any = None,
) -> ndarray:
    """softmax(query @ key.T * scale + bias) @ value."""

def batch_dot(
    a: Any,
    b: Any,
    transpose_a: builtins.bool = False,
    transpose_b: builtins.bool = False,
    *,
    out: Any = None,
) -> ndarray:
    """The matrix products of two batches: (N, n, k) and (N, k, m) give (N, n, m)."""

def batch_flatten(data: Any, *, out: Any = None) -> ndarray:
    """(batch, ...) to (batch, all elements of an example)."""

def batch_norm(
    x: Any,
    gamma: Any,
    beta: Any,
    running_mean: Any,
    running_var: Any,
    eps: float = 0.001,
    momentum: float = 0.9,
    fix_gamma: builtins.bool = True,
    use_global_stats: builtins.bool = False,
    output_mean_var: builtins.bool = False,
    axis: int = 1,
    cudnn_off: builtins.bool = False,
    *,
    out: Any = None,
) -> ndarray | tuple[Any, ...]:
    """x normalized over all axes but one, times gamma plus beta (Ioffe and Szegedy 2015)."""

def batch_take(a: Any, indices: Any, *, out: Any = None) -> ndarray:
    """From each row of a (n, m), the element at that row's index, which must be in range."""

def bilinear_resize_2d(
    data: Any,
    height: int | None = None,
    width: int | None = None,
    scale_height: float | None = None,
    scale_width: float | None = None,
    align_corners: builtins.bool = True,
    *,
    out: Any = None,
) -> ndarray:
    """Images (N, C, height, width) of another size, or scaled, by linear mixing."""

def bipartite_matching(
    data: Any,
    threshold: float,
    is_ascend: builtins.bool = False,
    topk: int = -1,
    *,
    out: Any = None,
) -> ndarray | tuple[Any, ...]:
    """Rows and columns of matrices (..., N, M) in pairs, each in one at most: the pair with the
    highest score first (the lowest with `is_ascend`), then the next that is free."""

def box_decode(
    data: Any,
    anchors: Any,
    std0: float = 1.0,
    std1: float = 1.0,
    std2: float = 1.0,
    std3: float = 1.0,
    clip: float = -1.0,
    format: str = "center",
    *,
    out: Any = None,
) -> ndarray:
    """The boxes (B, N, 4), as corners, from offsets (B, N, 4) relative to anchors (1, N, 4)."""

def box_encode(
    samples: Any,
    matches: Any,
    anchors: Any,
    refs: Any,
    means: Any = (0.0, 0.0, 0.0, 0.0),
    stds: Any = (0.1, 0.1, 0.2, 0.2),
    *,
    out: Any = None,
) -> ndarray | tuple[Any, ...]:
    """The targets with which a network turns anchors (B, N, 4) into the boxes refs (B, M, 4)."""

def box_iou(lhs: Any, rhs: Any, format: str = "corner", *, out: Any = None) -> ndarray:
    """Intersection over union of boxes, 0 to 1."""

def box_nms(
    data: Any,
    overlap_thresh: float = 0.5,
    valid_thresh: float = 0.0,
    topk: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = -1,
    background_id: int = -1,
    force_suppress: builtins.bool = False,
    in_format: str = "corner",
    out_format: str = "corner",
    *,
    out: Any = None,
) -> ndarray:
    """Non-maximum suppression: of boxes (..., N, numbers) that overlap more than `overlap_thresh`,
    the one with the best score is left."""

def broadcast_like(
    lhs: Any, rhs: Any, lhs_axes: Any = None, rhs_axes: Any = None, *, out: Any = None
) -> ndarray:
    """lhs broadcast to the shape of rhs; or some axes of lhs to the extents of some of rhs."""

def callback(function: Any, *arrays: Any, outputs: Any, name: str | None = None) -> Any:
    """Issue a Python function of NumPy arrays as an operation of the engine."""

def categorical(
    prob: Any = None, logit: Any = None, size: Any = None, dtype: Any = None, *, out: Any = None
) -> ndarray:
    """Positions along the last axis, drawn with these probabilities or their logarithms."""

def cond(
    predicate: Any, then_func: Callable[..., Any], else_func: Callable[..., Any], inputs: Any = ()
) -> Any:
    """then_func(*inputs) if the condition holds, else else_func(*inputs)."""

def constraint_check(data: Any, msg: str = "Constraint violated.", *, out: Any = None) -> ndarray:
    """True if all elements of a bool array are true; else a `ValueError` with this message, raised
    when the result is waited for."""

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
    *,
    out: Any = None,
) -> ndarray:
    """Convolution over one to three axes: data (N, C, *space), weight (filters, C / groups,
    *kernel), result (N, filters, *places), where there are
    (size + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1 places along an axis."""

def ctc_loss(
    data: Any,
    label: Any,
    data_lengths: Any = None,
    label_lengths: Any = None,
    use_data_lengths: builtins.bool = False,
    use_label_lengths: builtins.bool = False,
    blank_label: str = "first",
    *,
    out: Any = None,
) -> ndarray:
    """The CTC loss: -log of the probability of labels (batch, labels) given data (time, batch,
    classes) before softmax; one number per example, inf if a label is too long."""

def cummax(x: Any, axis: int = -1, *, out: Any = None) -> ndarray:
    """The largest of the elements up to each one along an axis; NaN from the first NaN on."""

def cummin(x: Any, axis: int = -1, *, out: Any = None) -> ndarray:
    """The smallest of the elements up to each one along an axis; NaN from the first NaN on."""

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
    *,
    out: Any = None,
) -> ndarray:
    """The transpose of `convolution`: data (N, C, *places), weight (C, filters / groups, *kernel),
    result (N, filters, *space), with
    (places - 1) * stride - 2 * pad + dilate * (kernel - 1) + 1 + adj elements along an axis."""

def deformable_convolution(
    data: Any,
    offset: Any,
    weight: Any,
    bias: Any = None,
    kernel: Any = None,
    stride: Any = None,
    dilate: Any = None,
    pad: Any = None,
    num_filter: int | None = None,
    num_group: int = 1,
    num_deformable_group: int = 1,
    workspace: int = 1024,
    no_bias: builtins.bool = False,
    layout: str | None = None,
    *,
    out: Any = None,
) -> ndarray:
    """Convolution of images (N, C, height, width) that reads shifted pixels, mixed linearly."""

def digamma(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The derivative of `gammaln`; NaN at 0 and the whole numbers below."""

def dropout(
    data: Any,
    p: float = 0.5,
    mode: str = "training",
    axes: Any = (),
    cudnn_off: builtins.bool = False,
    *,
    out: Any = None,
) -> ndarray:
    """While training, elements set to 0 with probability p and the others scaled by 1 / (1 - p)."""

def elu(data: Any, alpha: float = 1.0, *, out: Any = None) -> ndarray:
    """data where positive, alpha * (exp(data) - 1) elsewhere (Clevert et al., ICLR 2016)."""

def embedding(
    data: Any,
    weight: Any,
    input_dim: int | None = None,
    output_dim: int | None = None,
    dtype: Any = None,
    sparse_grad: builtins.bool = False,
    *,
    out: Any = None,
) -> ndarray:
    """Look up rows of weight (input_dim, output_dim) by the indices in data: (...) to (...,
    output_dim)."""

def erf(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Gauss's error function."""

def erfinv(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The inverse of `erf`: inf at 1, -inf at -1, NaN beyond."""

def foreach(body: Callable[..., Any], data: Any, init_states: Any) -> Any:
    """Run body(element, states) -> (output, states) for each element of the first axis of data."""

def from_dlpack(x: Any, /, *, device: Any = None, copy: builtins.bool | None = None) -> Any:
    """A gemel array that shares the memory of another library's array: writes to either are visible
    in both. Operations on it finish before their call returns."""

def from_numpy(ndarray: Any, zero_copy: builtins.bool = True) -> Any:
    """An array that shares a NumPy array's memory; with ``zero_copy=False``, a copy of it."""

def fully_connected(
    x: Any,
    weight: Any,
    bias: Any = None,
    num_hidden: int | None = None,
    no_bias: builtins.bool = False,
    flatten: builtins.bool = True,
    *,
    out: Any = None,
) -> ndarray:
    """x @ weight.T + bias, weight (units, inputs); `flatten` joins all axes of x but the first."""

def gamma(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The gamma function: (x - 1)! for whole numbers; NaN at 0 and those below."""

def gammaln(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The logarithm of abs(gamma(x)); inf at 0 and the whole numbers below."""

def gather_nd(data: Any, indices: Any, *, out: Any = None) -> ndarray:
    """data[indices[0], indices[1], ...]: indices (m, ...) say where along each of the first m axes."""

def gelu(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """x times the normal distribution function of x (Hendrycks and Gimpel, 2016)."""

def group_norm(
    data: Any,
    gamma: Any,
    beta: Any,
    num_groups: int = 1,
    eps: float = 0.001,
    output_mean_var: builtins.bool = False,
    *,
    out: Any = None,
) -> ndarray | tuple[Any, ...]:
    """x (N, C, ...) normalized over groups of its channels, times gamma plus beta, which have one
    element for each channel, or for each group."""

def hard_sigmoid(data: Any, alpha: float = 0.2, beta: float = 0.5, *, out: Any = None) -> ndarray:
    """alpha * data + beta, limited to [0, 1]."""

def index_add(data: Any, indices: Any, val: Any, *, out: Any = None) -> ndarray:
    """Add val to data at `indices` (m, n), as in `gather_nd`; values at equal positions are summed."""

def index_copy(old_tensor: Any, index_vector: Any, new_tensor: Any, *, out: Any = None) -> ndarray:
    """Replace the rows of old_tensor at index_vector by those of new_tensor."""

def index_update(data: Any, indices: Any, val: Any, *, out: Any = None) -> ndarray:
    """Set data to val at `indices` (m, n), as in `gather_nd`; at equal positions the last value
    wins."""

def instance_norm(
    x: Any, gamma: Any, beta: Any, /, eps: float = 0.001, *, out: Any = None
) -> ndarray:
    """Each channel of each example of x (N, C, ...) normalized, times gamma plus beta."""

def interleaved_matmul_encdec_qk(
    queries: Any, keys_values: Any, heads: int, *, out: Any = None
) -> ndarray:
    """The scores of attention to another sequence, (batch * heads, time, time of keys)."""

def interleaved_matmul_encdec_valatt(
    keys_values: Any, attention: Any, heads: int, *, out: Any = None
) -> ndarray:
    """attention (batch * heads, time, time of keys) @ values: (time, batch, heads * size)."""

def interleaved_matmul_selfatt_qk(
    queries_keys_values: Any, heads: int, *, out: Any = None
) -> ndarray:
    """The scores of self-attention, (batch * heads, time, time): query @ key.T / sqrt(size)."""

def interleaved_matmul_selfatt_valatt(
    queries_keys_values: Any, attention: Any, heads: int, *, out: Any = None
) -> ndarray:
    """attention (batch * heads, time, time) @ values: (time, batch, heads * size)."""

def is_np_array() -> builtins.bool:
    """Whether arrays count as NumPy's in MXNet's sense: True, except after `npx.reset_np()`."""

def is_np_default_dtype() -> builtins.bool:
    """Whether the default floating dtype is float64, as after ``npx.set_np(dtype=True)``."""

def is_np_shape() -> builtins.bool:
    """Whether shapes count as NumPy's in MXNet's sense: True, except after `npx.reset_np()`."""

def l2_normalization(
    data: Any, eps: float = 1e-10, mode: str = "instance", *, out: Any = None
) -> ndarray:
    """data / sqrt(sum(data ** 2) + eps): the sum is over an example ("instance"), its channels
    ("channel", axis 1), or each channel's space ("spatial")."""

def layer_norm(
    data: Any,
    gamma: Any,
    beta: Any,
    axis: int = -1,
    eps: float = 1e-05,
    output_mean_var: builtins.bool = False,
    *,
    out: Any = None,
) -> ndarray | tuple[Any, ...]:
    """Normalize x along one axis, then multiply by gamma and add beta."""

def leaky_relu(
    data: Any,
    gamma: Any = None,
    act_type: str = "leaky",
    slope: float = 0.25,
    lower_bound: float = 0.125,
    upper_bound: float = 0.334,
    *,
    out: Any = None,
) -> ndarray:
    """data where positive; elsewhere, by act_type: "leaky": slope * data, "prelu": gamma * data
    (a gamma for each channel, or one), "elu": slope * (exp(data) - 1), "rrelu": a slope drawn for
    each element from [lower_bound, upper_bound) while training, their mean otherwise. "selu" and
    "gelu" are those."""

def load(file: Any, device: Any = None) -> dict[str, ndarray] | list[ndarray] | ndarray:
    """Read the arrays in `file`: a dictionary if they are named, else a list, or the single saved
    array."""

def log_sigmoid(data: Any, *, out: Any = None) -> ndarray:
    """The logarithm of 1 / (1 + exp(-data)), without overflow."""

def log_softmax(
    data: Any,
    axis: int = -1,
    length: Any = None,
    temperature: float | None = None,
    use_length: builtins.bool = False,
    dtype: Any = None,
    *,
    out: Any = None,
) -> ndarray:
    """The logarithm of `softmax`, accurate where softmax is nearly 0 or 1; -inf behind a length."""

def logcumsumexp(x: Any, axis: int = -1, *, out: Any = None) -> ndarray:
    """log(cumsum(exp(x))) along an axis, without overflow."""

def logsumexp(
    x: Any, /, axis: Any = None, keepdims: builtins.bool = False, *, out: Any = None
) -> ndarray:
    """log(sum(exp(x))) over the given axes, or all, without overflow."""

def masked_log_softmax(
    data: Any, mask: Any, axis: int = -1, temperature: float | None = None, *, out: Any = None
) -> ndarray:
    """log_softmax(data / temperature) of the elements whose mask is true; the others are -inf."""

def masked_softmax(
    data: Any,
    mask: Any,
    axis: int = -1,
    temperature: float | None = None,
    normalize: builtins.bool = True,
    *,
    out: Any = None,
) -> ndarray:
    """softmax(data / temperature) of the elements whose mask is true; the others are 0."""

def mish(data: Any, *, out: Any = None) -> ndarray:
    """data * tanh(log(1 + exp(data))) (Misra, BMVC 2020)."""

def modulated_deformable_convolution(
    data: Any,
    offset: Any,
    mask: Any,
    weight: Any,
    bias: Any = None,
    kernel: Any = None,
    stride: Any = None,
    dilate: Any = None,
    pad: Any = None,
    num_filter: int | None = None,
    num_group: int = 1,
    num_deformable_group: int = 1,
    workspace: int = 1024,
    no_bias: builtins.bool = False,
    im2col_step: int = 64,
    layout: str | None = None,
    *,
    out: Any = None,
) -> ndarray:
    """`deformable_convolution` whose every read pixel is multiplied by a number of `mask`."""

def multibox_detection(
    cls_prob: Any,
    loc_pred: Any,
    anchor: Any,
    clip: builtins.bool = True,
    threshold: float = 0.01,
    background_id: int = 0,
    nms_threshold: float = 0.5,
    force_suppress: builtins.bool = False,
    variances: Any = (0.1, 0.1, 0.2, 0.2),
    nms_topk: int = -1,
    *,
    out: Any = None,
) -> ndarray:
    """What a detector of one shot has found: rows class, score, left, top, right, bottom, the best
    first, (B, N, 6)."""

def multibox_prior(
    data: Any,
    sizes: Any = (1.0,),
    ratios: Any = (1.0,),
    clip: builtins.bool = False,
    steps: Any = (-1.0, -1.0),
    offsets: Any = (0.5, 0.5),
    *,
    out: Any = None,
) -> ndarray:
    """Anchors around each pixel of data (N, C, height, width): (1, height * width * kinds, 4)."""

def multibox_target(
    anchor: Any,
    label: Any,
    cls_pred: Any,
    overlap_threshold: float = 0.5,
    ignore_label: float = -1.0,
    negative_mining_ratio: float = -1.0,
    negative_mining_thresh: float = 0.5,
    minimum_negative_samples: int = 0,
    variances: Any = (0.1, 0.1, 0.2, 0.2),
    *,
    out: Any = None,
) -> ndarray | tuple[Any, ...]:
    """What a detector of one shot is trained towards: offsets (B, N * 4), a mask of the same shape
    of those that count, and classes (B, N), 0 for background."""

def nonzero(a: Any, *, out: Any = None) -> ndarray:
    """The positions of the nonzero elements, one row each. Waits for the array."""

def norm(
    data: Any,
    ord: int = 2,
    axis: Any = None,
    out_dtype: Any = None,
    keepdims: builtins.bool = False,
    *,
    out: Any = None,
) -> ndarray:
    """The sum of absolute values (`ord` 1), or the square root of that of squares (2), along axes."""

def one_hot(
    x: Any,
    /,
    depth: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    dtype: Any = "float32",
    *,
    out: Any = None,
) -> ndarray:
    """Add a last axis of length `depth`: `on_value` at the index in x, `off_value` elsewhere."""

def pick(
    data: Any,
    index: Any,
    axis: int = -1,
    mode: str = "clip",
    keepdims: builtins.bool = False,
    *,
    out: Any = None,
) -> ndarray:
    """From each row along an axis, the element at that row's index."""

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
    *,
    out: Any = None,
) -> ndarray:
    """One number for each window of data (N, C, *space): the largest, the average, the sum or the
    p-norm of its elements. The gradient of the largest goes to the first of equal elements; where
    the largest is NaN, it is NaN for all elements of the window."""

def relu(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """max(x, 0); NaN stays NaN."""

def reset_np() -> None:
    """Return to gemel's defaults: Python integers become int64 arrays, floats float32."""

def reshape(
    a: Any, newshape: Any, reverse: builtins.bool = False, order: str = "C", *, out: Any = None
) -> ndarray:
    """The same elements in another shape, of which some extents are codes."""

def reshape_like(
    lhs: Any,
    rhs: Any,
    lhs_begin: int | None = None,
    lhs_end: int | None = None,
    rhs_begin: int | None = None,
    rhs_end: int | None = None,
    *,
    out: Any = None,
) -> ndarray:
    """lhs in the shape of rhs; or some axes of lhs (from begin to before end) in those of rhs."""

def rnn(
    data: Any,
    parameters: Any,
    state: Any,
    state_cell: Any = None,
    sequence_length: Any = None,
    mode: str = "lstm",
    state_size: int | None = None,
    num_layers: int = 1,
    bidirectional: builtins.bool = False,
    state_outputs: builtins.bool = False,
    p: float = 0.0,
    use_sequence_length: builtins.bool = False,
    projection_size: int | None = None,
    lstm_state_clip_min: float | None = None,
    lstm_state_clip_max: float | None = None,
    lstm_state_clip_nan: builtins.bool = False,
    *,
    out: Any = None,
) -> ndarray | tuple[Any, ...]:
    """Layers of a recurrent network ("rnn_relu", "rnn_tanh", "lstm", "gru") over data (time, batch,
    inputs): (time, batch, directions * state_size)."""

def roi_align(
    data: Any,
    rois: Any,
    pooled_size: Any,
    spatial_scale: float,
    sample_ratio: int = -1,
    position_sensitive: builtins.bool = False,
    aligned: builtins.bool = False,
    *,
    out: Any = None,
) -> ndarray:
    """The means of pooled_size (rows, columns) bins of regions of data (N, C, height, width),
    sampled between pixels: (regions, C, *pooled_size)."""

def roi_pooling(
    data: Any, rois: Any, pooled_size: Any, spatial_scale: float, *, out: Any = None
) -> ndarray:
    """The largest elements of pooled_size (rows, columns) bins of regions of data (N, C, height,
    width): (regions, C, *pooled_size)."""

def save(file: Any, arr: dict[str, ndarray] | list[ndarray] | ndarray) -> None:
    """Write arrays (named, a list, or a single one) to `file`, in MXNet's format: the one for NumPy
    mode after `set_np`, otherwise the legacy one. If `file` ends in ``.safetensors``, named arrays
    are written in that format, which Hugging Face's tools read."""

def savez(file: Any, *args: Any, **kwargs: Any) -> None:
    """Write arrays to `file` as a NumPy archive (.npz), as MXNet 2 does."""

def scatter_nd(data: Any, indices: Any, shape: Any, *, out: Any = None) -> ndarray:
    """Zeros with data added at `indices` (m, ...), as in `gather_nd`; values at equal positions are
    summed."""

def selu(data: Any, *, out: Any = None) -> ndarray:
    """`elu` scaled so that mean 0 and variance 1 stay (Klambauer et al., NeurIPS 2017)."""

def sequence_last(
    data: Any,
    sequence_length: Any = None,
    use_sequence_length: builtins.bool = False,
    axis: int = 0,
    *,
    out: Any = None,
) -> ndarray:
    """The last element of each sequence; `axis` (0 or 1) is time, the other batch."""

def sequence_mask(
    data: Any,
    sequence_length: Any = None,
    use_sequence_length: builtins.bool = False,
    value: float = 0.0,
    axis: int = 0,
    *,
    out: Any = None,
) -> ndarray:
    """data with `value` behind the end of each sequence; `axis` (0 or 1) is time, the other batch."""

def sequence_reverse(
    data: Any,
    sequence_length: Any = None,
    use_sequence_length: builtins.bool = False,
    axis: int = 0,
    *,
    out: Any = None,
) -> ndarray:
    """Reverse each sequence, leaving elements after its end in place; `axis` 0 or 1 is time."""

def set_np(
    shape: builtins.bool = True, array: builtins.bool = True, dtype: builtins.bool = False
) -> None:
    """Switch to MXNet's NumPy mode: Python integers become float32 arrays, and floating arrays can
    be indices."""

def shape_array(data: Any, *, out: Any = None) -> ndarray:
    """The shape of an array, as one of int64."""

def sigmoid(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """1 / (1 + exp(-x)), without overflow on either side."""

def silu(data: Any, beta: float = 1.0, *, out: Any = None) -> ndarray:
    """data * sigmoid(beta * data), also called swish (Ramachandran et al., 2017)."""

def sldwin_atten_context(
    score: Any,
    value: Any,
    dilation: Any,
    w: int,
    symmetric: builtins.bool = True,
    *,
    out: Any = None,
) -> ndarray:
    """The sum of the values (B, L, heads, D) each place sees, weighed by its scores."""

def sldwin_atten_mask_like(
    score: Any,
    dilation: Any,
    valid_length: Any,
    w: int,
    symmetric: builtins.bool = True,
    *,
    out: Any = None,
) -> ndarray:
    """1 where a place and what it sees both lie before `valid_length` (B,), else 0; like score."""

def sldwin_atten_score(
    query: Any, key: Any, dilation: Any, w: int, symmetric: builtins.bool = True, *, out: Any = None
) -> ndarray:
    """How well each query fits the keys near it, (B, L, heads, window)."""

def slice(data: Any, begin: Any, end: Any, step: Any = None, *, out: Any = None) -> ndarray:
    """The elements from `begin` to `end` along the first axes; None is an end of the axis."""

def slice_axis(data: Any, axis: int, begin: int, end: int | None, *, out: Any = None) -> ndarray:
    """data from begin to before end along an axis."""

def slice_like(data: Any, shape_like: Any, axes: Any = (), *, out: Any = None) -> ndarray:
    """The first elements of data along all axes, or some, as many as shape_like has."""

def smooth_l1(data: Any, scalar: float = 1.0, *, out: Any = None) -> ndarray:
    """abs(data) - 0.5 / scalar**2, but 0.5 * (scalar * data)**2 where abs(data) < 1 / scalar**2."""

def softmax(
    data: Any,
    axis: int = -1,
    length: Any = None,
    temperature: float | None = None,
    use_length: builtins.bool = False,
    dtype: Any = None,
    *,
    out: Any = None,
) -> ndarray:
    """exp(data / temperature) along an axis, divided by its sum."""

def softmin(
    data: Any,
    axis: int = -1,
    length: Any = None,
    temperature: float | None = None,
    use_length: builtins.bool = False,
    dtype: Any = None,
    *,
    out: Any = None,
) -> ndarray:
    """`softmax` of -data."""

def softplus(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """log(1 + exp(x)), without overflow."""

def softsign(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """x / (1 + abs(x))."""

def stop_gradient(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The same elements; no gradient flows back."""

def synchronize(device: Any = None) -> None:
    """Wait until everything issued to a device has been computed, including copies to it."""

def to_dlpack_for_read(data: ndarray) -> Any:
    """A DLPack capsule that shares the elements; it can be consumed once. Waits until nothing is
    pending on them."""

def to_dlpack_for_write(data: ndarray) -> Any:
    """A DLPack capsule that shares the elements; it can be consumed once. Waits until nothing is
    pending on them."""

def topk(
    data: Any,
    k: int = 1,
    axis: int | None = -1,
    ret_typ: str = "indices",
    is_ascend: builtins.bool = False,
    dtype: Any = "int64",
    *,
    out: Any = None,
) -> ndarray | tuple[Any, ...]:
    """The k largest elements of each row along an axis (smallest with `is_ascend`), in order."""

def upsampling(data: Any, scale: int, sample_type: str = "nearest", *, out: Any = None) -> ndarray:
    """Images (N, C, height, width) `scale` times as large, each pixel repeated ("nearest") or mixed
    linearly ("bilinear"). Raises `ArgumentError` unless `scale` is a whole number of at least 1."""

def use_np(func: Any) -> Any:
    """Return the function or class unchanged: MXNet's decorator for code that uses NumPy arrays."""

def use_np_array(func: Any) -> Any:
    """Return the function or class unchanged: MXNet's decorator for code that uses NumPy arrays."""

def use_np_shape(func: Any) -> Any:
    """Return the function or class unchanged: MXNet's decorator for code that uses NumPy arrays."""

def waitall() -> None:
    """Wait until everything issued has been computed, and raise the first unseen error."""

def while_loop(
    cond: Callable[..., Any],
    func: Callable[..., Any],
    loop_vars: Any,
    max_iterations: int | None = None,
) -> Any:
    """Run func(*variables) -> (output, variables) while cond(*variables) holds, at most
    `max_iterations` times."""

__all__ = [
    "activation",
    "adaptive_pooling",
    "arange_like",
    "attention",
    "batch_dot",
    "batch_flatten",
    "batch_norm",
    "batch_take",
    "bilinear_resize_2d",
    "bipartite_matching",
    "box_decode",
    "box_encode",
    "box_iou",
    "box_nms",
    "broadcast_like",
    "callback",
    "categorical",
    "cond",
    "constraint_check",
    "convolution",
    "cpu",
    "cpu_pinned",
    "ctc_loss",
    "cummax",
    "cummin",
    "current_context",
    "current_device",
    "deconvolution",
    "deformable_convolution",
    "digamma",
    "dropout",
    "elu",
    "embedding",
    "erf",
    "erfinv",
    "foreach",
    "from_dlpack",
    "from_numpy",
    "fully_connected",
    "gamma",
    "gammaln",
    "gather_nd",
    "gelu",
    "gpu",
    "gpu_memory_info",
    "group_norm",
    "hard_sigmoid",
    "image",
    "index_add",
    "index_copy",
    "index_update",
    "instance_norm",
    "interleaved_matmul_encdec_qk",
    "interleaved_matmul_encdec_valatt",
    "interleaved_matmul_selfatt_qk",
    "interleaved_matmul_selfatt_valatt",
    "is_np_array",
    "is_np_default_dtype",
    "is_np_shape",
    "l2_normalization",
    "layer_norm",
    "leaky_relu",
    "load",
    "log_sigmoid",
    "log_softmax",
    "logcumsumexp",
    "logsumexp",
    "masked_log_softmax",
    "masked_softmax",
    "mish",
    "modulated_deformable_convolution",
    "multibox_detection",
    "multibox_prior",
    "multibox_target",
    "nonzero",
    "norm",
    "num_gpus",
    "one_hot",
    "pick",
    "pooling",
    "priority",
    "random",
    "relu",
    "reset_np",
    "reshape",
    "reshape_like",
    "rnn",
    "roi_align",
    "roi_pooling",
    "save",
    "savez",
    "scatter_nd",
    "selu",
    "sequence_last",
    "sequence_mask",
    "sequence_reverse",
    "set_np",
    "shape_array",
    "sigmoid",
    "silu",
    "sldwin_atten_context",
    "sldwin_atten_mask_like",
    "sldwin_atten_score",
    "slice",
    "slice_axis",
    "slice_like",
    "smooth_l1",
    "softmax",
    "softmin",
    "softplus",
    "softsign",
    "stop_gradient",
    "synchronize",
    "to_dlpack_for_read",
    "to_dlpack_for_write",
    "topk",
    "try_all_gpus",
    "try_gpu",
    "upsampling",
    "use_np",
    "use_np_array",
    "use_np_shape",
    "waitall",
    "while_loop",
]
