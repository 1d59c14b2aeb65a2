"""Operators with windows: convolutions and pooling."""

from __future__ import annotations

from itertools import product as every
from typing import Any, NamedTuple

from gemel import np, npx
from gemel.extent import maximum, minimum
from gemel.onnx.read.table import imports


class Window(NamedTuple):
    """The parameters of a window along each spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilate: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def widens(self) -> bool:
        """Whether there is any padding."""
        return any((*self.before, *self.after))


def window_of(node: Any, x: Any, kernel: Any) -> Window:
    """The window of a node over an image (N, C, *space)."""
    kernel = tuple(int(n) for n in kernel)
    axes = len(kernel)
    stride = tuple(node.get("strides") or [1] * axes)
    dilate = tuple(node.get("dilations") or [1] * axes)
    pads = node.get("pads") or [0] * (2 * axes)
    before, after = tuple(pads[:axes]), tuple(pads[axes:])
    auto = node.get("auto_pad", "NOTSET")
    if auto == "VALID":
        before = after = (0,) * axes
    elif auto != "NOTSET":
        sides = [
            _alike(n, k, s, d, auto == "SAME_UPPER")
            for n, k, s, d in zip(x.shape[2:], kernel, stride, dilate, strict=True)
        ]
        before, after = tuple(a for a, _ in sides), tuple(b for _, b in sides)
    return Window(kernel, stride, dilate, before, after)


def _alike(extent: Any, kernel: int, stride: int, dilate: int, upper: bool) -> tuple[int, int]:
    """The padding for which the output size is the extent divided by the stride, rounded up."""
    reach = (kernel - 1) * dilate + 1
    if stride == 1:
        total = reach - 1
    else:
        places = -(-int(extent) // stride)
        total = max((places - 1) * stride + reach - int(extent), 0)
    small, large = total // 2, total - total // 2
    return (small, large) if upper else (large, small)


def _around(x: Any, window: Window, value: float = 0) -> Any:
    """An image with its padding added."""
    sides = [(0, 0), (0, 0), *zip(window.before, window.after, strict=True)]
    return np.pad(x, sides, constant_values=value)


# --- convolutions -----------------------------------------------------------------------------


@imports("Conv")
def convolved(node: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    """The convolution of an image, with the attributes of `Conv`."""
    window = window_of(node, x, weight.shape[2:])
    pad = window.before
    if window.before != window.after:
        x, pad = _around(x, window), (0,) * len(pad)
    return npx.convolution(
        x,
        weight,
        bias,
        kernel=window.kernel,
        stride=window.stride,
        dilate=window.dilate,
        pad=pad,
        num_filter=weight.shape[0],
        num_group=node.get("group", 1),
        no_bias=bias is None,
    )


@imports("ConvTranspose")
def _(node: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    axes, groups = weight.ndim - 2, node.get("group", 1)
    kernel = tuple(int(n) for n in weight.shape[2:])
    stride = tuple(node.get("strides") or [1] * axes)
    dilate = tuple(node.get("dilations") or [1] * axes)
    more = list(node.get("output_padding") or [0] * axes)
    pads = node.get("pads") or [0] * (2 * axes)
    before, after = list(pads[:axes]), list(pads[axes:])
    wanted, auto = node.get("output_shape"), node.get("auto_pad", "NOTSET")
    spans = zip(x.shape[2:], kernel, stride, dilate, strict=True)
    whole = [(n - 1) * s + (k - 1) * d + 1 for n, k, s, d in spans]
    if wanted is not None or auto.startswith("SAME"):
        wanted = wanted or [n * s for n, s in zip(x.shape[2:], stride, strict=True)]
        for axis, (n, m) in enumerate(zip(whole, wanted, strict=True)):
            total = int(n + more[axis] - m)
            if total < 0:  # windows shorter than the stride need no padding
                more[axis] -= total if node.get("output_shape") else 0
                total = 0
            half = total // 2
            before[axis], after[axis] = (
                (half, total - half) if auto == "SAME_UPPER" else (total - half, half)
            )
    full = npx.deconvolution(
        x, weight, bias, kernel=kernel, stride=stride, dilate=dilate, pad=(0,) * axes,
        num_filter=weight.shape[1] * groups, num_group=groups, no_bias=bias is None,
    )  # fmt: skip
    return _cut(full, before, after, more, bias)


def _cut(full: Any, before: Any, after: Any, more: Any, bias: Any) -> Any:
    """Crop the padding from the result; where `more` exceeds it, extend the result by the bias."""
    longer = [max(m - b, 0) for m, b in zip(more, after, strict=True)]
    if any(longer):
        full = np.pad(full, [(0, 0), (0, 0), *((0, n) for n in longer)])
        if bias is not None:
            lined = np.reshape(bias, (-1, *[1] * len(longer)))
            for axis, n in enumerate(longer):
                if n:
                    key = (slice(None),) * (axis + 2) + (slice(-n, None),)
                    full = full.copy()
                    full[key] = np.broadcast_to(lined, full[key].shape)
    key = tuple(
        slice(b, n - max(a - m, 0))
        for n, b, a, m in zip(full.shape[2:], before, after, more, strict=True)
    )
    return full[(slice(None), slice(None)) + key]


# --- pooling ----------------------------------------------------------------------------------


@imports("MaxPool")
def _(node: Any, x: Any) -> Any:
    window = _pooled(node, x)
    if node.has(1):
        raise node.refuse("positions of the largest elements are not given")
    if _is_plain(window):
        return _pool(node, x, window, "max", window.before)
    return _whole(node, _around(x, window, _lowest(x.dtype)), window, "max", x.shape)


def _lowest(dtype: Any) -> Any:
    """A value not above any element of this dtype."""
    return float("-inf") if dtype.is_floating else int(np.iinfo(dtype).min)


@imports("AveragePool")
def _(node: Any, x: Any) -> Any:
    window, padded = _pooled(node, x), bool(node.get("count_include_pad", 0))
    if _is_plain(window) and not (node.get("ceil_mode", 0) and padded):
        return _pool(node, x, window, "avg", window.before, padded)
    ones = np.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    counts = _whole(node, _around(ones, window, float(padded)), window, "sum", x.shape)
    return _whole(node, _around(x, window), window, "sum", x.shape) / counts


@imports("LpPool")
def _(node: Any, x: Any) -> Any:
    window, power = _pooled(node, x), node.get("p", 2)
    raised = _around(np.absolute(x) ** power, window)
    return _whole(node, raised, window, "sum", x.shape) ** (1.0 / power)


def _pooled(node: Any, x: Any) -> Window:
    if node.get("storage_order", 0):
        raise node.refuse("storage_order: gemel's arrays have rows first")
    return window_of(node, x, node.get("kernel_shape"))


def _is_plain(window: Window) -> bool:
    """Whether `npx.pooling` supports such windows: not dilated, with less padding than elements."""
    small = all(p < k for p, k in zip(window.before, window.kernel, strict=True))
    return window.before == window.after and small and all(step == 1 for step in window.dilate)


def _pool(node: Any, x: Any, window: Window, kind: str, pad: Any = (), padded: bool = True) -> Any:
    """Call `npx.pooling`."""
    return npx.pooling(
        x,
        kernel=window.kernel,
        pool_type=kind,
        stride=window.stride,
        pad=pad or (0,) * len(window.kernel),
        pooling_convention="full" if node.get("ceil_mode", 0) else "valid",
        count_include_pad=padded,
    )


def _whole(node: Any, x: Any, window: Window, kind: str, shape: Any) -> Any:
    """The largest element or the sum of each window of an image that is padded already.

    `shape` is that of the image without padding. No window begins after the end of the image.
    """
    ceil = node.get("ceil_mode", 0)
    counts = []
    for n, m, k, s, d, b in zip(
        shape[2:], x.shape[2:], window.kernel, window.stride, window.dilate, window.before,
        strict=True,
    ):  # fmt: skip
        room = m - ((k - 1) * d + 1)
        count = (room + s - 1) // s + 1 if ceil else room // s + 1
        counts.append(minimum(count, (n + b - 1) // s + 1))
    if any(step != 1 for step in window.dilate):
        return _apart(x, window, kind, counts)
    found = _pool(node, x, window, kind)
    return found[(slice(None), slice(None)) + tuple(slice(0, count) for count in counts)]


def _apart(x: Any, window: Window, kind: str, counts: list[Any]) -> Any:
    """The same for dilated windows: one slice of x for each place in the window, combined."""
    spans = zip(x.shape[2:], counts, window.kernel, window.stride, window.dilate, strict=True)
    sides = [(0, maximum((m - 1) * s + (k - 1) * d + 1 - n, 0)) for n, m, k, s, d in spans]
    end = _lowest(x.dtype) if kind == "max" else 0
    x = np.pad(x, [(0, 0), (0, 0), *sides], constant_values=end)
    found: Any = None
    for place in every(*map(range, window.kernel)):
        key = tuple(
            slice(i * d, i * d + (m - 1) * s + 1, s)
            for i, d, s, m in zip(place, window.dilate, window.stride, counts, strict=True)
        )
        part = x[(slice(None), slice(None)) + key]
        if found is not None:
            part = np.maximum(found, part) if kind == "max" else found + part
        found = part
    return found


@imports("GlobalMaxPool")
def _(node: Any, x: Any) -> Any:
    return np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@imports("GlobalAveragePool")
def _(node: Any, x: Any) -> Any:
    if x.ndim in (3, 4, 5):
        return npx.pooling(x, pool_type="avg", global_pool=True)
    return x.mean(axis=tuple(range(2, x.ndim)), keepdims=True)


@imports("GlobalLpPool")
def _(node: Any, x: Any) -> Any:
    power = node.get("p", 2)
    total = (np.absolute(x) ** power).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
    return total ** (1.0 / power)


@imports("LRN")
def _(node: Any, x: Any) -> Any:
    """Krizhevsky et al., ImageNet classification with deep convolutional neural networks, 2012."""
    size, channels = node.get("size"), x.shape[1]
    before, after = (size - 1) // 2, size // 2
    sides = [(0, 0)] * x.ndim
    sides[1] = before, after
    wide = np.pad(np.square(x), sides)
    total = wide[:, :channels]
    for i in range(1, size):
        total = total + wide[:, i : i + channels]
    scale = node.get("bias", 1.0) + node.get("alpha", 1e-4) / size * total
    return x / scale ** node.get("beta", 0.75)
