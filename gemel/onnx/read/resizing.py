"""Resize and Upsample: images are resized one axis after the other."""

from __future__ import annotations

import math
from typing import Any

from gemel import np
from gemel.ir.reference import numpy
from gemel.onnx.read.table import imports


def _over(product: Any, m: float) -> Any:
    """A quotient, rounded to float32 like the factors in files: 1.5 over the float32 nearest to
    0.6 is 2.5."""
    return (product / m).astype("float32").astype("float64")


#: The position of an element's centre in the input image: f(position, input size, output size),
#: with the output size not rounded. Products come first: quotients that are whole are exact.
PLACES = {
    "half_pixel": lambda at, n, m: _over((at + 0.5) * n, m) - 0.5,
    "half_pixel_symmetric": lambda at, n, m: (
        n / 2 * (1 - int(m) / m) + _over((at + 0.5) * n, m) - 0.5
    ),
    "pytorch_half_pixel": lambda at, n, m: _over((at + 0.5) * n, m) - 0.5 if m > 1 else at * 0.0,
    "align_corners": lambda at, n, m: _over(at * (n - 1), m - 1) if m > 1 else at * 0.0,
    "asymmetric": lambda at, n, m: _over(at * n, m),
}
ROUNDINGS = {
    "round_prefer_floor": lambda at: numpy().ceil(at - 0.5),
    "round_prefer_ceil": lambda at: numpy().floor(at + 0.5),
    "floor": lambda at: numpy().floor(at),
    "ceil": lambda at: numpy().ceil(at),
}


@imports("Upsample", known=(1,))
def _(node: Any, x: Any, scales: Any = None) -> Any:
    return _resized(node, x, node.numbers(scales, "scales"), None, "asymmetric", "floor")


@imports("Resize", known=(1, 2, 3))
def _(node: Any, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    if node.opset < 11:  # the scales are the second input
        return _resized(node, x, node.numbers(roi), None, "asymmetric", "floor")
    where = node.get("coordinate_transformation_mode", "half_pixel")
    factors = None if scales is None or not scales.size else node.numbers(scales)
    if where not in PLACES or node.get("antialias", 0):
        raise node.refuse(f"{'antialias' if node.get('antialias', 0) else where} is not done")
    if node.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        factors, sizes = _kept(node, x, node.numbers(sizes)), None
    rounding = node.get("nearest_mode", "round_prefer_floor")
    wanted = None if sizes is None else node.numbers(sizes)
    return _resized(node, x, factors, wanted, where, rounding)


def _kept(node: Any, x: Any, sizes: Any) -> list[float]:
    """A common factor for all axes: the smallest that covers the sizes, or the largest that
    fits."""
    axes = node.get("axes") or range(x.ndim)
    ratios = [m / int(x.shape[axis]) for axis, m in zip(axes, sizes, strict=True)]
    larger = node.get("keep_aspect_ratio_policy") == "not_smaller"
    return [max(ratios) if larger else min(ratios)] * len(ratios)


def _resized(node: Any, x: Any, scales: Any, sizes: Any, where: str, rounding: str) -> Any:
    """An image resized along one axis after the other, by scales or to sizes."""
    axes = [axis % x.ndim for axis in node.get("axes") or range(x.ndim)]
    mode = node.get("mode", "nearest")
    rounds = node.get("keep_aspect_ratio_policy", "stretch") != "stretch"
    for place, axis in enumerate(axes):
        scale = None if scales is None else float(scales[place])
        size: Any = None if sizes is None else sizes[place]
        if scale == 1.0 or (size is not None and size is x.shape[axis]):
            continue
        whole = scale is not None and scale == int(scale) and mode == "nearest" and not rounds
        if whole and (where, rounding) in REPEATED:
            x = np.repeat(x, int(scale or 1), axis=axis)
            continue
        n = int(x.shape[axis])
        length = int(size) if scale is None else n * scale  # not rounded
        m = math.floor(length + 0.5 if rounds else length)
        if m != n or length != n:
            at = PLACES[where](numpy().arange(m), n, m if rounds else length)
            x = _sampled(node, x, axis, at, mode, rounding)
    return x


#: Modes in which the nearest element for an integer scale repeats each element that often.
REPEATED = {
    ("asymmetric", "floor"),
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
}


def _sampled(node: Any, x: Any, axis: int, at: Any, mode: str, rounding: str) -> Any:
    """Interpolate the elements along an axis at fractional positions."""
    last = int(x.shape[axis]) - 1
    if mode == "nearest":
        places = numpy().clip(ROUNDINGS[rounding](at), 0, last).astype("int64")
        return np.take(x, np.array(places), axis=axis)
    first = numpy().floor(at)
    share = at - first
    if mode == "linear":
        at = numpy().clip(at, 0, last)
        first = numpy().floor(at)
        share = at - first
        weights = [1 - share, share]
    else:
        weights = _cubic(share, node.get("cubic_coeff_a", -0.75))
        first = first - 1
    if mode == "cubic" and node.get("exclude_outside", 0):
        inside = [(first + i >= 0) & (first + i <= last) for i in range(4)]
        weights = [numpy().where(a, w, 0) for a, w in zip(inside, weights, strict=True)]
        total = sum(weights)
        weights = [w / total for w in weights]
    shape = tuple(-1 if i == axis else 1 for i in range(x.ndim))
    found: Any = 0
    for i, weight in enumerate(weights):
        places = numpy().clip(first + i, 0, last).astype("int64")
        part = np.take(x, np.array(places), axis=axis)
        found = found + part * np.reshape(np.array(weight, dtype=_floating(x)), shape)
    return found.astype(x.dtype)


def _floating(x: Any) -> Any:
    return x.dtype if x.dtype.is_floating else "float32"


def _cubic(share: Any, a: float) -> list[Any]:
    """The weights of four neighbours (Keys, Cubic convolution interpolation, 1981)."""
    far, near = 1 + share, share

    def outer(t: Any) -> Any:
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    def inner(t: Any) -> Any:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    return [outer(far), inner(near), inner(1 - near), outer(2 - near)]
