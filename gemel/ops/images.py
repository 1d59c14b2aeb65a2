"""Operations on images (height, width, channels), or batches of them, as data sets need them."""

from __future__ import annotations

from typing import Any

from gemel.device import beside, beside_arrays
from gemel.errors import ArgumentError, ShapeError, unknown_name
from gemel.extent import WHOLE
from gemel.extent import maximum as larger
from gemel.ir.precision import as_written
from gemel.ir.public import Array, function
from gemel.ops.arrange import flip, repeat
from gemel.ops.distribution import normally, uniformly
from gemel.ops.elementwise import (
    add,
    cast,
    floor,
    floor_divide,
    iota,
    limit,
    maximum,
    minimum,
    multiply,
    rint,
    where,
)
from gemel.ops.indexing import gather_inside
from gemel.ops.reduction import mean
from gemel.ops.resampling import weighed
from gemel.ops.shape import expand_dims, operand, reshape, transpose
from gemel.ranges import counted
from gemel.spec import plain

#: The weights of red, green and blue in the perceived brightness (ITU-R BT.601).
GREY = (0.299, 0.587, 0.114)
#: Principal components of the colours of photographs, scaled (Krizhevsky et al., 2012).
LIGHTING = (
    (55.46 * -0.5675, 4.794 * 0.7192, 1.148 * 0.4009),
    (55.46 * -0.5808, 4.794 * -0.0045, 1.148 * -0.8140),
    (55.46 * -0.5836, 4.794 * -0.6948, 1.148 * 0.4203),
)


def _image(name: str, data: Any) -> Any:
    x = operand(data)
    if len(x.shape) not in (3, 4):
        raise ShapeError(
            f"{name}: {list(x.shape)} must be (height, width, channels), or a batch of that"
        )
    return x


def _like(found: Any, x: Any) -> Any:
    """A result in the dtype of the image; integers are rounded and limited to what it holds."""
    if x.dtype.is_floating:
        return cast(found, dtype=x.dtype)
    digits = x.dtype.digits
    least = -(2.0**digits) if x.dtype.kind == "i" else 0.0
    # The largest that is a number of both dtypes: the floating one may have fewer digits.
    most = 2.0**digits - 2.0 ** max(digits - found.dtype.digits, 0)
    return cast(limit(rint(found), least, most), dtype=x.dtype)


@function(public="npx.image")
def to_tensor(data: Any) -> Array:
    """Convert (height, width, channels), 0 to 255, to float32 (channels, height, width), 0 to 1.

    >>> npx.image.to_tensor(np.full((1, 2, 3), 255, dtype="uint8")).shape
    """
    x = _image("to_tensor", data)
    axes = (2, 0, 1) if len(x.shape) == 3 else (0, 3, 1, 2)
    return transpose(multiply(cast(x, dtype="float32"), 1 / 255), axes=axes)


@function(public="npx.image")
@beside_arrays
def normalize(data: Any, mean: Any = 0.0, std: Any = 1.0) -> Array:
    """(data - mean) / std of images (channels, height, width), with one number for each channel.

    >>> npx.image.normalize(np.ones((3, 1, 2)), mean=(0, 0.5, 1), std=0.5)
    """
    x = _image("normalize", data)
    if not x.dtype.is_floating:
        raise ShapeError(f"normalize: {x.dtype} must be floating; use to_tensor first")
    less, by = (
        reshape(cast(operand(v, (x,)), dtype=x.dtype), shape=(-1, 1, 1)) for v in (mean, std)
    )
    return (x - less) / by


