"""Convolution and its transpose, over one to three spatial axes.

Convolution is a product of weights with windows. Its transpose maps shapes the other way. Each is
the gradient of the other with respect to the image.
"""

from __future__ import annotations

from typing import Any

from gemel.config import WINOGRAD
from gemel.dtype import promote
from gemel.errors import DTypeError, ShapeError
from gemel.extent import WHOLE, minimum, seen
from gemel.ir.declare import composite
from gemel.ir.keywords import static
from gemel.ir.public import Array
from gemel.ops.elementwise import full
from gemel.ops.layouts import channels_first, channels_last, is_channels_last
from gemel.ops.linalg import is_rounded
from gemel.ops.movement import Movement
from gemel.ops.reduction import in_dtype, sum
from gemel.ops.shape import operands, reshape
from gemel.ops.windows import Moves
from gemel.ops.winograd import AUTO
from gemel.spec import Spec, promote_specs, same_shape


def per_axis(name: str, what: str, value: Any, axes: int, default: int) -> tuple[int, ...]:
    """A setting for each axis: one for all, or one each; none is less than the default.

    Raises `ShapeError`.
    """
    value = static(value, name, what)
    if value is None or (isinstance(value, tuple) and not value):
        return (default,) * axes
    found = value if isinstance(value, tuple) else (value,) * axes
    if len(found) != axes:
        raise ShapeError(f"{name}: {what} {value!r} must have {axes} numbers, one for each axis")
    if any(not isinstance(n, WHOLE) or (isinstance(n, int) and n < default) for n in found):
        raise ShapeError(f"{name}: {what} {value!r} must be whole numbers of at least {default}")
    return found


def _images(name: str, data: Any, weight: Any) -> list[Any]:
    """Images and weights as arrays with as many axes. Raises `ShapeError`."""
    data, weight = operands((data, weight))
    if len(data.shape) != len(weight.shape):
        raise ShapeError(
            f"{name}: data {Spec(data.shape, data.dtype)} and weight "
            f"{Spec(weight.shape, weight.dtype)} must have the same number of axes"
        )
    return [data, weight]


def kernel_of(name: str, kernel: Any, weight: Any) -> tuple[int, ...]:
    """The sizes of the kernel, which are never free. Raises `ShapeError`."""
    axes = len(weight.shape) - 2
    if axes not in (1, 2, 3):
        raise ShapeError(
            f"{name}: weight {list(weight.shape)} must have 3 to 5 axes: two for channels, and "
            "those of the kernel"
        )
    found = tuple(map(int, weight.shape[2:]))
    if kernel is not None and per_axis(name, "kernel", kernel, axes, 1) != found:
        raise ShapeError(f"{name}: kernel {kernel} does not match weight {list(weight.shape)}")
    return found


def check_operands(
    name: str, x: Spec, weight: Spec, bias: Any, how: Movement, channels: tuple[int, int]
) -> None:
    """Raises unless x, weight and bias fit; `channels` are the input and output channels."""
    groups, kernel = how.groups, how.moves.kernel
    if any(type(n) is not int or n < 0 for n in how.pad):
        raise ShapeError(f"{name}: pad {how.pad} must be whole numbers of at least 0")
    if not same_shape(weight.shape[2:], kernel):
        raise ShapeError(f"{name}: kernel {kernel} does not match weight {weight}")
    if x.ndim != weight.ndim:
        raise ShapeError(f"{name}: {x} and weight {weight} must have the same number of axes")
    if not promote_specs(x, weight).is_floating:
        raise DTypeError(f"{name}: {x} and weight {weight} must be floating; use astype('float32')")
    taken, given = channels
    if groups < 1 or not x.shape[1] == taken or weight.shape[0] % groups:
        raise ShapeError(
            f"{name}: {x} has {x.shape[1]} channels (axis 1); weight {weight} in {groups} groups "
            f"needs {taken}, and its first axis must divide into the groups"
        )
    if bias is not None and (bias.ndim != 1 or not bias.shape[0] == given):
        raise ShapeError(f"{name}: bias {bias} must have one element for each channel of {given}")


def is_wide(x: Any, weight: Any, bias: Any) -> bool:
    """Whether the bias is added before the result is rounded: for float16 and bfloat16."""
    return bias is not None and is_rounded(promote(x.dtype, weight.dtype))


def shifted(y: Any, x: Any, weight: Any, bias: Any) -> Any:
    """y, computed from x and weight, plus a bias for each channel, in the dtype of all three."""
    if bias is None:
        return y
    found = y + reshape(bias, shape=(-1, *[1] * (len(y.shape) - 2)))
    return in_dtype(found, promote_specs(x.spec, weight.spec, bias.spec))


