"""Operators on quantized numbers."""

from __future__ import annotations

from typing import Any

from gemel import np
from gemel.onnx.read.table import imports
from gemel.onnx.read.windows import Window, convolved, window_of
from gemel.onnx.types import dtype_of
from gemel.ops.windows import windows


def _lined(node: Any, x: Any, each: Any) -> Any:
    """Scales or zero points in a shape that broadcasts with x: a single one, or one for each
    element of an axis or for each block of it."""
    axis, block = node.get("axis", 1), node.get("block_size", 0)
    if each is None or each.ndim == 0 or each.ndim == 1 and each.shape[0] == 1 and not block:
        return each
    if not -x.ndim <= axis < x.ndim:
        raise node.refuse(f"axis {axis}: the input has {x.ndim} axes")
    axis %= x.ndim
    if not block:
        return np.reshape(each, tuple(-1 if i == axis else 1 for i in range(x.ndim)))
    # The last block may be shorter.
    places = slice(0, x.shape[axis])
    return np.repeat(each, block, axis=axis)[(slice(None),) * axis + (places,)]


def _kept(x: Any, zero: Any, dtype: Any) -> Any:
    """Round numbers to whole ones, halves to even ones, add zero points, and clip to the range of
    a dtype of at most two bytes."""
    # Sums with a zero point are exact; nothing overflows, as all beyond is clipped anyway.
    whole = np.clip(np.rint(x).astype("float32"), -FAR, FAR).astype("int32")
    whole = whole if zero is None else whole + zero.astype("int32")
    limits = np.iinfo(dtype)
    return np.clip(whole, int(limits.min), int(limits.max)).astype(dtype)


def _centred(x: Any, zero: Any) -> Any:
    """The differences of numbers and zero points, as int32."""
    wide = x.astype("int32")
    return wide if zero is None else wide - zero.astype("int32")


#: The largest difference of a byte and its zero point.
LARGEST = 255
#: More than any sum of a number and a zero point of two bytes.
FAR = 1 << 20


@imports("QuantizeLinear")
def _(node: Any, x: Any, scale: Any, zero: Any = None) -> Any:
    code = node.get("output_dtype", 0)
    dtype = zero.dtype if zero is not None else dtype_of(code, node.where) if code else "uint8"
    code = node.get("precision", 0)
    # Before version 23 nothing says that quotients are rounded to the scale's dtype.
    given = scale.dtype if node.opset >= 23 else "float32"
    divided = dtype_of(code, node.where) if code else given
    steps = x.astype(divided) / _lined(node, x, scale.astype(divided))
    return _kept(steps, _lined(node, x, zero), dtype)


@imports("DequantizeLinear")
def _(node: Any, x: Any, scale: Any, zero: Any = None) -> Any:
    code = node.get("output_dtype", 0)
    dtype = dtype_of(code, node.where) if code else scale.dtype
    wide = _centred(x, _lined(node, x, zero)).astype("float32")
    return (wide * _lined(node, x, scale).astype("float32")).astype(dtype)


@imports("DynamicQuantizeLinear")
def _(node: Any, x: Any) -> Any:
    least, most = np.minimum(x.min(), 0), np.maximum(x.max(), 0)
    scale = (most - least) / 255
    scale = np.where(scale == 0, 1, scale)  # zeros only; ONNX leaves it open
    zero = _kept(-least / scale, None, "uint8")
    return _kept(x / scale, zero, "uint8"), scale, zero


# --- products ---------------------------------------------------------------------------------


def _row(each: Any) -> Any:
    """Scales or zero points of a first factor: one, one for each row, or such of each matrix."""
    return np.expand_dims(each, -1) if each is not None and each.ndim == 1 else each


def _product(a: Any, b: Any, zero_a: Any, zero_b: Any) -> Any:
    """(a - zero_a) @ (b - zero_b) in int32, multiplied out: products of bytes are several times as
    fast as those of differences, and that sums begin again past int32 changes nothing."""
    return _summed(a, b, _row(zero_a), zero_b)


def _summed(a: Any, b: Any, zero_a: Any, zero_b: Any) -> Any:
    """The same for zero points that broadcast with the factors."""
    if a.ndim < 2 or b.ndim < 2:
        return np.matmul(_centred(a, zero_a), _centred(b, zero_b)).astype("int32")
    wide_a, wide_b = _centred(a, None), _centred(b, None)
    found = np.matmul(wide_a, wide_b)
    if zero_b is not None:
        zero_b = zero_b.astype("int32")
        found = found - np.sum(wide_a, axis=-1, keepdims=True, dtype="int32") * zero_b
    if zero_a is not None:
        columns = np.sum(wide_b, axis=-2, keepdims=True, dtype="int32")
        columns = columns if zero_b is None else columns - zero_b * a.shape[-1]
        found = found - zero_a.astype("int32") * columns
    return found