@function(public="npx.image")
@beside_arrays
def resize(data: Any, size: Any, keep_ratio: bool = False, interp: int = 1) -> Array:
    """Resize images to (width, height), or one number for both.

    With `keep_ratio` and one number the shorter side gets it. `interp` 0 is nearest, 1 bilinear, 2
    bicubic (4 x 4 pixels), 3 the mean over the area of a pixel, 4 Lanczos (8 x 8 pixels). Pixels
    are squares: their centres are at half-integers.

    >>> npx.image.resize(np.arange(4.0).reshape(2, 2, 1), (4, 2)).shape
    """
    x, size = _image("resize", data), plain(size)
    height, width = x.shape[-3:-1]
    if any(type(n) is int and n == 0 for n in (height, width)):
        raise ShapeError(f"resize: {list(x.shape)} has no pixels to make others of")
    if isinstance(size, WHOLE) and keep_ratio:
        short = min(height, width)
        size = (max(width * size // short, 1), max(height * size // short, 1))
    wide, high = (size, size) if isinstance(size, WHOLE) else size
    if interp not in range(5):
        raise unknown_name("interp of resize", str(interp), ("0", "1", "2", "3", "4"))
    if min(wide, high) < 1:
        raise ShapeError(f"resize: the size ({wide}, {high}) must be positive")
    axis = len(x.shape) - 3
    found = x if x.dtype.is_floating or interp == 0 else cast(x, dtype="float32")
    for place, new in ((axis, high), (axis + 1, wide)):
        if interp > 1:
            found = weighed(found, place, new, interp, height >= high and width >= wide)
        else:
            found = _stretched(found, place, new, linear=interp == 1)
    return found if interp == 0 else _like(found, x)


# Sizes of images are used in arithmetic as arrays, so that one program serves all sizes.


def _stretched(x: Any, axis: int, size: Any, linear: bool, corners: bool = False) -> Any:
    """x with another size along an axis; with `corners` the outermost pixels stay at the ends."""
    old = x.shape[axis]
    if not linear:
        number = iota(shape=(size,), axis=0, dtype="int64")
        return gather_inside(x, floor_divide(multiply(number, old), size), axis=axis)
    if not corners:
        return _sampled(x, axis, 0.0, old, size, linear)
    # The span between the centres of the outermost pixels, plus half a new pixel on both sides.
    gap = (int(old) - 1) / (size - 1) if size > 1 else 0.0
    return _sampled(x, axis, 0.5 - gap / 2, gap * size, size, linear)


def _sampled(x: Any, axis: int, begin: Any, span: Any, size: Any, linear: bool) -> Any:
    """`size` lines that resample the range from begin to begin + span along an axis.

    Along the axes -3 and -2 of a batch of images, begin and span may be (N, 1).
    """
    extent = x.shape[axis]
    after = (len(x.shape) - axis if axis >= 0 else -axis) - 1
    number = cast(iota(shape=(size,), axis=0, dtype="int64"), dtype=x.dtype.floating.accumulate)
    place = (number + 0.5) / size * span + begin
    if not linear:
        return _lines(x, axis, _within(cast(floor(place), dtype="int64"), extent - 1))
    place = _within(place - 0.5, extent - 1)
    low = _within(cast(floor(place), dtype="int64"), larger(extent - 2, 0))
    shape: tuple[int, ...] = (size, *[1] * after)
    if len(place.shape) == 2:
        shape = (-1, *[1] * (len(x.shape) - after - 2), *shape)
    share = cast(reshape(place - low, shape=shape), dtype=x.dtype.floating)
    first = _lines(x, axis, low)
    return first + (_lines(x, axis, _within(low + 1, extent - 1)) - first) * share


def _within(x: Any, most: Any) -> Any:
    """x, or the nearest number from 0 to `most`, which may be a free size."""
    return minimum(maximum(x, 0), most)


@function(public="npx")
def bilinear_resize_2d(
    data: Any,
    height: int | None = None,
    width: int | None = None,
    scale_height: float | None = None,
    scale_width: float | None = None,
    align_corners: bool = True,
) -> Array:
    """Images (N, C, height, width) of another size, or scaled, by linear mixing.

    With `align_corners` the outermost pixels stay in the corners.

    >>> npx.bilinear_resize_2d(np.arange(4.0).reshape(1, 1, 2, 2), 3, 3)
    """
    x = operand(data)
    if len(x.shape) != 4:
        raise ShapeError(f"bilinear_resize_2d: {list(x.shape)} must be (N, C, height, width)")
    high = height or int(int(x.shape[2]) * (scale_height or 1))
    wide = width or int(int(x.shape[3]) * (scale_width or 1))
    with beside(None, (x,)):
        for axis, size in ((2, high), (3, wide)):
            x = _stretched(x, axis, size, linear=True, corners=align_corners)
    return x


@function(public="npx")
def upsampling(data: Any, scale: int, sample_type: str = "nearest") -> Array:
    """Images (N, C, height, width) `scale` times as large, each pixel repeated ("nearest") or mixed
    linearly ("bilinear"). Raises `ArgumentError` unless `scale` is a whole number of at least 1.

    >>> npx.upsampling(np.arange(4.0).reshape(1, 1, 2, 2), scale=2)
    """
    x, scale = operand(data), counted("upsampling", "scale", scale)
    if sample_type not in ("nearest", "bilinear"):
        raise unknown_name("sample_type of upsampling", sample_type, ("nearest", "bilinear"))
    if len(x.shape) != 4:
        raise ShapeError(f"upsampling: {list(x.shape)} must be (N, C, height, width)")
    with beside(None, (x,)):
        for axis in (2, 3):
            if sample_type == "nearest":
                x = repeat(x, repeats=scale, axis=axis)
            else:
                x = _stretched(x, axis, x.shape[axis] * scale, linear=True)
    return x


@function(public="npx.image")
def crop(data: Any, x: int, y: int, width: int, height: int) -> Array:
    """Crop images at column x and row y. Raises `ShapeError` if this exceeds the image.

    >>> npx.image.crop(np.arange(12).reshape(3, 4, 1), 1, 0, 2, 2).shape
    """
    image = _image("crop", data)
    rows, columns = image.shape[-3], image.shape[-2]
    inside = x >= 0 and y >= 0 and y + height <= rows and x + width <= columns
    if not inside or width < 1 or height < 1:
        raise ShapeError(
            f"crop: {width} x {height} at ({x}, {y}) is not inside the image of {columns} x {rows}"
        )
    return image[..., y : y + height, x : x + width, :]


@function(public="npx.image")
def flip_left_right(data: Any) -> Array:
    """Flip images left to right.

    >>> npx.image.flip_left_right(np.arange(3).reshape(1, 3, 1)).tolist()
    """
    return flip(_image("flip_left_right", data), -2)


@function(public="npx.image")
def flip_top_bottom(data: Any) -> Array:
    """Flip images top to bottom.

    >>> npx.image.flip_top_bottom(np.arange(3).reshape(3, 1, 1)).tolist()
    """
    return flip(_image("flip_top_bottom", data), -3)


# --- random changes -------------------------------------------------------------------------


def _each(x: Any) -> tuple[Any, ...]:
    """The shape of one random number for an image, or for each image of a batch."""
    return (*x.shape[:-3], 1, 1, 1)


def _by_chance(data: Any, changed: Any, p: float) -> Any:
    return where(uniformly(size=_each(data)) < p, changed, data)


@function(public="npx.image")
@beside_arrays
def random_flip_left_right(data: Any, p: float = 0.5) -> Array:
    """Flip each image left to right with probability p.

    >>> npx.image.random_flip_left_right(np.arange(3).reshape(1, 3, 1)).shape
    """
    return _by_chance(operand(data), flip_left_right(data), p)


@function(public="npx.image")
@beside_arrays
def random_flip_top_bottom(data: Any, p: float = 0.5) -> Array:
    """Flip each image top to bottom with probability p.

    >>> npx.image.random_flip_top_bottom(np.arange(3).reshape(3, 1, 1)).shape
    """
    return _by_chance(operand(data), flip_top_bottom(data), p)


def _grey(x: Any) -> Any:
    """The brightness of each pixel."""
    if x.shape[-1] == 1:
        return x
    red, green, blue = (x[..., n : n + 1] * weight for n, weight in enumerate(GREY))
    return red + green + blue


def _mixed(name: str, data: Any, other: Any, share: Any) -> Any:
    """share * data + (1 - share) * other(data)."""
    x = _image(name, data)
    if x.shape[-1] not in (1, 3):
        raise ShapeError(f"{name}: {list(x.shape)} must have 1 or 3 channels along the last axis")
    wide = cast(x, dtype=x.dtype.floating)
    found = wide * share if other is None else other(wide) * (1 - share) + wide * share
    return _like(found, x)


def _factor(x: Any, low: float, high: float) -> Any:
    if low > high:
        raise ArgumentError(f"the range of factors from {low} to {high} is invalid")
    return uniformly(low, high, size=_each(x))


@function(public="npx.image")
@beside_arrays
def random_brightness(data: Any, min_factor: float, max_factor: float) -> Array:
    """Multiply each image by a factor drawn from a range.

    >>> npx.image.random_brightness(np.ones((1, 2, 3)), 0.5, 1.5).shape
    """
    return _mixed("random_brightness", data, None, _factor(data, min_factor, max_factor))


@function(public="npx.image")
@beside_arrays
def random_contrast(data: Any, min_factor: float, max_factor: float) -> Array:
    """Blend images with their mean grey, by a factor drawn from a range.

    >>> npx.image.random_contrast(np.ones((1, 2, 3)), 0.5, 1.5).shape
    """

    def level(x: Any) -> Any:
        return mean(_grey(x), axis=(-3, -2, -1), keepdims=True)

    return _mixed("random_contrast", data, level, _factor(data, min_factor, max_factor))


@function(public="npx.image")
@beside_arrays
def random_saturation(data: Any, min_factor: float, max_factor: float) -> Array:
    """Blend images with their grey versions, by a factor drawn from a range.

    >>> npx.image.random_saturation(np.ones((1, 2, 3)), 0.5, 1.5).shape
    """
    return _mixed("random_saturation", data, _grey, _factor(data, min_factor, max_factor))


#: From red, green and blue to brightness and two colour components, and back (NTSC's YIQ).
TO_YIQ = ((0.299, 0.587, 0.114), (0.596, -0.274, -0.321), (0.211, -0.523, 0.311))
FROM_YIQ = ((1.0, 0.956, 0.621), (1.0, -0.272, -0.647), (1.0, -1.107, 1.705))


@function(public="npx.image")
@beside_arrays
@as_written
def random_hue(data: Any, min_factor: float, max_factor: float) -> Array:
    """Rotate the hues of images by a factor drawn from a range: 1 changes nothing, 2 is half a
    turn.

    >>> npx.image.random_hue(np.ones((1, 2, 3)), 0.9, 1.1).shape
    """
    x = _image("random_hue", data)
    if x.shape[-1] == 1:
        return x
    if x.shape[-1] != 3:
        raise ShapeError(
            f"random_hue: {list(x.shape)} must have 1 or 3 channels along the last axis"
        )
    angle = (_factor(x, min_factor, max_factor)[..., 0] - 1.0) * 3.141592653589793
    wide = cast(x, dtype=x.dtype.floating)
    light, first, second = (wide @ operand(list(row), (wide,)).astype(wide.dtype) for row in TO_YIQ)
    cosine, sine = angle.cos(), angle.sin()
    turned = first * cosine - second * sine, first * sine + second * cosine
    channels = [light * a + turned[0] * b + turned[1] * c for a, b, c in FROM_YIQ]
    found = expand_dims(channels[0], -1)
    parts = [found, *(expand_dims(channel, -1) for channel in channels[1:])]
    lanes = iota(shape=(3,), axis=0, dtype="int64")
    return _like(where(lanes == 0, parts[0], where(lanes == 1, parts[1], parts[2])), x)


@function(public="npx.image")
@beside_arrays
def random_color_jitter(
    data: Any,
    brightness: float = 0.0,
    contrast: float = 0.0,
    saturation: float = 0.0,
    hue: float = 0.0,
) -> Array:
    """Images with brightness, contrast, saturation and hue changed by factors drawn from
    1 - each, but not below 0, to 1 + each.

    >>> npx.image.random_color_jitter(np.ones((1, 2, 3)), 0.1, 0.1, 0.1, 0.1).shape
    """
    changes = (random_brightness, random_contrast, random_saturation, random_hue)
    for change, by in zip(changes, (brightness, contrast, saturation, hue), strict=True):
        if by > 0:
            data = change(data, max(1 - by, 0.0), 1 + by)
    return operand(data)


@function(public="npx.image")
@beside_arrays
@as_written
def adjust_lighting(data: Any, alpha: Any) -> Array:
    """Images of 3 channels, 0 to 255, lit as photographs are: alpha says how much in each of the
    three directions their colours vary most (Krizhevsky et al., 2012).

    >>> npx.image.adjust_lighting(np.ones((1, 2, 3)), (0.1, 0.0, 0.0)).shape
    """
    x = _image("adjust_lighting", data)
    if not x.shape[-1] == 3:
        raise ShapeError(
            f"adjust_lighting: {list(x.shape)} must have 3 channels along the last axis"
        )
    wide = cast(x, dtype=x.dtype.floating)
    weights = cast(operand([list(row) for row in LIGHTING], (wide,)), dtype=wide.dtype)
    shares = cast(operand(alpha, (wide,)), dtype=wide.dtype)
    return _like(add(wide, shares @ transpose(weights)), x)


@function(public="npx.image")
@beside_arrays
def random_lighting(data: Any, alpha_std: float = 0.05) -> Array:
    """`adjust_lighting` with alpha drawn from a normal distribution.

    >>> npx.image.random_lighting(np.ones((1, 2, 3)), 0.05).shape
    """
    x = _image("random_lighting", data)
    return adjust_lighting(x, normally(0.0, alpha_std, size=(*_each(x)[:-1], 3)))


@function(public="npx.image")
@beside_arrays
def random_crop(
    data: Any,
    xrange: tuple[float, float],
    yrange: tuple[float, float],
    width: int,
    height: int,
    interp: int = 1,
) -> Array:
    """Crop images to width x height at a random position: fractions of the free space, drawn from
    two ranges. An image that is too small is resized first.

    >>> npx.image.random_crop(np.ones((4, 4, 3)), (0, 1), (0, 1), 2, 3).shape
    """
    x = _image("random_crop", data)
    rows, columns = x.shape[-3:-1]
    if rows < height or columns < width:
        x = resize(x, (max(columns, width), max(rows, height)), interp=interp)
        rows, columns = max(rows, height), max(columns, width)
    return _part(_part(x, -3, rows, height, yrange), -2, columns, width, xrange)


def _part(x: Any, axis: int, extent: Any, size: int, shares: tuple[float, float]) -> Any:
    """`size` lines along an axis, beginning at a random position."""
    low, high = shares
    if not 0 <= low <= high <= 1:
        raise ArgumentError(f"random_crop: the fractions {low} to {high} must be between 0 and 1")
    room = extent - size
    first = _within(cast(floor(_factor(x, low, high) * (room + 1)), dtype="int64"), room)
    return _lines(x, axis, iota(shape=(size,), axis=0, dtype="int64") + first[..., 0, 0])


def _lines(x: Any, axis: int, numbers: Any) -> Any:
    """The lines with these numbers, (size,), or (N, size) for the axis -3 or -2 of a batch."""
    if len(numbers.shape) == 1:
        return gather_inside(x, numbers, axis=axis % len(x.shape))
    images = iota(shape=(x.shape[0],), axis=0, dtype="int64")
    if axis == -3:
        return x[expand_dims(images, -1), numbers]
    rows = iota(shape=(x.shape[1],), axis=0, dtype="int64")
    return x[reshape(images, shape=(-1, 1, 1)), expand_dims(rows, -1), expand_dims(numbers, 1)]


@function(public="npx.image")
@beside_arrays
def random_resized_crop(
    data: Any,
    width: int,
    height: int,
    area: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    interp: int = 1,
) -> Array:
    """Crop a random fraction of the area of images with a random aspect ratio, as far as it fits,
    and resize to width x height, bilinearly (Szegedy et al., CVPR 2015).

    >>> npx.image.random_resized_crop(np.ones((8, 8, 3)), 4, 2).shape
    """
    x = _image("random_resized_crop", data)
    if interp not in (0, 1):
        raise unknown_name("interp of random_resized_crop", str(interp), ("0", "1"))
    rows, columns = x.shape[-3:-1]
    share = _factor(x, *area)[..., 0, 0] * (rows * columns)
    slant = _factor(x, *(float(r) ** 0.5 for r in ratio))[..., 0, 0] ** 2
    wide = minimum(maximum((share * slant) ** 0.5, 1.0), columns)
    high = minimum(maximum((share / slant) ** 0.5, 1.0), rows)
    found = x if x.dtype.is_floating else cast(x, dtype="float32")
    for axis, extent, span, size in ((-3, rows, high, height), (-2, columns, wide, width)):
        begin = (extent - span) * uniformly(size=(*x.shape[:-3], 1))
        found = _sampled(found, axis, begin, span, size, interp == 1)
    return _like(found, x)