def bias_gradient(g: Any) -> Any:
    """The gradient of the bias: the sum over all images and positions."""
    return sum(g, axis=(0, *range(2, len(g.shape))))


# --- convolution ----------------------------------------------------------------------------


@composite(public="npx", contracts=True, onnx="Conv", mxnet="_npx_convolution")
def convolution(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    kernel: Any,
    stride: Any,
    dilate: Any,
    pad: Any,
    groups: int,
    scheme: str = AUTO,
) -> Any:
    """Convolution of images (N, C, *space) with weights (channels, C / groups, *kernel)."""
    how = Movement(Moves(kernel, stride, dilate), pad, groups, scheme, is_wide(x, weight, bias))
    return shifted(how.shrunk(x, weight), x, weight, bias)


@convolution.facade
def _(
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
    no_bias: bool = False,
    cudnn_tune: Any = None,
    cudnn_off: bool = False,
    layout: str | None = None,
) -> Array:
    """Convolution over one to three axes: data (N, C, *space), weight (filters, C / groups,
    *kernel), result (N, filters, *places), where there are
    (size + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1 places along an axis.

    As in MXNet (and unlike the definition) the kernel is not turned round. With a `layout` like
    ``"NHWC"`` the channels of data, weight and result are their last axes. `workspace`,
    `cudnn_tune` and `cudnn_off` change nothing here. Kernels of 3 x 3 by steps of one, of float32,
    may be multiplied by Winograd's scheme: see `GEMEL_WINOGRAD`.

    >>> image = np.arange(9.0).reshape(1, 1, 3, 3)
    >>> npx.convolution(image, np.ones((1, 1, 2, 2)), no_bias=True, kernel=(2, 2), num_filter=1)
    """
    data, weight = _images("convolution", data, weight)
    axes = len(weight.shape) - 2
    last = axes in (1, 2, 3) and is_channels_last("convolution", layout, axes)
    data, weight = channels_first(data, last), channels_first(weight, last)
    kernel = kernel_of("convolution", kernel, weight)
    if num_filter is not None and not num_filter == weight.shape[0]:
        raise ShapeError(f"convolution: num_filter {num_filter}, weight {list(weight.shape)}")
    inputs = (data, weight) if bias is None or no_bias else operands((data, weight, bias))
    found = convolution(
        *inputs,
        kernel=kernel,
        stride=per_axis("convolution", "stride", stride, axes, 1),
        dilate=per_axis("convolution", "dilate", dilate, axes, 1),
        pad=per_axis("convolution", "pad", pad, axes, 0),
        groups=num_group,
        scheme=WINOGRAD.read(),
    )
    return channels_last(found, last)


@convolution.spec
def _(
    x: Spec,
    weight: Spec,
    bias: Any = None,
    *,
    kernel: Any,
    stride: Any,
    dilate: Any,
    pad: Any,
    groups: int,
    scheme: str,
) -> Spec:
    channels = (weight.shape[1] * groups, weight.shape[0])
    how = Movement(Moves(kernel, stride, dilate), pad, groups)
    check_operands("convolution", x, weight, bias, how, channels)
    wide = [n + 2 * p for n, p in zip(x.shape[2:], pad, strict=True)]
    how.moves.check("convolution", x, wide)
    given = (x, weight) if bias is None else (x, weight, bias)
    return Spec((x.shape[0], weight.shape[0], *how.counts(x.shape[2:])), promote_specs(*given))


@convolution.gradient
def _(
    g: Any,
    y: Any,
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    kernel: Any,
    stride: Any,
    dilate: Any,
    pad: Any,
    groups: int,
    scheme: str,
) -> Any:
    how = Movement(Moves(kernel, stride, dilate), pad, groups, scheme)
    if x.spec.is_empty:  # the windows see nothing but padding
        dx = full(0, shape=x.shape, dtype=x.dtype)
    else:
        dx = how.grown(g, weight, tuple(x.shape[2:]))
    dw = how.weights(x, g, weight.shape)
    return dx, dw, None if bias is None else bias_gradient(g)


# --- transposed convolution -----------------------------------------------------------------


@composite(public="npx", contracts=True, onnx="ConvTranspose", mxnet="_npx_deconvolution")
def deconvolution(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    kernel: Any,
    stride: Any,
    dilate: Any,
    pad: Any,
    adjust: Any,
    groups: int,
) -> Any:
    """The transpose of a convolution with weights (C, channels / groups, *kernel)."""
    wide = is_wide(x, weight, bias)
    how = Movement(Moves(kernel, stride, dilate), pad, groups, wide=wide)
    found = how.grown(x, weight, grown_space(how, x.shape[2:], adjust))
    return shifted(found, x, weight, bias)


