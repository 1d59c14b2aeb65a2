"""Reading images, and functions of one image: arrays (H, W, C), or batches."""

from __future__ import annotations

import io
import math
import os
import reprlib
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemel import _core, np, npx
from gemel.dtype import uint8
from gemel.errors import (
    ArgumentError,
    DataFileError,
    MissingFileError,
    MissingPackageError,
    OperandError,
    ShapeError,
    unknown_name,
)
from gemel.extent import WHOLE
from gemel.ops.random import number_drawn
from gemel.ranges import check_ends, check_number
from gemel.tracing.manners import like

if TYPE_CHECKING:
    from gemel.np import ndarray

#: The tag for the orientation of the camera in a photograph (Exif 2.3, 4.6.4).
ORIENTATION = 0x0112
#: Formats whose pixels have at most 16 bits, which some of Pillow's versions read as 32.
SIXTEEN = ("PNG", "PPM")


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingPackageError(
            "reading and writing images needs Pillow: pip install gemel[image]"
        ) from None
    return Image


def drawn(low: float = 0.0, high: float = 1.0) -> float:
    """A number from the uniform distribution on [low, high), from the stream of
    `np.random.seed`."""
    return low + (high - low) * (number_drawn() * 2.0**-63)


def drawn_whole(low: int, high: int) -> int:
    """A random integer from low to high, both included."""
    return low + number_drawn() % (high - low + 1)


# --- files ----------------------------------------------------------------------------------


def _picture(data: Any, form: str | None, name: str) -> Any:
    """Decode the bytes of a file to a Pillow image, in a mode such as "RGB"."""
    pillow = _pillow()
    data = bytes(data)
    try:
        found = pillow.open(io.BytesIO(data))
        file_form = found.format
        if ORIENTATION in found.getexif():
            from PIL import ImageOps

            found = ImageOps.exif_transpose(found)
        if found.mode.startswith(("I", "F")):
            found = _of_eight_bits(found, file_form, name)
        return found.convert(form or ("L" if found.mode in ("1", "L") else "RGB"))
    except pillow.UnidentifiedImageError:
        raise DataFileError(
            f"{name}: not an image: no reader accepts {len(data)} bytes that begin with "
            f"{data[:8].hex() or 'none'} (byte 0)"
        ) from None
    except (MemoryError, MissingPackageError, DataFileError):
        raise
    except Exception as error:  # Pillow's readers raise whatever they come across
        raise DataFileError(f"{name}: damaged or truncated at byte {len(data)}: {error}") from None


def _of_eight_bits(picture: Any, file_form: str, name: str) -> Any:
    """A grey Pillow image with the upper eight of the 16 bits of each pixel, as OpenCV has it;
    Pillow itself would make 255 of all that is above. `file_form` is the file's format.

    Raises `DataFileError` for 32 bits, of which nothing says what is white.
    """
    import numpy

    if picture.mode == "F" or (picture.mode == "I" and file_form not in SIXTEEN):
        raise DataFileError(
            f"{name}: {file_form} with pixels of 32 bits ({picture.mode}), for which no number is "
            "white; convert it to 8 or 16 bits"
        )
    return _pillow().fromarray((numpy.asarray(picture) >> 8).astype("uint8"))


def imdecode(
    buf: Any, flag: int = 1, to_rgb: bool = True, out: Any = None, name: str = "imdecode"
) -> ndarray:
    """The picture in a file's bytes, uint8: (H, W, 3), or with `flag` 0 grey (H, W, 1).

    Without `to_rgb` blue comes first. Raises `DataFileError` for what is no picture; messages
    begin with `name`.
    """
    if hasattr(buf, "asnumpy"):
        buf = buf.asnumpy()
    picture = _picture(buf, "RGB" if flag else "L", name)
    shape = (picture.height, picture.width, 3 if flag else 1)
    found = _core.from_buffer(picture.tobytes(), uint8.code, shape)
    if flag and not to_rgb:
        found = np.flip(found, -1)
    if out is None:
        return found  # type: ignore[no-any-return]
    out[:] = found
    return out  # type: ignore[no-any-return]


def imread(filename: Any, flag: int = 1, to_rgb: bool = True, out: Any = None) -> ndarray:
    """The picture in a file, see `imdecode`. Raises `MissingFileError`, `DataFileError`."""
    try:
        data = Path(filename).expanduser().read_bytes()
    except FileNotFoundError:
        raise MissingFileError(f"{os.fspath(filename)} does not exist") from None
    return imdecode(data, flag, to_rgb, out, os.fspath(filename))


def decoded(data: bytes, iscolor: int = 1, to_rgb: bool = True) -> Any:
    """Decode the bytes of a file to a NumPy array: (H, W, 3), or (H, W) if it is grey.

    `iscolor` 1 gives colours, 0 grey, and -1 whichever the picture has.
    """
    import numpy

    form = {1: "RGB", 0: "L"}.get(iscolor)
    found = numpy.array(_picture(data, form, "decoded"))
    return found[..., ::-1].copy() if found.ndim == 3 and not to_rgb else found


