"""Pooling: one number for each window of an image."""

from __future__ import annotations

from typing import Any

from gemel.errors import ShapeError, unknown_name
from gemel.extent import maximum, minimum
from gemel.ir.declare import composite
from gemel.ir.keywords import static
from gemel.ir.public import Array
from gemel.ops import elementwise
from gemel.ops.convolution import per_axis
from gemel.ops.elementwise import absolute, cast, divide, iota, multiply, power, where
from gemel.ops.layouts import channels_first, channels_last, is_channels_last
from gemel.ops.peaks import peak, peaks
from gemel.ops.reduction import floating, sum, widened
from gemel.ops.shape import operand, reshape
from gemel.ops.windows import Moves, seen_with_border
from gemel.spec import Spec, product

KINDS = ("max", "avg", "sum", "lp")
#: How to treat elements at the end that do not fill a window: drop them, or cut a window short.
CONVENTIONS = ("valid", "full", "same")


def places(x: Any, moves: Moves, pad: Any, convention: str) -> tuple[int, ...]:
    """The number of windows along each spatial axis."""
    wide = [n + 2 * p for n, p in zip(x.shape[2:], pad, strict=True)]
    if convention == "valid":
        return moves.counts(wide)
    found = []
    for n, after, k, s in zip(wide, pad, moves.kernel, moves.stride, strict=True):
        complete = n if convention == "same" else n - k + s
        # No window begins after the end of the image, where it would see nothing. The two differ by
        # a number, so this asks nothing about the image's size.
        found.append((minimum(complete, n - after) + s - 1) // s)
    return tuple(found)


def padding(x: Any, moves: Moves, pad: Any, counts: Any, convention: str) -> dict[str, Any]:
    """The parameters of `bordered`: the padding, which is extended to fit the last window."""
    if convention == "valid":
        return {"before": pad, "after": pad, "most": pad}
    spans = zip(moves.reach(counts), x.shape[2:], pad, strict=True)
    after = tuple(maximum(reach - n - p, 0) for reach, n, p in spans)
    return {"before": pad, "after": after, "most": None}


def sizes(x: Any, moves: Moves, pad: Any, counts: Any, convention: str, padded: bool) -> Any:
    """How many elements each window has: a number, or an array that broadcasts to the windows."""
    spans = zip(moves.reach(counts), x.shape[2:], pad, strict=True)
    whole = padded or all(p == 0 for p in pad)
    if whole and (convention == "valid" or all(reach <= n + 2 * p for reach, n, p in spans)):
        return product(moves.kernel)
    found: Any = 1
    rest = len(pad)
    for n, p, k, s, count in zip(x.shape[2:], pad, moves.kernel, moves.stride, counts, strict=True):
        rest -= 1
        begin = iota(shape=(count,), axis=0, dtype="int64") * s
        end = elementwise.minimum(begin + k, n + (2 * p if padded else p))
        length = end - (begin if padded else elementwise.maximum(begin, p))
        found = multiply(found, reshape(length, shape=(count, *[1] * rest)))
    return found


@composite(public="npx", mxnet="_npx_pooling")
def pooling(
    x: Any,
    *,
    kernel: Any,
    stride: Any,
    pad: Any,
    kind: str,
    convention: str,
    padded: bool,
    p: int,
) -> Any:
    """One number for each window: `kind` of its elements; `padded` counts padding in averages.

    Without a kernel the window is the image.
    """
    if kind != "max":
        x = floating(x)
    moves, seen = Moves(kernel, stride, (1,) * len(kernel)), x
    counts: tuple[int, ...] = ()
    if kernel:
        counts = places(x, moves, pad, convention)
        sides = padding(x, moves, pad, counts, convention)
        if kind == "max":
            return peaks(x, kernel=kernel, stride=stride, **sides)
        seen = seen_with_border(x, moves, **sides)
    axes = tuple(range(2, len(x.shape)))
    if kind == "max":
        return peak(x, axes=axes, keepdims=True)
    if kind == "lp":
        return cast(norm(widened(seen), axes, not kernel, p), dtype=x.dtype)
    total = sum(widened(seen), axis=axes, keepdims=not kernel)
    if kind == "avg":
        size = sizes(x, moves, pad, counts, convention, padded) if kernel else product(x.shape[2:])
        total = divide(total, size)
    return cast(total, dtype=x.dtype)


def norm(x: Any, axes: tuple[int, ...], keepdims: bool, p: int) -> Any:
    """The p-norm over axes. Its gradient is 0 where all elements are 0."""
    total = sum(power(absolute(x), p), axis=axes, keepdims=keepdims)
    positive = total > 0
    return where(positive, power(where(positive, total, 1.0), 1.0 / p), 0.0)


@pooling.facade
def _(
    data: Any,
    kernel: Any = None,
    pool_type: str = "max",
    global_pool: bool = False,
    cudnn_off: bool = False,
    pooling_convention: str = "valid",
    stride: Any = None,
    pad: Any = None,
    p_value: int = 2,
    count_include_pad: bool | None = True,
    layout: str | None = None,
) -> Array:
    """One number for each window of data (N, C, *space): the largest, the average, the sum or the
    p-norm of its elements. The gradient of the largest goes to the first of equal elements; where
    the largest is NaN, it is NaN for all elements of the window.

    With `global_pool` there is one window, all of an image. Otherwise the number of places along
    an axis is (size + 2 * pad - kernel) / stride + 1, rounded down ("valid") or up ("full"), or
    (size + 2 * pad) / stride, rounded up ("same"). Where that is rounded up, a last window that
    would lie behind the image, and see padding only, is left out; MXNet counts it.
    With a `layout` like ``"NHWC"`` the channels are the last axis of data and result.
    Averages count the padding unless `count_include_pad` is off. `cudnn_off` changes nothing.

    >>> npx.pooling(np.arange(16.0).reshape(1, 1, 4, 4), kernel=(2, 2), stride=(2, 2))
    """
    data = operand(data)
    axes = len(data.shape) - 2
    if axes not in (1, 2, 3):
        raise ShapeError(
            f"pooling: {list(data.shape)} must have 3 to 5 axes: N, C, and the spatial axes"
        )
    last = is_channels_last("pooling", layout, axes)
    for what, value, known in (
        ("pool_type", pool_type, KINDS),
        ("pooling_convention", pooling_convention, CONVENTIONS),
    ):
        if value not in known:
            raise unknown_name(f"{what} of pooling", value, known)
    kernel = static(kernel, "pooling", "kernel")
    if not global_pool and (kernel is None or (isinstance(kernel, tuple) and not kernel)):
        raise ShapeError("pooling: needs a kernel, or global_pool=True")
    every = last and not global_pool
    data = beside(data) if every else channels_first(data, last)

    def setting(what: str, value: Any, alone: int) -> tuple[int, ...]:
        if global_pool:
            return ()
        found = per_axis("pooling", what, value, axes, alone)
        return (*found, alone) if every else found

    found = pooling(
        data,
        kernel=setting("kernel", kernel, 1),
        stride=setting("stride", stride, 1),
        pad=setting("pad", pad, 0),
        kind=pool_type,
        convention=pooling_convention,
        padded=count_include_pad is None or bool(count_include_pad),
        p=p_value,
    )
    if every:
        return reshape(found, shape=(found.shape[0], *found.shape[2:]))
    return channels_last(found, last)


def beside(x: Any) -> Any:
    """From (N, *space, C) to (N, 1, *space, C): the channels become one more spatial axis, along
    which windows have one element, so the channels need not be moved.
    """
    return reshape(x, shape=(x.shape[0], 1, *x.shape[1:]))


@pooling.spec
def _(
    x: Spec,
    *,
    kernel: Any,
    stride: Any,
    pad: Any,
    kind: str,
    convention: str,
    padded: bool,
    p: int,
) -> Spec:
    dtype = x.dtype if kind == "max" else x.dtype.floating
    if not kernel:
        if kind == "max" and any(n == 0 for n in x.shape[2:]):
            raise ShapeError(f"pooling: {x}: an image is empty, so it has no maximum")
        return Spec((*x.shape[:2], *[1] * (x.ndim - 2)), dtype)
    moves = Moves(kernel, stride, (1,) * len(kernel))
    moves.check("pooling", x, [n + 2 * m for n, m in zip(x.shape[2:], pad, strict=True)])
    if any(m >= k for m, k in zip(pad, kernel, strict=True)):
        raise ShapeError(f"pooling: {x}: pad {pad} must be less than kernel {kernel}")
    counts = places(x, moves, pad, convention)
    return Spec((*x.shape[:2], *counts), dtype)
