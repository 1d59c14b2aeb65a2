"""MXNet 1's operations on images, boxes and positions that few programs use."""

from __future__ import annotations

from itertools import product as pairs
from math import prod
from typing import Any

from gemel import np, npx
from gemel.errors import ShapeError
from gemel.ir.precision import as_written
from gemel.legacy.declare import IMAGES, Written, find, legacy, same, written
from gemel.ops.steering import with_gradient
from gemel.spec import check_axes

# --- boxes and regions ----------------------------------------------------------------------

same(
    npx.box_nms,
    "_contrib_box_nms",
    "_contrib_box_non_maximum_suppression",
    inputs=1,
    outputs=2,
    visible=1,
)
same(npx.box_iou, "_contrib_box_iou", inputs=2)
same(npx.box_encode, "_contrib_box_encode", inputs=6, outputs=2)
same(npx.box_decode, "_contrib_box_decode", inputs=2)
same(npx.bipartite_matching, "_contrib_bipartite_matching", inputs=1, outputs=2)
same(npx.multibox_target, "_contrib_MultiBoxTarget", "_npx_multibox_target", inputs=3, outputs=3)
same(npx.multibox_detection, "_contrib_MultiBoxDetection", "_npx_multibox_detection", inputs=3)
same(npx.roi_align, "_contrib_ROIAlign", inputs=2)
same(npx.index_copy, "_contrib_index_copy", inputs=3)


@written("roi_align", "roi_pooling")
def _(data: Any, rois: Any, pooled_size: Any, **settings: Any) -> Written:
    size = (pooled_size,) * 2 if isinstance(pooled_size, int) else tuple(pooled_size)
    name = "_contrib_ROIAlign" if "aligned" in settings else "ROIPooling"
    return Written(name, (data, rois), {"pooled_size": size, **settings})


@written("box_nms")
def _(data: Any, **settings: Any) -> Written:
    return Written("_contrib_box_nms", (data,), settings, 2)


# --- images ---------------------------------------------------------------------------------


@legacy("_contrib_BilinearResize2D", inputs=2, optional=1)
def bilinear_resize(
    data: Any,
    like: Any = None,
    height: int = 1,
    width: int = 1,
    scale_height: float | None = None,
    scale_width: float | None = None,
    mode: str = "size",
    align_corners: bool = True,
) -> Any:
    """Images resized to a given size, by a factor, or (mode "like") to the size of others."""
    if mode == "like":
        height, width = like.shape[2:]
    elif scale_height is not None:
        return npx.bilinear_resize_2d(
            data, None, None, scale_height, scale_width, align_corners=align_corners
        )
    if mode not in ("size", "like"):
        raise ShapeError(f"BilinearResize2D: mode {mode!r} is not supported; give height and width")
    return npx.bilinear_resize_2d(data, height, width, align_corners=align_corners)


@written("bilinear_resize_2d")
def _(data: Any, **settings: Any) -> Written:
    kept = {name: value for name, value in settings.items() if value is not None}
    return Written("_contrib_BilinearResize2D", (data,), kept)


@legacy("_contrib_AdaptiveAvgPooling2D", inputs=1, axes={"data": IMAGES})
def adaptive_average_pooling(data: Any, output_size: Any = (1, 1)) -> Any:
    """The means of output_size (rows, columns) parts of images (N, C, height, width)."""
    size = (output_size,) if isinstance(output_size, int) else tuple(output_size) or (1,)
    return npx.adaptive_pooling(data, size * 2 if len(size) == 1 else size)


@written("adaptive_pooling")
def _(data: Any, output_size: Any, pool_type: str = "avg", layout: Any = None) -> Written | None:
    from gemel.ops.adaptive import parts_per_axis  # few programs need it

    size = parts_per_axis("adaptive_pooling", output_size, len(data.shape) - 2)
    if pool_type != "avg" or layout not in (None, "NCHW") or len(size) != 2 or None in size:
        return None
    return Written("_contrib_AdaptiveAvgPooling2D", (data,), {"output_size": size})


@legacy("Crop", axes={"data": IMAGES})
def crop(*data: Any, offset: Any = (0, 0), h_w: Any = (0, 0), center_crop: bool = False) -> Any:
    """A part of the first images from `offset` on, as large as the second ones or as `h_w`."""
    height, width = h_w if len(data) == 1 else data[1].shape[2:]
    top, left = offset
    if center_crop:
        top, left = (data[0].shape[2] - height) // 2, (data[0].shape[3] - width) // 2
    return data[0][:, :, top : top + height, left : left + width]