def encoded(img: Any, quality: int = 95, img_fmt: str = ".jpg", bgr: bool = False) -> bytes:
    """The bytes of a file with the picture (H, W, 3), (H, W, 1) or (H, W) of uint8.

    `img_fmt` is ".jpg" or ".png"; see `recordio.pack_img` for `quality`.
    """
    import numpy

    pixels = numpy.asarray(img.asnumpy() if hasattr(img, "asnumpy") else img)
    fits = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (1, 3))
    if pixels.dtype != "uint8" or not fits or not pixels.size:
        raise ShapeError(
            f"encoded: {pixels.dtype}{list(pixels.shape)} must be uint8 and (H, W, 3), (H, W, 1) "
            "or (H, W), and not empty"
        )
    if pixels.ndim == 3:
        pixels = pixels[..., 0] if pixels.shape[2] == 1 else pixels[..., :: -1 if bgr else 1]
    picture = _pillow().fromarray(numpy.ascontiguousarray(pixels))
    file = io.BytesIO()
    if img_fmt.lower() in (".jpg", ".jpeg"):
        picture.save(file, "JPEG", quality=quality)
    elif img_fmt.lower() == ".png":
        picture.save(file, "PNG", compress_level=min(max(quality, 0), 9))
    else:
        raise unknown_name("img_fmt", img_fmt, (".jpg", ".png"))
    return file.getvalue()


# --- sizes ----------------------------------------------------------------------------------


def interpolation(interp: int, sizes: tuple[int, ...] = ()) -> int:
    """How to resize: 0 to 4 as `npx.image.resize` has it.

    9 chooses by the sizes (old height and width, new height and width): cubic to enlarge, the mean
    to shrink, else linear. 10 draws one.
    """
    if interp == 10:
        return drawn_whole(0, 4)
    if interp != 9:
        return interp
    if not sizes:
        return 2
    high, wide, new_high, new_wide = sizes
    if new_high > high and new_wide > wide:
        return 2
    return 3 if new_high < high and new_wide < wide else 1


def imresize(src: Any, w: int, h: int, interp: int = 1, out: Any = None) -> ndarray:
    """The picture w wide and h high, an NDArray if `src` is one; see `interpolation`."""
    _check_sizes("imresize", w=w, h=h)
    how = interpolation(interp, (*_extents("imresize", src), h, w))
    found: ndarray = like(src, npx.image.resize(np.asarray(src), (int(w), int(h)), interp=how))
    if out is None:
        return found
    out[:] = found
    return out  # type: ignore[no-any-return]


