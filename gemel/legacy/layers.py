"""The operations that layers consist of: MXNet's operations with parameters, and similar ones."""

from __future__ import annotations

from typing import Any

from gemel import np, npx
from gemel.legacy.declare import IMAGES, Shapes, Written, legacy, same, written
from gemel.ops.layouts import LAYOUTS, is_channels_last
from gemel.spec import product

# --- products -------------------------------------------------------------------------------


@legacy("FullyConnected", "fully_connected", "_npx_fully_connected", inputs=3, optional=1)
def fully_connected(
    data: Any,
    weight: Any,
    bias: Any = None,
    num_hidden: int | None = None,
    no_bias: bool = False,
    flatten: bool = True,
) -> Any:
    """data @ weight.T + bias; `flatten` joins all axes of data but the first."""
    return npx.fully_connected(data, weight, bias, num_hidden, no_bias, flatten)


@fully_connected.infer
def _(shapes: Shapes, num_hidden: int, flatten: bool = True, **_: Any) -> Shapes:
    data = shapes["data"]
    columns = product(data[1:]) if flatten else data[-1]
    return {"weight": (num_hidden, columns), "bias": (num_hidden,)}


@written("fully_connected")
def _(x: Any, weight: Any, bias: Any, no_bias: bool, flatten: bool, **_: Any) -> Written:
    inputs = (x, weight) if bias is None or no_bias else (x, weight, bias)
    settings = {"num_hidden": weight.shape[0], "no_bias": len(inputs) == 2, "flatten": flatten}
    return Written("FullyConnected", inputs, settings)


@legacy("Embedding", "embedding", "_npx_embedding", "_contrib_SparseEmbedding")
def embedding(
    data: Any,
    weight: Any,
    *,
    input_dim: int | None = None,
    output_dim: int | None = None,
    dtype: Any = None,
) -> Any:
    """The rows of weight (input_dim, output_dim) at the positions in data."""
    return npx.embedding(data, weight, input_dim, output_dim)


@embedding.infer
def _(shapes: Shapes, input_dim: int, output_dim: int, **_: Any) -> Shapes:
    return {"weight": (input_dim, output_dim)}


@written("embedding")
def _(data: Any, weight: Any, **_: Any) -> Written:
    rows, columns = weight.shape
    settings = {"input_dim": rows, "output_dim": columns, "dtype": weight.dtype}
    return Written("Embedding", (data, weight), settings)


# --- windows --------------------------------------------------------------------------------

convolution = same(
    npx.convolution, "Convolution", "convolution", "_npx_convolution", inputs=3, optional=1
)
deconvolution = same(
    npx.deconvolution, "Deconvolution", "deconvolution", "_npx_deconvolution", inputs=3, optional=1
)
pooling = same(npx.pooling, "Pooling", "pooling", "_npx_pooling", inputs=1)


def _image_channels(name: str, shapes: Shapes, kernel: Any, layout: str | None) -> tuple[int, bool]:
    """The number of channels of a convolution's image, and whether they come last."""
    last = is_channels_last(name, layout, len(kernel))
    return shapes["data"][-1 if last else 1], last


def _weight(kernel: Any, outer: int, inner: int, last: bool) -> tuple[int, ...]:
    """The shape of a convolution's weight; its inner channels come last if the image's do."""
    return (outer, *kernel, inner) if last else (outer, inner, *kernel)


