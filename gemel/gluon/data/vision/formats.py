"""Formats of image files: idx, and CIFAR's binary form. Errors name the file and the position."""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

from gemel.errors import DataFileError, MissingFileError
from gemel.ir.reference import numpy

PIECE = 1 << 20
#: The bytes of one image: 3 channels of 32 x 32.
PIXELS = 3 * 32 * 32


def contents(path: Path) -> bytes:
    """The contents of a file, unpacked if its name ends with ``.gz``."""
    if not path.exists():
        raise MissingFileError(f"{path} does not exist")
    raw = path.read_bytes()
    if path.suffix != ".gz":
        return raw
    unpacker, found, offset = zlib.decompressobj(zlib.MAX_WBITS | 16), [], 0
    try:
        for offset in range(0, len(raw), PIECE):
            found.append(unpacker.decompress(raw[offset : offset + PIECE]))
    except zlib.error as error:
        end = min(offset + PIECE, len(raw))
        raise DataFileError(
            f"{path}: damaged between byte {offset} and byte {end}: {error}"
        ) from None
    if not unpacker.eof:
        raise DataFileError(f"{path}: truncated: the packed data continues after byte {len(raw)}")
    return b"".join(found)


def read_idx(path: Path, axes: int) -> Any:
    """A NumPy array of bytes from an idx file with this many axes (LeCun et al., MNIST)."""
    data = contents(path)
    expected = 0x0800 | axes
    head = 4 + 4 * axes
    magic = int.from_bytes(data[:4], "big")
    if len(data) < head or magic != expected:
        what = f"begins with {data[:4].hex()}, not with {expected:08x}" if len(data) > 3 else "ends"
        raise DataFileError(
            f"{path}: not an idx file of bytes with {axes} axes: it {what} (byte 0)"
        )
    shape = tuple(int.from_bytes(data[4 + 4 * n : 8 + 4 * n], "big") for n in range(axes))
    wanted = head + math.prod(shape)
    if len(data) != wanted:
        how = "ends" if len(data) < wanted else "goes on"
        raise DataFileError(
            f"{path}: shape {shape} takes {wanted} bytes, but the contents are {len(data)} bytes: "
            f"it {how} at byte {min(len(data), wanted)}"
        )
    return numpy().frombuffer(data, "uint8", offset=head).reshape(shape)


def read_pictures(images: Path, labels: Path) -> tuple[Any, Any]:
    """Images (N, H, W, 1) as uint8, and labels (N,) as int32, from two idx files."""
    pictures, numbers = read_idx(images, 3), read_idx(labels, 1)
    if len(pictures) != len(numbers):
        raise DataFileError(
            f"{images} has {len(pictures)} images (byte 4), and {labels} has {len(numbers)} labels"
        )
    return pictures[..., None], numbers.astype("int32")


def read_cifar(path: Path, labels: tuple[int, ...], which: int) -> tuple[Any, Any]:
    """Images (N, 32, 32, 3) as uint8, and labels (N,) as int32.

    `labels` has the number of classes of each label byte before an image; `which` selects the byte.
    """
    data = contents(path)
    size = len(labels) + PIXELS
    count, rest = divmod(len(data), size)
    if rest or not count:
        raise DataFileError(
            f"{path}: truncated: record {count}, at byte {count * size}, has {rest} bytes, not "
            f"{size}"
        )
    rows = numpy().frombuffer(data, "uint8").reshape(count, size)
    for place, values in enumerate(labels):
        wrong = numpy().flatnonzero(rows[:, place] >= values)
        if len(wrong):
            number = int(wrong[0])
            raise DataFileError(
                f"{path}: the label {rows[number, place]} at byte {number * size + place} must be "
                f"below {values}"
            )
    pictures = rows[:, len(labels) :].reshape(count, 3, 32, 32).transpose(0, 2, 3, 1)
    return pictures, rows[:, which].astype("int32")
