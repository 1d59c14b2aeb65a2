"""Deformable convolutions: learned offsets shift the points at which a kernel reads the image.

Dai et al., Deformable convolutional networks, ICCV 2017; with weights for the values read: Zhu et
al., Deformable ConvNets v2, CVPR 2019.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gemel.errors import ShapeError
from gemel.ir.public import Array, function
from gemel.ops import elementwise as ops
from gemel.ops.convolution import per_axis
from gemel.ops.interpolation import interpolated
from gemel.ops.layouts import array_of
from gemel.ops.linalg import matmul
from gemel.ops.selection import take_along_axis
from gemel.ops.shape import broadcast_to, expand_dims, operand, reshape, transpose
from gemel.ranges import counted
from gemel.spec import product


class _Walk(NamedTuple):
    """How kernels move, and the number of groups of channels and of offsets."""

    name: str
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilate: tuple[int, ...]
    pad: tuple[int, ...]
    groups: int
    shifts: int

    def places(self, data: Any) -> tuple[int, ...]:
        """The rows and columns of positions of the kernel. Raises `ShapeError`."""
        steps = zip(data.shape[2:], self.kernel, self.stride, self.dilate, self.pad, strict=True)
        found = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, d, p in steps)
        if min(found) < 1:
            raise ShapeError(f"{self.name}: the kernel {self.kernel} is larger than {data.shape}")
        return found

    def check(self, data: Any, weight: Any, **shifts: tuple[Any, int]) -> None:
        """Raises `ShapeError` unless all arrays fit together."""
        if len(data.shape) != 4 or len(weight.shape) != 4:
            raise ShapeError(f"{self.name}: data {list(data.shape)} must be (N, C, height, width)")
        channels = data.shape[1]
        if channels % self.groups or channels % self.shifts or weight.shape[0] % self.groups:
            raise ShapeError(
                f"{self.name}: {channels} channels and {weight.shape[0]} filters must be "
                f"multiples of {self.groups} groups, and the channels also of {self.shifts} "
                "groups of shifts"
            )
        wanted = (weight.shape[0], channels // self.groups, *self.kernel)
        if tuple(weight.shape) != wanted:
            raise ShapeError(f"{self.name}: weight {list(weight.shape)} must be {list(wanted)}")
        for name, (each, per_place) in shifts.items():
            count = per_place * self.shifts * product(self.kernel)
            shape = (data.shape[0], count, *self.places(data))
            if tuple(each.shape) != shape:
                raise ShapeError(f"{self.name}: {name} {list(each.shape)} must be {list(shape)}")


def _line(count: int, step: int, dtype: Any) -> Any:
    """`count` numbers 0, step, 2 * step, ..."""
    return ops.cast(ops.iota(shape=(count,), axis=0, dtype="int64"), dtype=dtype) * step


def _grid(walk: _Walk, data: Any, axis: int) -> Any:
    """Where the kernel reads unshifted, along height (0) or width: (*kernel, *places) or ones.

    It is in the dtype of sums: the offsets are fractions of a pixel.
    """
    dtype = data.dtype.floating.accumulate
    within, across = [1, 1, 1, 1], [1, 1, 1, 1]
    within[axis], across[axis + 2] = walk.kernel[axis], walk.places(data)[axis]
    point = _line(within[axis], walk.dilate[axis], dtype)
    place = _line(across[axis + 2], walk.stride[axis], dtype) - walk.pad[axis]
    return reshape(point, shape=tuple(within)) + reshape(place, shape=tuple(across))


def _sampled(walk: _Walk, data: Any, offset: Any, edge: bool) -> Any:
    """The values the kernel reads: (N, offset groups, channels of each, points * positions).

    Values outside of the image are 0. Within one pixel of the border, values fade to 0, as in the
    program of the second paper. With `edge`, a point up to one pixel past the last row or column
    has its value instead, as in the program of the first paper.
    """
    n, channels, high, wide = data.shape
    groups = walk.shifts
    shifts = reshape(offset, shape=(n, groups, *walk.kernel, 2, *walk.places(data)))
    y, x = (_grid(walk, data, axis) + shifts[:, :, :, :, axis] for axis in (0, 1))
    inside = (y < high) & (x < wide)
    inside = inside & ((y >= 0) & (x >= 0) if edge else (y > -1) & (x > -1))
    if edge:
        y, x = ops.limit(y, 0.0, high - 1.0), ops.limit(x, 0.0, wide - 1.0)
    images = reshape(data, shape=(n * groups, channels // groups, high * wide))
    pixels = reshape(transpose(images, axes=(0, 2, 1)), shape=(-1, channels // groups))
    number = ops.iota(shape=(n * groups,), axis=0, dtype="int64")
    number = reshape(number, shape=(n, groups, 1, 1, 1, 1))
    found = interpolated(pixels, number, y, x, high, wide, inside)
    found = reshape(found, shape=(n, groups, -1, channels // groups))
    return transpose(found, axes=(0, 1, 3, 2))


def _convolved(walk: _Walk, data: Any, read: Any, weight: Any, bias: Any) -> Any:
    """The values read times the kernels, summed."""
    n, channels = data.shape[:2]
    high, wide = walk.places(data)
    points, groups, filters = product(walk.kernel), walk.groups, weight.shape[0]
    columns = reshape(read, shape=(n, groups, channels // groups * points, high * wide))
    kernels = reshape(weight, shape=(groups, filters // groups, channels // groups * points))
    found = reshape(matmul(kernels, columns), shape=(n, filters, high, wide))
    return found if bias is None else found + reshape(operand(bias), shape=(filters, 1, 1))


def _walk(
    name: str, kernel: Any, stride: Any, dilate: Any, pad: Any, groups: int, shifts: int
) -> _Walk:
    return _Walk(
        name,
        kernel=per_axis(name, "kernel", kernel, 2, 1),
        stride=per_axis(name, "stride", stride, 2, 1),
        dilate=per_axis(name, "dilate", dilate, 2, 1),
        pad=per_axis(name, "pad", pad, 2, 0),
        groups=counted(name, "num_group", groups),
        shifts=counted(name, "num_deformable_group", shifts),
    )


def _check_layout(name: str, layout: str | None) -> None:
    if layout is not None and str(layout) != "NCHW":
        raise ShapeError(f"{name}: layout {layout!r} must be 'NCHW'; transpose the arrays")


@function(public="npx")
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
    no_bias: bool = False,
    layout: str | None = None,
) -> Array:
    """Convolution of images (N, C, height, width) that reads shifted pixels, mixed linearly.

    `offset` is (N, 2 * num_deformable_group * points, *places): for each group of channels, point
    of the kernel and place how far below and to the right of it is read. weight is (num_filter,
    C / num_group, *kernel); without shifts the result is `convolution`'s. `workspace` changes
    nothing here. Dai et al., Deformable convolutional networks, ICCV 2017.

    >>> image, still = np.arange(9.0).reshape(1, 1, 3, 3), np.zeros((1, 8, 2, 2))
    >>> npx.deformable_convolution(image, still, np.ones((1, 1, 2, 2)), kernel=(2, 2))
    """
    name = "deformable_convolution"
    _check_layout(name, layout)
    data, offset, weight = operand(data), operand(offset), operand(weight)
    walk = _walk(name, kernel, stride, dilate, pad, num_group, num_deformable_group)
    walk.check(data, weight, offset=(offset, 2))
    read = _sampled(walk, data, offset, edge=True)
    return _convolved(walk, data, read, weight, None if no_bias else bias)


@function(public="npx")
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
    no_bias: bool = False,
    im2col_step: int = 64,
    layout: str | None = None,
) -> Array:
    """`deformable_convolution` whose every read pixel is multiplied by a number of `mask`.

    `mask` is (N, num_deformable_group * points, *places). `workspace` and `im2col_step` change
    nothing here. Zhu et al., Deformable ConvNets v2, CVPR 2019.

    >>> image, still = np.arange(9.0).reshape(1, 1, 3, 3), np.zeros((1, 8, 2, 2))
    >>> half, kernel = np.full((1, 4, 2, 2), 0.5), np.ones((1, 1, 2, 2))
    >>> npx.modulated_deformable_convolution(image, still, half, kernel, kernel=(2, 2))
    """
    name = "modulated_deformable_convolution"
    _check_layout(name, layout)
    data, offset, mask, weight = operand(data), operand(offset), operand(mask), operand(weight)
    walk = _walk(name, kernel, stride, dilate, pad, num_group, num_deformable_group)
    walk.check(data, weight, offset=(offset, 2), mask=(mask, 1))
    read = _sampled(walk, data, offset, edge=False)
    read = read * reshape(mask, shape=(data.shape[0], num_deformable_group, 1, -1))
    return _convolved(walk, data, read, weight, None if no_bias else bias)


# --- attention within a sliding window --------------------------------------------------------


def _window(name: str, w: int, symmetric: bool) -> list[int]:
    w = counted(name, "w", w)
    return list(range(-w, w + 1 if symmetric else 1))


def _neighbours(length: int, dilation: Any, window: list[int]) -> tuple[Any, Any]:
    """The positions that each position of each head attends to, and whether they are in the row.

    Both are (length, heads, window).
    """
    steps = ops.cast(operand(window), dtype="int64")
    reach = ops.cast(expand_dims(operand(dilation), 1), dtype="int64") * steps
    place = reshape(ops.iota(shape=(length,), axis=0, dtype="int64"), shape=(-1, 1, 1)) + reach
    return ops.limit(place, 0, length - 1), (place >= 0) & (place < length)


def _looked_at(x: Any, places: Any) -> Any:
    """x (B, L, heads, D) at these positions: (B, heads, L * window, D)."""
    batch, _, heads, size = x.shape
    rows = reshape(transpose(places, axes=(1, 0, 2)), shape=(1, heads, -1, 1))
    rows = broadcast_to(rows, shape=(batch, heads, rows.shape[2], size))
    return take_along_axis(transpose(x, axes=(0, 2, 1, 3)), rows, axis=2)


@function(public="npx")
def sldwin_atten_score(
    query: Any, key: Any, dilation: Any, w: int, symmetric: bool = True
) -> Array:
    """How well each query fits the keys near it, (B, L, heads, window).

    query and key are (B, L, heads, D). A place sees those up to w steps before it, and after it
    if `symmetric`, steps of its head's `dilation` (heads,); beyond the row the score is 0. Beltagy
    et al., Longformer, 2020.

    >>> x = np.ones((1, 3, 1, 2))
    >>> npx.sldwin_atten_score(x, x, np.array([1], dtype="int32"), w=1).shape
    """
    query, key = (
        array_of("sldwin_atten_score", kind, each, "B, L, heads, D")
        for kind, each in (("query", query), ("key", key))
    )
    window = _window("sldwin_atten_score", w, symmetric)
    batch, length, heads, size = query.shape
    places, inside = _neighbours(length, dilation, window)
    seen = reshape(_looked_at(key, places), shape=(batch, heads, length, len(window), size))
    rows = reshape(transpose(query, axes=(0, 2, 1, 3)), shape=(batch, heads, length, size, 1))
    found = reshape(matmul(seen, rows), shape=(batch, heads, length, len(window)))
    return ops.where(inside, transpose(found, axes=(0, 2, 1, 3)), 0)


@function(public="npx")
def sldwin_atten_context(
    score: Any, value: Any, dilation: Any, w: int, symmetric: bool = True
) -> Array:
    """The sum of the values (B, L, heads, D) each place sees, weighed by its scores.

    score is (B, L, heads, window), see `sldwin_atten_score`.

    >>> one = np.array([1], dtype="int32")
    >>> npx.sldwin_atten_context(np.ones((1, 3, 1, 3)), np.ones((1, 3, 1, 2)), one, w=1)
    """
    score = array_of("sldwin_atten_context", "score", score, "B, L, heads, window")
    value = array_of("sldwin_atten_context", "value", value, "B, L, heads, D")
    window = _window("sldwin_atten_context", w, symmetric)
    batch, length, heads, size = value.shape
    places, inside = _neighbours(length, dilation, window)
    seen = reshape(_looked_at(value, places), shape=(batch, heads, length, len(window), size))
    weights = transpose(ops.where(inside, score, 0), axes=(0, 2, 1, 3))
    found = matmul(reshape(weights, shape=(batch, heads, length, 1, len(window))), seen)
    return transpose(reshape(found, shape=(batch, heads, length, size)), axes=(0, 2, 1, 3))


@function(public="npx")
def sldwin_atten_mask_like(
    score: Any, dilation: Any, valid_length: Any, w: int, symmetric: bool = True
) -> Array:
    """1 where a place and what it sees both lie before `valid_length` (B,), else 0; like score.

    >>> one, three = np.array([1], dtype="int32"), np.array([3], dtype="int32")
    >>> npx.sldwin_atten_mask_like(np.ones((1, 4, 1, 3)), one, three, w=1)
    """
    score = array_of("sldwin_atten_mask_like", "score", score, "B, L, heads, window")
    window = _window("sldwin_atten_mask_like", w, symmetric)
    length = score.shape[1]
    places, inside = _neighbours(length, dilation, window)
    valid = reshape(ops.cast(operand(valid_length), dtype="int64"), shape=(-1, 1, 1, 1))
    own = reshape(ops.iota(shape=(length,), axis=0, dtype="int64"), shape=(-1, 1, 1))
    return ops.cast(inside & (places < valid) & (own < valid), dtype=score.dtype)
