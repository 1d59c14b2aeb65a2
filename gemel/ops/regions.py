"""Pooling of regions of images to one size."""

from __future__ import annotations

from math import ceil, floor
from typing import Any

from gemel.errors import ArrayIndexError, ShapeError
from gemel.ir.declare import op
from gemel.ir.keywords import number
from gemel.ir.precision import as_written
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.convolution import per_axis
from gemel.ops.elementwise import cast, iota, maximum, where
from gemel.ops.shape import expand_dims, operand, reshape
from gemel.ranges import counted
from gemel.spec import Spec, product, whole


@op(fails=True)
def region_peaks(x: Any, rois: Any, *, pooled: Any, scale: float) -> Any:
    """The flat position of the largest element of each bin of each region, or -1."""
    np = numpy()
    images, channels, height, width = x.shape
    high, wide = pooled
    found = np.full((len(rois), channels, high, wide), -1, "int64")
    for n, roi in enumerate(rois.astype("float64")):
        image = int(roi[0])
        if image < 0:
            continue
        if image >= images:
            raise ArrayIndexError(
                f"roi_pooling: a region names image {image}, but there are {images} images"
            )
        left, top, right, bottom = (
            int(np.floor(abs(v) + 0.5) * np.sign(v)) for v in roi[1:5] * scale
        )
        lines = _bins(top, bottom, high, height), _bins(left, right, wide, width)
        for i, (y0, y1) in enumerate(lines[0]):
            for j, (x0, x1) in enumerate(lines[1]):
                part = x[image, :, y0:y1, x0:x1]
                if part.size:
                    rows, columns = divmod(part.reshape(channels, -1).argmax(1), x1 - x0)
                    place = (image * channels + np.arange(channels)) * height + y0 + rows
                    found[n, :, i, j] = place * width + x0 + columns
    return found


def _bins(first: int, last: int, count: int, extent: int) -> list[tuple[int, int]]:
    """Where the bins of a region begin and end along an axis; they may share elements."""
    size = max(last - first + 1, 1) / count
    edges = ((floor(n * size) + first, ceil((n + 1) * size) + first) for n in range(count))
    return [(min(max(a, 0), extent), min(max(b, 0), extent)) for a, b in edges]


@region_peaks.spec
def _(x: Spec, rois: Spec, *, pooled: Any, scale: float) -> Spec:
    _check_regions("roi_pooling", x, rois)
    return Spec((rois.shape[0], x.shape[1], *pooled), "int64")


def _check_regions(name: str, x: Spec, rois: Spec) -> None:
    if x.ndim != 4 or rois.ndim != 2 or not rois.shape[1] == 5:
        raise ShapeError(f"{name}: {x} must be (N, C, height, width) and rois {rois} (regions, 5)")


def _pair(name: str, value: Any) -> tuple[int, int]:
    first, second = per_axis(name, "pooled_size", value, 2, 1)
    return counted(name, "pooled_size", first), counted(name, "pooled_size", second)


@function(public="npx")
def roi_pooling(data: Any, rois: Any, pooled_size: Any, spatial_scale: float) -> Array:
    """The largest elements of pooled_size (rows, columns) bins of regions of data (N, C, height,
    width): (regions, C, *pooled_size).

    rois (regions, 5) are rows image, left, top, right, bottom; their corners, which belong to
    them, are multiplied by `spatial_scale` and rounded. Empty bins, and regions of images below 0,
    are 0. Gradients go to data. Girshick, Fast R-CNN, ICCV 2015.

    >>> npx.roi_pooling(np.arange(16.0).reshape(1, 1, 4, 4), np.array([[0, 0, 0, 3, 3]]), 2, 1.0)
    """
    data = operand(data)
    peaks = region_peaks(
        data,
        operand(rois),
        pooled=_pair("roi_pooling", pooled_size),
        scale=number("roi_pooling", "spatial_scale", spatial_scale),
    )
    found = reshape(data, shape=(product(data.shape),)).take(maximum(peaks, 0), axis=0)
    return where(peaks >= 0, found, 0)