@convolution.infer
def _(
    shapes: Shapes,
    kernel: Any,
    num_filter: int,
    num_group: int = 1,
    layout: str | None = None,
    **_: Any,
) -> Shapes:
    channels, last = _image_channels("convolution", shapes, kernel, layout)
    weight = _weight(kernel, num_filter, channels // num_group, last)
    return {"weight": weight, "bias": (num_filter,)}


@deconvolution.infer
def _(
    shapes: Shapes,
    kernel: Any,
    num_filter: int,
    num_group: int = 1,
    layout: str | None = None,
    **_: Any,
) -> Shapes:
    channels, last = _image_channels("deconvolution", shapes, kernel, layout)
    weight = _weight(kernel, channels, num_filter // num_group, last)
    return {"weight": weight, "bias": (num_filter,)}


def _each(value: Any, axes: int, default: int) -> tuple[int, ...]:
    if value is None or value == ():
        return (default,) * axes
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes


def _window(given: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """These settings, each as a tuple with one number for each spatial axis."""
    axes = len(given["data"].shape) - 2
    found = {name: _each(given[name], axes, name in ("stride", "dilate")) for name in names}
    return {name: tuple(map(int, value)) for name, value in found.items()}


@written("convolution", "deconvolution")
def _(**given: Any) -> Written:
    grows = "adj" in given
    weight, bias = given["weight"], given["bias"]
    inputs = (
        (given["data"], weight)
        if bias is None or given["no_bias"]
        else (given["data"], weight, bias)
    )
    groups, axes = given["num_group"], len(weight.shape) - 2
    name = "deconvolution" if grows else "convolution"
    last = is_channels_last(name, given["layout"], axes)
    outer, *rest = weight.shape
    inner, kernel = (rest[-1], rest[:-1]) if last else (rest[0], rest[1:])
    settings = {
        "kernel": tuple(map(int, kernel)),
        **_window(given, ("stride", "dilate", "pad", *(["adj"] if grows else []))),
        "num_filter": inner * groups if grows else outer,
        "num_group": groups,
        "no_bias": len(inputs) == 2,
        "layout": given["layout"] or LAYOUTS[axes - 1][0],
    }
    if given.get("target_shape"):
        settings["target_shape"] = _each(given["target_shape"], axes, 0)
    return Written("Deconvolution" if grows else "Convolution", inputs, settings)


@written("pooling")
def _(**given: Any) -> Written:
    data = given["data"]
    names = ("pool_type", "global_pool", "pooling_convention", "count_include_pad", "layout")
    settings = {name: given[name] for name in names if given[name] is not None}
    if given["global_pool"]:
        settings["kernel"] = (1,) * (len(data.shape) - 2)
    else:
        axes = len(data.shape) - 2
        settings["kernel"] = _each(given["kernel"], axes, 1)
        settings.update(_window(given, ("stride", "pad")))
    if given["pool_type"] == "lp":
        settings["p_value"] = given["p_value"]
    return Written("Pooling", (data,), settings)


@legacy("UpSampling", "_contrib_UpSampling", axes={"data": IMAGES})
def upsampling(
    *data: Any,
    scale: int,
    sample_type: str = "nearest",
    num_filter: int = 0,
    multi_input_mode: str = "concat",
) -> Any:
    """Images enlarged `scale` times, and others to the same size; joined or (mode "sum") added.

    "bilinear" uses a deconvolution, whose weight is the second input.
    """
    if sample_type == "bilinear" and len(data) == 2:
        size, pad = 2 * scale - scale % 2, scale // 2
        window: dict[str, Any] = {"kernel": (size,) * 2, "stride": (scale,) * 2, "pad": (pad,) * 2}
        groups = int(data[0].shape[1])
        return npx.deconvolution(*data, **window, num_filter=groups, num_group=groups)
    height = data[0].shape[2] * scale
    parts = [npx.upsampling(each, height // each.shape[2], sample_type) for each in data]
    if len(parts) == 1 or multi_input_mode == "concat":
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    return sum(parts[1:], start=parts[0])


same(npx.roi_pooling, "ROIPooling", "_npx_roi_pooling", inputs=2, outputs=2, visible=1)

# --- normalization --------------------------------------------------------------------------


@legacy(
    "BatchNorm",
    "batch_norm",
    "_npx_batch_norm",
    "_contrib_SyncBatchNorm",
    "BatchNorm_v1",
    auxiliary=("moving_mean", "moving_var"),
    outputs=3,
    visible=1,
    inputs=5,
)
def batch_norm(
    data: Any,
    gamma: Any,
    beta: Any,
    moving_mean: Any,
    moving_var: Any,
    eps: float = 1e-3,
    momentum: float = 0.9,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    axis: int = 1,
    ndev: int = 1,
    key: str = "",
) -> Any:
    """data normalized over all axes but one, times gamma plus beta."""
    vectors = gamma, beta, moving_mean, moving_var
    return npx.batch_norm(
        data, *vectors, eps, momentum, fix_gamma, use_global_stats, output_mean_var, axis
    )


def _channels(shapes: Shapes, axis: int = 1, **_: Any) -> Shapes:
    found = (shapes["data"][axis],)
    return dict.fromkeys(("gamma", "beta", "moving_mean", "moving_var"), found)


batch_norm.infer(_channels)


@written("batch_norm")
def _(**given: Any) -> Written:
    names = ("x", "gamma", "beta", "running_mean", "running_var")
    rest = ("eps", "momentum", "fix_gamma", "use_global_stats", "axis")
    settings = {name: given[name] for name in rest}
    if given["output_mean_var"]:
        settings["output_mean_var"] = True
    return Written("BatchNorm", tuple(given[name] for name in names), settings, 3)


#: Their nodes also have the means and deviations as outputs.
STATISTICS: Any = {"inputs": 3, "outputs": 3, "visible": 1}
layer_norm = same(npx.layer_norm, "LayerNorm", "layer_norm", "_npx_layer_norm", **STATISTICS)
group_norm = same(npx.group_norm, "_npx_group_norm", "group_norm", inputs=3)
instance_norm = same(
    npx.instance_norm, "InstanceNorm", "instance_norm", "_npx_instance_norm", **STATISTICS
)
for _norm in (group_norm, instance_norm):
    _norm.inputs = ("data", "gamma", "beta")


@legacy("GroupNorm", outputs=3, visible=1)
def group_norm_of_one(
    data: Any,
    gamma: Any,
    beta: Any,
    *,
    num_groups: int = 1,
    eps: float = 1e-5,
    output_mean_var: bool = False,
) -> Any:
    """`npx.group_norm`, with MXNet 1's eps."""
    return npx.group_norm(data, gamma, beta, num_groups, eps, output_mean_var)


same(npx.l2_normalization, "L2Normalization", inputs=1, outputs=2, visible=1)


@layer_norm.infer
def _(shapes: Shapes, axis: int = -1, **_: Any) -> Shapes:
    return _channels(shapes, axis)


@written("group_norm")
def _(data: Any, gamma: Any, beta: Any, num_groups: int, eps: float, **_: Any) -> Written | None:
    if gamma.shape != (num_groups,):  # MXNet 1.9 has one number per group, MXNet 2 per channel
        return None
    return Written("GroupNorm", (data, gamma, beta), {"num_groups": num_groups, "eps": eps})


instance_norm.infer(_channels)


@group_norm.infer
@group_norm_of_one.infer
def _(shapes: Shapes, **_: Any) -> Shapes:
    return _channels(shapes)


@legacy("LRN", "lrn", outputs=2, visible=1, axes={"data": "N, C, ..."})
def lrn(
    data: Any, *, nsize: int, alpha: float = 1e-4, beta: float = 0.75, knorm: float = 2.0
) -> Any:
    """data / (knorm + alpha / nsize * sum of squares of `nsize` neighbouring channels) ** beta.

    Krizhevsky et al., ImageNet classification with deep convolutional neural networks, 2012.
    """
    channels, side = int(data.shape[1]), nsize // 2
    wide = np.pad(np.square(data), ((0, 0), (side, side), *[(0, 0)] * (len(data.shape) - 2)))
    total = sum(wide[:, i : i + channels] for i in range(nsize))
    return data / (knorm + alpha / nsize * total) ** beta


# --- activations ----------------------------------------------------------------------------

KINDS = ("relu", "sigmoid", "softrelu", "softsign", "tanh")


@legacy("Activation", "activation", "_npx_activation")
def activation(data: Any, *, act_type: str) -> Any:
    """An activation, chosen by name."""
    return npx.activation(data, act_type)


@written("activation")
def _(data: Any, act_type: str) -> Written | None:
    act_type = {"softplus": "softrelu"}.get(act_type, act_type)
    return Written("Activation", (data,), {"act_type": act_type}) if act_type in KINDS else None


@legacy("LeakyReLU", "leaky_relu", "_npx_leaky_relu", inputs=2, optional=1)
def leaky_relu(
    data: Any,
    gamma: Any = None,
    act_type: str = "leaky",
    slope: float = 0.25,
    lower_bound: float = 0.125,
    upper_bound: float = 0.334,
) -> Any:
    """data where it is positive; elsewhere a function chosen by `act_type`."""
    return npx.leaky_relu(data, gamma, act_type, slope, lower_bound, upper_bound)


@leaky_relu.infer
def _(shapes: Shapes, **_: Any) -> Shapes:
    return {"gamma": (shapes["data"][1],)}


@written("leaky_relu")
def _(data: Any, gamma: Any, act_type: str, slope: float, **bounds: Any) -> Written:
    inputs = (data,) if act_type != "prelu" else (data, gamma)
    settings: dict[str, Any] = {"act_type": act_type}
    if act_type in ("leaky", "elu"):
        settings["slope"] = slope
    if act_type == "rrelu":
        settings.update(bounds)
    return Written("LeakyReLU", inputs, settings)


@written("elu")
def _(data: Any, alpha: float) -> Written:
    return Written("LeakyReLU", (data,), {"act_type": "elu", "slope": alpha})


@written("selu")
def _(data: Any) -> Written:
    return Written("LeakyReLU", (data,), {"act_type": "selu"})


@legacy("SoftmaxActivation")
def softmax_activation(data: Any, *, mode: str = "instance") -> Any:
    """softmax over all values of an example or, with mode "channel", over its channels."""
    if mode == "channel":
        return npx.softmax(data, axis=1)
    return npx.softmax(npx.batch_flatten(data)).reshape(data.shape)


@legacy("softmax", "_npx_softmax", inputs=2, optional=1)
def softmax(
    data: Any,
    length: Any = None,
    axis: int = -1,
    temperature: float | None = None,
    dtype: Any = None,
    use_length: bool = False,
) -> Any:
    """exp(data) divided by its sum along an axis."""
    return npx.softmax(data, axis, length, temperature, bool(use_length), dtype)


@legacy("log_softmax", "_npx_log_softmax", inputs=2, optional=1)
def log_softmax(
    data: Any,
    length: Any = None,
    axis: int = -1,
    temperature: float | None = None,
    dtype: Any = None,
    use_length: bool = False,
) -> Any:
    """The logarithm of softmax."""
    return npx.log_softmax(data, axis, length, temperature, bool(use_length), dtype)


@legacy("softmin", inputs=1)
def softmin(data: Any, axis: int = -1, temperature: float | None = None, dtype: Any = None) -> Any:
    """softmax of -data."""
    return npx.softmin(data, axis, None, temperature, False, dtype)


def _soft(name: str) -> Any:
    def rule(
        data: Any, axis: int, length: Any, temperature: Any, use_length: bool, dtype: Any
    ) -> Written:
        settings = {"axis": axis, "temperature": temperature, "dtype": dtype}
        settings = {key: value for key, value in settings.items() if value is not None}
        if use_length:
            return Written(name, (data, length), {**settings, "use_length": True})
        return Written(name, (data,), settings)

    return rule


written("softmax")(_soft("softmax"))
written("log_softmax")(_soft("log_softmax"))


@legacy("Dropout", "dropout", "_npx_dropout", outputs=2, visible=1)
def dropout(data: Any, *, p: float = 0.5, mode: str = "training", axes: Any = ()) -> Any:
    """While training, elements set to 0 with probability p and the others scaled up."""
    return npx.dropout(data, p, mode, axes)


@written("dropout")
def _(data: Any, p: float, mode: str, axes: Any, **_: Any) -> Written:
    settings: dict[str, Any] = {"p": p, "axes": tuple(axes)}
    if mode != "training":
        settings["mode"] = mode
    return Written("Dropout", (data,), settings, 2)


@legacy("smooth_l1", "_npx_smooth_l1")
def smooth_l1(data: Any, *, scalar: float = 1.0) -> Any:
    """abs(data) - 0.5 / scalar**2, but 0.5 * (scalar * data)**2 where that is small."""
    return npx.smooth_l1(data, scalar)


@written("smooth_l1")
def _(data: Any, scalar: float) -> Written:
    return Written("smooth_l1", (data,), {"scalar": scalar})


@legacy("hard_sigmoid")
def hard_sigmoid(data: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    """alpha * data + beta, limited to [0, 1]."""
    return npx.hard_sigmoid(data, alpha, beta)


same(npx.multibox_prior, "_contrib_MultiBoxPrior", "_npx_multibox_prior", inputs=1)