def _axes(value: Any, count: int, default: int) -> tuple[int, ...]:
    return tuple(value) if value else (default,) * count


def _places(channels: int, kernel: tuple[int, ...], dtype: Any) -> Any:
    """Filters that each pick one element of the window, for each channel."""
    size = prod(kernel)
    return np.tile(np.eye(size, dtype=dtype).reshape(size, 1, *kernel), (channels, 1, 1, 1))


@legacy("im2col", axes={"data": IMAGES})
@as_written
def im2col(data: Any, *, kernel: Any, stride: Any = (), dilate: Any = (), pad: Any = ()) -> Any:
    """The windows of images as columns: (N, C * size of the window, windows)."""
    channels = int(data.shape[1])
    found = npx.convolution(
        data,
        _places(channels, tuple(kernel), data.dtype),
        kernel=kernel,
        stride=_axes(stride, 2, 1),
        dilate=_axes(dilate, 2, 1),
        pad=_axes(pad, 2, 0),
        num_filter=channels * prod(kernel),
        num_group=channels,
        no_bias=True,
    )
    return found.reshape(*found.shape[:2], -1)


@legacy("col2im", axes={"data": "N, C * kernel, windows"})
@as_written
def col2im(
    data: Any,
    *,
    output_size: Any,
    kernel: Any,
    stride: Any = (),
    dilate: Any = (),
    pad: Any = (),
) -> Any:
    """The columns of `im2col` summed up in images, at the places they came from."""
    channels = int(data.shape[1]) // prod(kernel)
    strides, dilates, pads = _axes(stride, 2, 1), _axes(dilate, 2, 1), _axes(pad, 2, 0)
    every = list(zip(output_size, kernel, strides, dilates, pads, strict=True))
    windows = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, d, p in every]
    rest = [(n + 2 * p - d * (k - 1) - 1) % s for n, k, s, d, p in every]
    return npx.deconvolution(
        data.reshape(data.shape[0], data.shape[1], *windows),
        _places(channels, tuple(kernel), data.dtype),
        kernel=kernel,
        stride=strides,
        dilate=dilates,
        pad=pads,
        adj=tuple(rest),
        num_filter=channels,
        num_group=channels,
    )


# --- sampling between pixels ----------------------------------------------------------------

#: The axes of positions from -1 to 1.
GRID = "N, 2, height, width"


@legacy("GridGenerator", outputs=2, visible=1)
@as_written
def grid_generator(data: Any, *, transform_type: str, target_shape: Any = (0, 0)) -> Any:
    """Positions (N, 2, height, width) from -1 to 1, from affine maps (N, 6) or shifts in pixels."""
    is_affine = transform_type == "affine"
    check_axes("GridGenerator", "data", data, "N, 6" if is_affine else GRID)
    height, width = target_shape if is_affine else data.shape[2:]
    rows = np.linspace(-1, 1, int(height)).astype(data.dtype).reshape(-1, 1)
    columns = np.linspace(-1, 1, int(width)).astype(data.dtype)
    x, y = columns + rows * 0, rows + columns * 0
    if is_affine:
        places = np.stack([x.reshape(-1), y.reshape(-1), np.ones_like(x).reshape(-1)])
        return np.matmul(data.reshape(-1, 2, 3), places).reshape(-1, 2, height, width)
    steps = np.array([2 / max(width - 1, 1), 2 / max(height - 1, 1)], dtype=data.dtype)
    return data * steps.reshape(1, 2, 1, 1) + np.stack([x, y])


@legacy("BilinearSampler", outputs=2, visible=1, axes={"data": IMAGES, "grid": GRID})
def bilinear_sampler(data: Any, grid: Any) -> Any:
    """Images interpolated at positions between their pixels, 0 outside and NaN at NaN: Jaderberg et
    al., Spatial Transformer Networks, 2015.
    """
    n, channels, height, width = data.shape
    flat = data.reshape(n, channels, -1)
    grid = grid.astype(grid.dtype.floating.accumulate)  # places are fractions of a pixel
    x, y = (grid[:, 0] + 1) * (width - 1) / 2, (grid[:, 1] + 1) * (height - 1) / 2
    left, top = np.floor(x), np.floor(y)
    found: Any = 0
    for right, below in pairs((0, 1), (0, 1)):
        column, row = left + right, top + below
        weight = (1 - np.abs(x - column)) * (1 - np.abs(y - row))
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        at, across = (np.where(inside, each, 0).astype("int64") for each in (row, column))
        place = (at * width + across).reshape(n, 1, -1)
        taken = np.take_along_axis(flat, np.broadcast_to(place, (n, channels, place.shape[2])), 2)
        found = found + taken * np.where(inside, weight, weight * 0).reshape(n, 1, -1)
    return found.astype(data.dtype).reshape(n, channels, *grid.shape[2:])


