"""Boxes in images: anchors, overlaps, and boxes as offsets from anchors.

A box is (left, top, right, bottom), format "corner", or (x, y, width, height) around its centre,
format "center".
"""

from __future__ import annotations

from typing import Any

from gemel.errors import ArgumentError, ShapeError, unknown_name
from gemel.ir.keywords import number
from gemel.ir.public import Array, function
from gemel.ops import elementwise
from gemel.ops.elementwise import cast, exp, iota, limit, log, minimum, where
from gemel.ops.layouts import array_of
from gemel.ops.selection import take_along_axis
from gemel.ops.shape import broadcast_to, expand_dims, operand, reshape, stack
from gemel.spec import product, sequence

FORMATS = ("corner", "center")
VARIANCES = (0.1, 0.1, 0.2, 0.2)


def numbers(name: str, kind: str, given: Any, count: int = 0) -> tuple[float, ...]:
    """Several numbers, `count` of them if that is given. Raises `ShapeError` or `TypeError`."""
    found = tuple(number(name, kind, each) for each in sequence(name, kind, given))
    if len(found) != (count or max(len(found), 1)):
        wanted = count or "at least 1"
        raise ShapeError(f"{name}: {kind} {given} must be {wanted} numbers")
    return found


def check_format(name: str, *formats: str) -> None:
    for given in formats:
        if given not in FORMATS:
            raise unknown_name(f"format of {name}", given, FORMATS)


def _boxes(name: str, kind: str, given: Any) -> Any:
    """An argument as an array of rows of 4 numbers. Raises `ShapeError`."""
    found = array_of(name, kind, given, "..., 4")
    if not found.shape[-1] == 4:
        raise ShapeError(f"{name}: {kind} {list(found.shape)} must have 4 numbers a box")
    return found


def sides(boxes: Any, given: str) -> tuple[Any, ...]:
    """left, top, right and bottom of boxes along the last axis."""
    a, b, c, d = (boxes[..., i] for i in range(4))
    return (a, b, c, d) if given == "corner" else (a - c / 2, b - d / 2, a + c / 2, b + d / 2)


def centred(boxes: Any, given: str) -> tuple[Any, ...]:
    """x, y, width and height of boxes along the last axis."""
    a, b, c, d = (boxes[..., i] for i in range(4))
    return (a, b, c, d) if given == "center" else ((a + c) / 2, (b + d) / 2, c - a, d - b)


@function(public="npx")
def box_iou(lhs: Any, rhs: Any, format: str = "corner") -> Array:
    """Intersection over union of boxes, 0 to 1.

    lhs (..., 4) and rhs (..., 4) give (..., ...): every box of lhs with every box of rhs.

    >>> npx.box_iou(np.array([[0.0, 0.0, 2.0, 2.0]]), np.array([[1.0, 1.0, 2.0, 2.0]]))
    """
    check_format("box_iou", format)
    lhs, rhs = operand(lhs), operand(rhs)
    if not (len(lhs.shape) and len(rhs.shape) and lhs.shape[-1] == 4 and rhs.shape[-1] == 4):
        raise ShapeError(f"box_iou: {list(lhs.shape)} and {list(rhs.shape)} must end in 4")
    lead, rest = tuple(lhs.shape[:-1]), tuple(rhs.shape[:-1])
    found = intersection_over_union(
        sides(reshape(lhs, shape=(product(lead), 1, 4)), format),
        sides(reshape(rhs, shape=(1, product(rest), 4)), format),
        elementwise,
    )
    return reshape(found, shape=(*lead, *rest))


def intersection_over_union(a: tuple[Any, ...], b: tuple[Any, ...], xp: Any) -> Any:
    """The overlap, 0 to 1, of boxes given by their sides (`sides`), whose shapes broadcast.

    `xp` is the module whose functions compute it: NumPy, or `gemel.ops.elementwise`.
    """
    width = xp.maximum(xp.minimum(a[2], b[2]) - xp.maximum(a[0], b[0]), 0.0)
    height = xp.maximum(xp.minimum(a[3], b[3]) - xp.maximum(a[1], b[1]), 0.0)
    shared = width * height
    areas = [xp.maximum(x[2] - x[0], 0.0) * xp.maximum(x[3] - x[1], 0.0) for x in (a, b)]
    total = areas[0] + areas[1] - shared
    return xp.where(total > 0, shared / xp.where(total > 0, total, 1.0), 0.0)


@function(public="npx")
def box_encode(
    samples: Any,
    matches: Any,
    anchors: Any,
    refs: Any,
    means: Any = (0.0, 0.0, 0.0, 0.0),
    stds: Any = VARIANCES,
) -> Array | tuple[Any, ...]:
    """The targets with which a network turns anchors (B, N, 4) into the boxes refs (B, M, 4).

    matches (B, N) is the index of each anchor's box; samples (B, N) is above 0.5 where the anchor
    counts. The results are offsets (B, N, 4), 0 where the anchor does not count, and a mask of the
    same shape. Boxes are corners. Girshick et al., R-CNN, CVPR 2014.

    >>> anchors, boxes = np.array([[[0.0, 0.0, 2.0, 2.0]]]), np.array([[[0.0, 0.0, 4.0, 4.0]]])
    >>> npx.box_encode(np.ones((1, 1)), np.zeros((1, 1)), anchors, boxes)
    """
    anchors, refs = operand(anchors), operand(refs)
    place = expand_dims(cast(operand(matches), dtype="int64"), -1)
    chosen = take_along_axis(refs, broadcast_to(place, shape=(*place.shape[:2], 4)), axis=1)
    offsets = _offsets(anchors, chosen, tuple(stds), tuple(means))
    counts = expand_dims(operand(samples) > 0.5, -1)
    mask = broadcast_to(cast(counts, dtype=offsets.dtype), shape=offsets.shape)
    return where(counts, offsets, 0.0), mask


