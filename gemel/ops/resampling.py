"""Images resized by weighting several pixels, and rotated images."""

from __future__ import annotations

from math import ceil, floor, pi, sin
from typing import Any

from gemel.errors import ArgumentError, ShapeError
from gemel.extent import NUMBER
from gemel.ir.above import above
from gemel.ir.public import Array, function
from gemel.ops import elementwise as ops
from gemel.ops.indexing import gather_inside
from gemel.ops.interpolation import interpolated
from gemel.ops.reduction import in_dtype, widened
from gemel.ops.shape import expand_dims, operand, reshape, transpose

#: The numbers that `resize` takes as `interp`, and how many pixels on each side they weight.
CUBIC, AREA, LANCZOS = 2, 3, 4
REACH = {CUBIC: 2, LANCZOS: 4}


def _cubic(d: float) -> float:
    """Keys, Cubic convolution interpolation, IEEE ASSP 1981, with a = -0.75 as in OpenCV."""
    a, d = -0.75, abs(d)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((d - 5) * d + 8) * d * a - 4 * a if d < 2 else 0.0


def _lanczos(d: float) -> float:
    """Duchon, Lanczos filtering in one and two dimensions, 1979: a = 4."""
    if d == 0:
        return 1.0
    return sin(pi * d) * sin(pi * d / 4) / (pi * d) ** 2 * 4 if abs(d) < 4 else 0.0


def _taps(old: int, size: int, interp: int, shrinks: bool) -> list[list[tuple[int, float]]]:
    """For each new line, the old lines it is made of and their weights, which add up to 1."""
    scale = old / size
    found = []
    for line in range(size):
        if interp != AREA:
            centre = (line + 0.5) * scale - 0.5
            weigh, reach = (_cubic if interp == CUBIC else _lanczos), REACH[interp]
            near = range(floor(centre) - reach + 1, floor(centre) + reach + 1)
            taps = [(min(max(n, 0), old - 1), weigh(centre - n)) for n in near]
        elif shrinks:
            begin, end = line * scale, min((line + 1) * scale, old)
            inside = range(floor(begin), ceil(end - 1e-9))
            taps = [(n, min(n + 1, end) - max(n, begin)) for n in inside]
        else:
            first = floor(line * scale)
            share = max(line + 1 - (first + 1) / scale, 0.0) % 1.0
            taps = [(first, 1 - share), (min(first + 1, old - 1), share)]
        total = sum(weight for _, weight in taps)
        found.append([(n, weight / total) for n, weight in taps])
    return found


def weighed(x: Any, axis: int, size: int, interp: int, shrinks: bool) -> Any:
    """Floating images with `size` lines along an axis, each made of several."""
    taps = _taps(int(x.shape[axis]), size, interp, shrinks)
    most = max(map(len, taps))
    full = [each + [(0, 0.0)] * (most - len(each)) for each in taps]
    shape = (size, *[1] * (len(x.shape) - axis - 1))
    found, own, x = None, x.dtype, widened(x)
    for column in zip(*full, strict=True):
        numbers, weights = zip(*column, strict=True)
        weight = ops.cast(operand(list(weights), (x,)), dtype=x.dtype)
        part = gather_inside(x, above.index_item(numbers, x), axis=axis) * reshape(
            weight, shape=shape
        )
        found = part if found is None else found + part
    return in_dtype(found, own)


@function(public="npx.image")
def rotate(
    data: Any, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False
) -> Array:
    """Floating images (C, H, W) turned about their middle, mixing linearly; beyond them is 0.

    A batch (N, C, H, W) may have an angle for each. `zoom_in` enlarges until no corner is empty,
    `zoom_out` makes room for the whole image.

    >>> npx.image.rotate(np.ones((1, 3, 3)), 90).tolist()
    """
    x = operand(data)
    if len(x.shape) not in (3, 4) or not x.dtype.is_floating:
        raise ShapeError(
            f"rotate: {x.dtype}{list(x.shape)} must be floating and (C, H, W), or a batch of that; "
            "use to_tensor first"
        )
    if zoom_in and zoom_out:
        raise ArgumentError("rotate: give either zoom_in or zoom_out")
    if len(x.shape) == 3:
        if not isinstance(rotation_degrees, NUMBER):
            raise ShapeError("rotate: for one image, give one number as the angle")
        return rotate(expand_dims(x, 0), rotation_degrees, zoom_in, zoom_out)[0]
    dtype = x.dtype.accumulate  # places are fractions of a pixel
    angle = ops.cast(operand(rotation_degrees, (x,)), dtype=dtype) * (pi / 180)
    angle = reshape(angle, shape=(-1, 1, 1))
    if angle.shape[0] != 1 and angle.shape[0] != x.shape[0]:
        raise ShapeError(
            f"rotate: {x.shape[0]} images, but {angle.shape[0]} angles; give one angle per image"
        )
    high, wide = int(x.shape[2]), int(x.shape[3])
    numbers = (ops.iota(shape=(n,), axis=0, dtype="int64") for n in (high, wide))
    rows, columns = (ops.cast(number, dtype=dtype) for number in numbers)
    rows = reshape(rows, shape=(-1, 1))
    down, right = rows - (high - 1) / 2, columns - (wide - 1) / 2
    cosine, sine = ops.cos(angle), ops.sin(angle)
    zoom = _zoom(cosine, sine, high, wide, zoom_in) if zoom_in or zoom_out else 1.0
    across = (right * cosine - down * sine) * zoom + (wide - 1) / 2
    along = (right * sine + down * cosine) * zoom + (high - 1) / 2
    return _at(x, along, across, high, wide)


def _zoom(cosine: Any, sine: Any, high: int, wide: int, inwards: bool) -> Any:
    """The scale: the distance of the old pixels that become neighbours."""
    cosine, sine = abs(cosine), abs(sine)
    # The size of the rectangle around the rotated image, relative to the image.
    across, along = (wide * cosine + high * sine) / wide, (wide * sine + high * cosine) / high
    if inwards:
        return 1 / ops.maximum(across, along)
    return ops.maximum(across, along)


def _at(x: Any, rows: Any, columns: Any, high: int, wide: int) -> Any:
    """Images (N, C, H, W) interpolated at points (N or 1, H, W) between pixels, 0 outside."""
    images = reshape(ops.iota(shape=(x.shape[0],), axis=0, dtype="int64"), shape=(-1, 1, 1))
    pixels = reshape(transpose(x, axes=(0, 2, 3, 1)), shape=(-1, x.shape[1]))
    found = interpolated(pixels, images, rows, columns, high, wide)
    return transpose(found, axes=(0, 3, 1, 2))