def scale_down(src_size: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """A size (width, height) made smaller, if it has to be, to fit into another."""
    wide, high = map(float, pair("scale_down", "size", size))
    most_wide, most_high = pair("scale_down", "src_size", src_size)
    if most_high < high:
        wide, high = wide * most_high / high, most_high
    if most_wide < wide:
        wide, high = most_wide, high * most_wide / wide
    return int(wide), int(high)


def resize_short(src: Any, size: int, interp: int = 2) -> ndarray:
    """The picture with its shorter side of that size."""
    high, wide = _extents("resize_short", src)
    _check_sizes("resize_short", size=size)
    if high > wide:
        return imresize(src, size, size * high // wide, interp)
    return imresize(src, size * wide // high, size, interp)


# --- parts ----------------------------------------------------------------------------------

Box = tuple[int, int, int, int]


def fixed_crop(
    src: Any, x0: int, y0: int, w: int, h: int, size: Any = None, interp: int = 2
) -> ndarray:
    """The part w wide and h high at column x0 and row y0, resized to `size` (width, height)."""
    found = npx.image.crop(np.asarray(src), x0, y0, w, h)
    if size is None or (w, h) == pair("fixed_crop", "size", size):
        return found
    return imresize(found, size[0], size[1], interp)


def center_crop(src: Any, size: tuple[int, int], interp: int = 2) -> tuple[ndarray, Box]:
    """The middle, of `size` (width, height) or resized to it; and its (x, y, width, height)."""
    return _crop(src, size, interp, lambda room: room // 2)


def random_crop(src: Any, size: tuple[int, int], interp: int = 2) -> tuple[ndarray, Box]:
    """A part at a drawn place, of `size` or resized to it; and its (x, y, width, height)."""
    return _crop(src, size, interp, lambda room: drawn_whole(0, room))


def _crop(src: Any, size: tuple[int, int], interp: int, place: Any) -> tuple[ndarray, Box]:
    high, wide = _extents("crop", src)
    w, h = scale_down((wide, high), size)
    x, y = place(wide - w), place(high - h)
    return fixed_crop(src, x, y, w, h, size, interp), (x, y, w, h)


def pair(name: str, what: str, value: Any) -> tuple[Any, Any]:
    """Two numbers. Raises `ArgumentError` for anything else."""
    found = tuple(value) if isinstance(value, (list, tuple)) or hasattr(value, "tolist") else ()
    if len(found) != 2:
        raise ArgumentError(f"{name}: {what} is {value!r}; it must be two numbers")
    for each in found:
        _check_sizes(name, **{what: each})
    return found[0], found[1]


def _check_sizes(name: str, **sizes: Any) -> None:
    """Raise `ArgumentError` for sizes that are no numbers."""
    for what, size in sizes.items():
        if not isinstance(size, WHOLE):
            check_number(name, what, size)


def _extents(name: str, src: Any) -> tuple[int, int]:
    """The height and width of a picture. Raises `OperandError` and `ShapeError`."""
    if not hasattr(src, "shape"):
        raise OperandError(
            f"{name}: the picture is {reprlib.repr(src)}; give an array (height, width, channels)"
        )
    if src.ndim not in (3, 4):
        raise ShapeError(
            f"{name}: {list(src.shape)} must be (height, width, channels), or a batch of that"
        )
    high, wide = src.shape[-3:-1]
    return high, wide


def random_size_crop(
    src: Any,
    size: tuple[int, int],
    area: float | tuple[float, float],
    ratio: tuple[float, float],
    interp: int = 2,
    min_area: float | None = None,
) -> tuple[ndarray, Box]:
    """A part with a drawn share of the area (one number: from that to 1) and a drawn ratio of width
    to height, resized to `size`; and its (x, y, width, height).

    Ten parts that do not fit make it the middle (Szegedy et al., CVPR 2015).
    """
    high, wide = _extents("random_size_crop", src)
    shares = area if min_area is None else min_area
    one = isinstance(shares, Real)
    least, most = pair("random_size_crop", "area", (shares, 1.0) if one else shares)
    check_ends("random_size_crop", "ratio", ratio)
    for _ in range(10):
        pixels = drawn(least, most) * high * wide
        slant = math.exp(drawn(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(pixels * slant)), round(math.sqrt(pixels / slant))
        if 0 < w <= wide and 0 < h <= high:
            x, y = drawn_whole(0, wide - w), drawn_whole(0, high - h)
            return fixed_crop(src, x, y, w, h, size, interp), (x, y, w, h)
    return center_crop(src, size, interp)


#: The kinds of borders: OpenCV's numbers are the positions, and the names are NumPy's.
BORDERS = ("constant", "edge", "symmetric", "wrap", "reflect")


def copyMakeBorder(  # noqa: N802 -- OpenCV's name
    src: Any,
    top: int,
    bot: int,
    left: int,
    right: int,
    type: int = 0,
    value: float = 0.0,
    values: Any = (),
    out: Any = None,
) -> ndarray:
    """The picture with a border: 0 of `value` (or `values`, one for each channel), 1 the last line
    repeated, 2 mirrored, 3 the other side, 4 mirrored without the last line."""
    x = np.asarray(src)
    if not 0 <= type < len(BORDERS):
        raise unknown_name("type of border", str(type), map(str, range(len(BORDERS))))
    around = ((top, bot), (left, right), (0, 0))
    if type or not values:
        more: Any = {} if type else {"constant_values": value}
        found = np.pad(x, around, mode=BORDERS[type], **more)
    else:
        if len(values) != x.shape[-1]:
            raise ShapeError(
                f"copyMakeBorder: {len(values)} values for {x.shape[-1]} channels; give one for "
                "each"
            )
        channels = [
            np.pad(x[..., n : n + 1], around, mode="constant", constant_values=each)
            for n, each in enumerate(values)
        ]
        found = np.concatenate(channels, axis=-1)
    if out is None:
        return found
    out[:] = found
    return out  # type: ignore[no-any-return]


# --- values ---------------------------------------------------------------------------------


def color_normalize(src: Any, mean: Any, std: Any = None) -> ndarray:
    """(src - mean) / std, each a number or one for each channel."""
    found = np.asarray(src)
    if mean is not None:
        found = found - np.asarray(mean)
    return found if std is None else found / np.asarray(std)


def imrotate(
    src: Any, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False
) -> ndarray:
    """Floating images (C, H, W), or a batch, turned: see `npx.image.rotate`."""
    return npx.image.rotate(src, rotation_degrees, zoom_in, zoom_out)


def random_rotate(
    src: Any, angle_limits: tuple[float, float], zoom_in: bool = False, zoom_out: bool = False
) -> ndarray:
    """`imrotate` by an angle between the limits, for each of a batch another one."""
    angle_limits = pair("random_rotate", "angle_limits", angle_limits)
    if len(src.shape) == 3:
        return imrotate(src, drawn(*angle_limits), zoom_in, zoom_out)
    angles = np.random.uniform(*angle_limits, size=(src.shape[0],))
    return imrotate(src, angles, zoom_in, zoom_out)