def _offsets(anchors: Any, boxes: Any, stds: Any, means: Any = (0.0,) * 4) -> Any:
    """The offsets of boxes from anchors (both as corners), relative to the anchors' sizes, less
    the means and divided by the standard deviations."""
    x, y, width, height = centred(anchors, "corner")
    u, v, wide, high = centred(boxes, "corner")
    found = ((u - x) / width, (v - y) / height, log(wide / width), log(high / height))
    pairs = zip(found, means, stds, strict=True)
    return stack([(value - mean) / std for value, mean, std in pairs], axis=-1)


@function(public="npx")
def box_decode(
    data: Any,
    anchors: Any,
    std0: float = 1.0,
    std1: float = 1.0,
    std2: float = 1.0,
    std3: float = 1.0,
    clip: float = -1.0,
    format: str = "center",
) -> Array:
    """The boxes (B, N, 4), as corners, from offsets (B, N, 4) relative to anchors (1, N, 4).

    `format` is that of the anchors; above 0, `clip` limits the logarithms of what widths and
    heights are multiplied by.

    >>> npx.box_decode(np.zeros((1, 1, 4)), np.array([[[1.0, 1.0, 2.0, 2.0]]]))
    """
    check_format("box_decode", format)
    data, anchors = (
        _boxes("box_decode", kind, each) for kind, each in (("data", data), ("anchors", anchors))
    )
    x, y, width, height = centred(anchors, format)
    dx, dy, dw, dh = (data[..., i] * s for i, s in enumerate((std0, std1, std2, std3)))
    if clip > 0:
        dw, dh = minimum(dw, clip), minimum(dh, clip)
    u, v = dx * width + x, dy * height + y
    wide, high = exp(dw) * width / 2, exp(dh) * height / 2
    return stack([u - wide, v - high, u + wide, v + high], axis=-1)


@function(public="npx")
def multibox_prior(
    data: Any,
    sizes: Any = (1.0,),
    ratios: Any = (1.0,),
    clip: bool = False,
    steps: Any = (-1.0, -1.0),
    offsets: Any = (0.5, 0.5),
) -> Array:
    """Anchors around each pixel of data (N, C, height, width): (1, height * width * kinds, 4).

    The kinds are: each size with the first ratio, then the first size with each other ratio; sizes
    are shares of the image's height, a ratio is width over height. Anchors are corners, in shares
    of the image; with `clip` they end at its borders. `steps` are the distances of pixels, 1 /
    height and 1 / width unless given, `offsets` where in a pixel its centre is; y comes first.
    Liu et al., SSD, ECCV 2016.

    >>> npx.multibox_prior(np.zeros((1, 1, 1, 2)), sizes=(0.5,))
    """
    name = "multibox_prior"
    data = array_of(name, "data", data, "N, C, height, width")
    sizes, ratios = (numbers(name, *each) for each in (("sizes", sizes), ("ratios", ratios)))
    steps, offsets = (numbers(name, *each, 2) for each in (("steps", steps), ("offsets", offsets)))
    height, width = int(data.shape[2]), int(data.shape[3])
    kinds = [(size, ratios[0]) for size in sizes] + [(sizes[0], ratio) for ratio in ratios[1:]]
    if not all(ratio > 0 for ratio in ratios):
        raise ArgumentError(f"{name}: ratios {ratios} must be above 0")
    dtype = data.dtype.floating
    lines = []
    for axis, extent in ((0, height), (1, width)):
        step = steps[axis] if steps[axis] > 0 else 1.0 / (extent or 1)
        number = cast(iota(shape=(extent,), axis=0, dtype="int64"), dtype=dtype)
        shape = (extent, 1, 1) if axis == 0 else (1, extent, 1)
        lines.append(reshape((number + offsets[axis]) * step, shape=shape))
    wide = [size * height / (width or 1) * ratio**0.5 / 2 for size, ratio in kinds]
    high = [size / ratio**0.5 / 2 for size, ratio in kinds]
    halves = [cast(operand(each), dtype=dtype) for each in (wide, high)]
    corners = [sign * half for sign in (-1.0, 1.0) for half in halves]
    shape = (height, width, len(kinds))
    placed = [
        broadcast_to(lines[1 - i % 2] + corner, shape=shape) for i, corner in enumerate(corners)
    ]
    found = reshape(stack(placed, axis=-1), shape=(1, product(shape), 4))
    return limit(found, 0.0, 1.0) if clip else found