@legacy("SpatialTransformer", outputs=3, visible=1, axes={"data": IMAGES, "loc": "N, 6"})
def spatial_transformer(
    data: Any,
    loc: Any,
    *,
    target_shape: Any = (0, 0),
    transform_type: str = "affine",
    sampler_type: str = "bilinear",
) -> Any:
    """Images (N, C, height, width) seen through affine maps (N, 6)."""
    wide = loc.astype(loc.dtype.floating.accumulate)  # places are fractions of a pixel
    return bilinear_sampler(
        data,
        grid_generator(wide, transform_type=transform_type, target_shape=target_shape),
    )


# --- positions ------------------------------------------------------------------------------


@legacy("_contrib_boolean_mask", "boolean_mask")
def boolean_mask(data: Any, index: Any, *, axis: int = 0) -> Any:
    """The parts of data along an axis where the index is not 0."""
    return np.compress(np.not_equal(index, 0), data, axis=axis)


@legacy("_contrib_index_array", inputs=1)
def index_array(data: Any, axes: Any = None) -> Any:
    """The indices of each element, of int64: (*data's shape, number of axes)."""
    shape = tuple(data.shape)
    chosen = range(len(shape)) if axes is None else [axis % len(shape) for axis in axes]
    lines = [
        np.arange(shape[axis], dtype="int64").reshape(
            [-1 if i == axis else 1 for i in range(len(shape))]
        )
        for axis in chosen
    ]
    return np.stack([np.broadcast_to(line, shape) for line in lines], axis=-1)


@legacy("_ravel_multi_index", "ravel_multi_index")
def ravel_multi_index(data: Any, *, shape: Any) -> Any:
    """Indices (axes, ...) into an array of this shape as flat positions."""
    found: Any = 0
    for row, extent in enumerate(shape):
        found = found * extent + data[row]
    return found


@legacy("_unravel_index", "unravel_index")
def unravel_index(data: Any, *, shape: Any) -> Any:
    """Flat positions as indices (axes, ...) into an array of this shape."""
    steps = [prod(shape[place + 1 :]) for place in range(len(shape))]
    rows = [np.floor(data / step) % n for step, n in zip(steps, shape, strict=True)]
    return np.stack(rows).astype(data.dtype)


# --- arithmetic -----------------------------------------------------------------------------


@legacy("_contrib_quadratic", inputs=1)
def quadratic(data: Any, a: float = 0.0, b: float = 0.0, c: float = 0.0) -> Any:
    """a * data**2 + b * data + c."""
    return a * data * data + b * data + c


@legacy("_contrib_gradientmultiplier", inputs=1)
def gradient_multiplier(data: Any, scalar: float = 1.0) -> Any:
    """data itself, with its gradient multiplied by a number."""
    return with_gradient(data, data, np.full_like(data, scalar), scaled=True)


def _straight(name: str, of: str) -> None:
    @legacy(name)
    def operation(data: Any) -> Any:
        """The operation, with a gradient of ones."""
        return with_gradient(find(of)(data), data, np.ones_like(data), scaled=True)


_straight("_contrib_round_ste", "round")
_straight("_contrib_sign_ste", "sign")


@legacy("khatri_rao", axes={"data": "rows, columns"})
def khatri_rao(*data: Any) -> Any:
    """The Kronecker products of the matrices' columns."""
    found = data[0]
    for each in data[1:]:
        found = (found[:, None] * each[None]).reshape(-1, each.shape[1])
    return found


@legacy("multi_sum_sq")
def multi_sum_sq(*data: Any, num_arrays: int = 0) -> Any:
    """The sum of squares of each array."""
    return np.stack([np.square(each).sum() for each in data])


@legacy("all_finite", inputs=1)
def all_finite(data: Any, init_output: bool = True) -> Any:
    """Whether all numbers are finite: 1 or 0."""
    return np.isfinite(data).all().astype("float32").reshape(1)