@op()
def region_weights(
    rois: Any, *, axis: int, extent: Any, bins: int, scale: float, samples: int, aligned: bool
) -> Any:
    """The weight of each line of an image for each bin of the regions, along an axis."""
    np = numpy()
    found = np.zeros((len(rois), bins, extent))
    for n, roi in enumerate(rois.astype("float64")):
        first, last = roi[[2 - axis, 4 - axis]] * scale - (0.5 if aligned else 0)
        span = last - first if aligned else max(last - first, 1.0)
        size = span / bins
        count = samples if samples > 0 else max(int(np.ceil(size)), 1)
        for place, step in np.ndindex(bins, count):
            at = first + (place + (step + 0.5) / count) * size
            if -1 <= at <= extent:
                at = min(max(at, 0.0), extent - 1.0)
                low = int(at)
                found[n, place, low] += (1 - at + low) / count
                found[n, place, min(low + 1, extent - 1)] += (at - low) / count
    return found.astype(rois.dtype)


@region_weights.spec
def _(rois: Spec, *, extent: Any, bins: int, **_: Any) -> Spec:
    return Spec((rois.shape[0], bins, extent), rois.dtype.floating)


@region_weights.gradient
def _(g: Any, y: Any, rois: Any, **_: Any) -> Any:
    return (None,)


@function(public="npx")
@as_written
def roi_align(
    data: Any,
    rois: Any,
    pooled_size: Any,
    spatial_scale: float,
    sample_ratio: int = -1,
    position_sensitive: bool = False,
    aligned: bool = False,
) -> Array:
    """The means of pooled_size (rows, columns) bins of regions of data (N, C, height, width),
    sampled between pixels: (regions, C, *pooled_size).

    rois (regions, 5) are rows image, left, top, right, bottom, multiplied by `spatial_scale`. Each
    bin has `sample_ratio` samples along each axis, or by default as many as it has pixels. With
    `aligned` pixels lie half a pixel further, as they do. With `position_sensitive` each bin has
    channels of its own. Regions of images below 0 are 0. Gradients go to data. He et al., Mask
    R-CNN, ICCV 2017.

    >>> npx.roi_align(np.arange(16.0).reshape(1, 1, 4, 4), np.array([[0.0, 0, 0, 3, 3]]), 2, 1.0)
    """
    data, rois = operand(data), operand(rois)
    _check_regions("roi_align", Spec(data.shape, data.dtype), Spec(rois.shape, rois.dtype))
    bins, dtype = _pair("roi_align", pooled_size), data.dtype.floating
    wide = cast(rois, dtype=dtype.accumulate)  # places are fractions of a pixel
    options = {
        "scale": number("roi_align", "spatial_scale", spatial_scale),
        "samples": whole("roi_align", "sample_ratio", sample_ratio),
        "aligned": bool(aligned),
    }
    rows, columns = (
        region_weights(wide, axis=axis, extent=data.shape[2 + axis], bins=bins[axis], **options)
        for axis in (0, 1)
    )
    rows, columns = (cast(each, dtype=dtype) for each in (rows, columns))
    image = cast(rois[:, 0], dtype="int64")
    chosen = data.take(maximum(image, 0), axis=0)
    found = expand_dims(rows, 1) @ chosen @ expand_dims(columns, 1).swapaxes(-1, -2)
    if position_sensitive:
        found = _own_channels(found, *bins)
    return where(reshape(image >= 0, shape=(-1, 1, 1, 1)), found, 0)


def _own_channels(x: Any, rows: int, columns: int) -> Any:
    """For each bin its own C channels, from (regions, C * rows * columns, rows, columns)."""
    regions, channels = x.shape[0], x.shape[1] // (rows * columns)
    if not x.shape[1] == channels * rows * columns:
        raise ShapeError(f"roi_align: {x.shape[1]} channels do not divide into {rows} x {columns}")
    flat = reshape(x, shape=(regions, channels, rows * columns, rows * columns))
    number = iota(shape=(rows * columns,), axis=0, dtype="int64")
    own = expand_dims(number, -1) == number
    return reshape(where(own, flat, 0).sum(axis=3), shape=(regions, channels, rows, columns))