def _channels(weight: Any, each: Any) -> Any:
    """One number, or one for each filter of a convolution, to broadcast with its weight."""
    axes = (-1, *[1] * (weight.ndim - 1))
    return each if each is None or each.ndim == 0 else np.reshape(each, axes)


def _convolved(node: Any, x: Any, weight: Any, zero_x: Any, zero_w: Any) -> Any:
    """The sums of products as int32; what the image is padded with is its zero point."""
    if node.get("group", 1) == 1 and x.dtype.itemsize == weight.dtype.itemsize == 1:
        return _convolved_bytes(window_of(node, x, weight.shape[2:]), x, weight, zero_x, zero_w)
    image, filters = _centred(x, zero_x), _centred(weight, _channels(weight, zero_w))
    # Sums of so few products are whole numbers that float32 holds. float64 holds those of any
    # number of products of bytes, and past int32 they begin again.
    few = weight.size // weight.shape[0] * LARGEST**2 < 2**24
    wide = "float32" if few and x.dtype.itemsize == weight.dtype.itemsize == 1 else "float64"
    sums = convolved(node, image.astype(wide), filters.astype(wide))
    return np.rint(sums).astype("int64").astype("int32")


def _convolved_bytes(window: Window, x: Any, weight: Any, zero_x: Any, zero_w: Any) -> Any:
    """The same by a product of bytes: of windows, written side by side, and filters.

    Channels are last there, so that a window consists of runs of bytes.
    """
    axes, filters = weight.ndim - 2, weight.shape[0]
    if not window.widens and window.stride == window.kernel == (1,) * axes:
        pixels = np.reshape(x, (*x.shape[:2], -1))
        zero_w = zero_w if zero_w is None or zero_w.ndim == 0 else np.reshape(zero_w, (-1, 1))
        sums = _summed(np.reshape(weight, (filters, -1)), pixels, zero_w, zero_x)
        return np.reshape(sums, (x.shape[0], filters, *x.shape[2:]))
    image = np.moveaxis(x, 1, -1)
    if window.widens:
        # Bytes wrap around: the difference becomes the zero point outside, and x again inside.
        sides = [(0, 0), *zip(window.before, window.after, strict=True), (0, 0)]
        given = np.zeros((), dtype=x.dtype) if zero_x is None else np.reshape(zero_x, ())
        image = np.pad(image - given, sides) + given
    seen = windows(
        np.moveaxis(image, -1, 1), kernel=window.kernel, stride=window.stride, dilate=window.dilate
    )
    places = seen.shape[2 + axes :]
    inside, outside = range(2, 2 + axes), range(2 + axes, 2 + 2 * axes)
    rows = np.transpose(seen, (0, *outside, *inside, 1))
    rows = np.reshape(rows, (-1, weight.size // filters))
    columns = np.transpose(np.reshape(np.moveaxis(weight, 1, -1), (filters, -1)))
    sums = np.reshape(_summed(rows, columns, zero_x, zero_w), (x.shape[0], *places, filters))
    return np.moveaxis(sums, -1, 1)


def _requantized(sums: Any, scale: Any, scale_y: Any, zero_y: Any) -> Any:
    wide = scale.astype("float32") / scale_y.astype("float32")
    return _kept(sums.astype("float32") * wide, zero_y, zero_y.dtype)


@imports("MatMulInteger")
def _(node: Any, a: Any, b: Any, zero_a: Any = None, zero_b: Any = None) -> Any:
    return _product(a, b, zero_a, zero_b)


@imports("QLinearMatMul")
def _(
    node: Any, a: Any, scale_a: Any, zero_a: Any, b: Any, scale_b: Any, zero_b: Any,
    scale_y: Any, zero_y: Any,
) -> Any:  # fmt: skip
    scale = _row(scale_a).astype("float32") * scale_b.astype("float32")
    return _requantized(_product(a, b, zero_a, zero_b), scale, scale_y, zero_y)


@imports("ConvInteger")
def _(node: Any, x: Any, weight: Any, zero_x: Any = None, zero_w: Any = None) -> Any:
    return _convolved(node, x, weight, zero_x, zero_w)


@imports("QLinearConv")
def _(
    node: Any, x: Any, scale_x: Any, zero_x: Any, weight: Any, scale_w: Any, zero_w: Any,
    scale_y: Any, zero_y: Any, bias: Any = None,
) -> Any:  # fmt: skip
    sums = _convolved(node, x, weight, zero_x, zero_w)
    lined = (-1, *[1] * (weight.ndim - 2))
    if bias is not None:
        sums = sums + np.reshape(bias, lined)
    scale = scale_x * (np.reshape(scale_w, lined) if scale_w.ndim else scale_w)
    return _requantized(sums, scale, scale_y, zero_y)