def grown_space(how: Movement, places: Any, adjust: Any) -> tuple[int, ...]:
    """The size of the image in which windows fit at `places` positions, plus `adjust`."""
    spans = zip(how.moves.reach(places), how.pad, adjust, strict=True)
    return tuple(n - 2 * p + a for n, p, a in spans)


@deconvolution.facade
def _(
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
    no_bias: bool = True,
    cudnn_tune: Any = None,
    cudnn_off: bool = False,
    layout: str | None = None,
) -> Array:
    """The transpose of `convolution`: data (N, C, *places), weight (C, filters / groups, *kernel),
    result (N, filters, *space), with
    (places - 1) * stride - 2 * pad + dilate * (kernel - 1) + 1 + adj elements along an axis.

    `target_shape` says the size instead of `pad` and `adj`; `layout` is that of `convolution`.
    `workspace`, `cudnn_tune` and
    `cudnn_off` change nothing here. Zeiler et al., Deconvolutional networks, CVPR 2010.

    >>> image = np.arange(4.0).reshape(1, 1, 2, 2)
    >>> npx.deconvolution(image, np.ones((1, 1, 2, 2)), stride=2)
    """
    data, weight = _images("deconvolution", data, weight)
    axes = len(weight.shape) - 2
    last = axes in (1, 2, 3) and is_channels_last("deconvolution", layout, axes)
    data, weight = channels_first(data, last), channels_first(weight, last)
    kernel = kernel_of("deconvolution", kernel, weight)
    if num_filter is not None and not num_filter == weight.shape[1] * num_group:
        raise ShapeError(f"deconvolution: num_filter {num_filter}, weight {list(weight.shape)}")
    step = per_axis("deconvolution", "stride", stride, axes, 1)
    gaps = per_axis("deconvolution", "dilate", dilate, axes, 1)
    around = per_axis("deconvolution", "pad", pad, axes, 0)
    adjust = per_axis("deconvolution", "adj", adj, axes, 0)
    if target_shape not in (None, ()):
        wanted = per_axis("deconvolution", "target_shape", target_shape, axes, 0)
        reach = Moves(kernel, step, gaps).reach(data.shape[2:])
        # The same amount is cut off on both sides; an odd excess is rounded up, and `adjust` adds
        # one back. `int` fixes the sizes, because padding is never free.
        over = [int(n - m) for n, m in zip(reach, wanted, strict=True)]
        around, adjust = tuple((n + 1) // 2 for n in over), tuple(n % 2 for n in over)
    inputs = (data, weight) if bias is None or no_bias else operands((data, weight, bias))
    found = deconvolution(
        *inputs,
        kernel=kernel,
        stride=step,
        dilate=gaps,
        pad=around,
        adjust=adjust,
        groups=num_group,
    )
    return channels_last(found, last)


@deconvolution.spec
def _(
    x: Spec,
    weight: Spec,
    bias: Any = None,
    *,
    kernel: Any,
    stride: Any,
    dilate: Any,
    pad: Any,
    adjust: Any,
    groups: int,
) -> Spec:
    channels = (weight.shape[0], weight.shape[1] * groups)
    how = Movement(Moves(kernel, stride, dilate), pad, groups)
    check_operands("deconvolution", x, weight, bias, how, channels)
    space = grown_space(how, x.shape[2:], adjust)
    wide = [n + 2 * p for n, p in zip(space, pad, strict=True)]
    how.moves.check("deconvolution", x, wide)
    if any(not 0 <= a < s for a, s in zip(adjust, stride, strict=True)) or not min_of(space) > 0:
        raise ShapeError(
            f"deconvolution: {x}: adj {adjust} must be less than stride {stride}, and pad {pad} "
            f"must leave a non-empty result of {list(map(seen, wide))}"
        )
    given = (x, weight) if bias is None else (x, weight, bias)
    return Spec((x.shape[0], channels[1], *space), promote_specs(*given))


def min_of(extents: tuple[int, ...]) -> int:
    """The smallest of some extents."""
    least = extents[0]
    for extent in extents[1:]:
        least = minimum(least, extent)
    return least


@deconvolution.gradient
def _(
    g: Any,
    y: Any,
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    kernel: Any,
    stride: Any,
    dilate: Any,
    pad: Any,
    adjust: Any,
    groups: int,
) -> Any:
    how = Movement(Moves(kernel, stride, dilate), pad, groups)
    dx, dw = how.shrunk(g, weight), how.weights(g, x, weight.shape)
    return dx, dw, None if bias is None else bias_gradient(g)
