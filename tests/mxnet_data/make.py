"""Makes the files beside it with MXNet 1.9.1 (numpy 1.23.5): gemel must read and reproduce them.

python tests/mxnet_data/make.py
"""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path

import mxnet
import numpy
from mxnet import image, recordio
from mxnet.gluon.data.vision import transforms

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from mxnet_records import RECORDS  # noqa: E402 -- from the folder above


def records() -> None:
    """Write a record file with an index, and one of pictures."""
    writer = recordio.MXIndexedRecordIO(str(HERE / "records.idx"), str(HERE / "records.rec"), "w")
    for number, record in enumerate(RECORDS):
        writer.write_idx(3 * number, record)
    writer.close()
    writer = recordio.MXIndexedRecordIO(str(HERE / "images.idx"), str(HERE / "images.rec"), "w")
    rows, columns = numpy.mgrid[:12, :10]
    for number in range(3):
        pixels = numpy.stack([rows * 20, columns * 25, rows * 0 + 80 * number], -1).astype("uint8")
        label = 7.0 if number == 0 else numpy.arange(number + 1) / 2
        header = recordio.IRHeader(0, label, 100 + number, 0)
        writer.write_idx(number, recordio.pack(header, png(pixels)))
    writer.close()


def png(pixels: numpy.ndarray) -> bytes:
    """The PNG file of an array of shape (H, W, 3)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    high, wide, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + body


def results() -> None:
    """The results of transforms and of functions on pictures."""
    draw = numpy.random.RandomState(0)
    pixels = draw.randint(0, 256, (13, 17, 3)).astype("uint8")
    photo = mxnet.nd.array(pixels, dtype="uint8")
    floats = mxnet.nd.array(draw.rand(3, 9, 12))
    batch = mxnet.nd.array(draw.rand(2, 3, 6, 5))
    found = {"photo": photo, "floats": floats, "batch": batch}
    for interp in range(5):
        for size in ((6, 5), (30, 29), (8, 26), (34, 5)):
            name = f"imresize {size[0]} {size[1]} {interp}"
            found[name] = image.imresize(photo, *size, interp=interp)
    for angle in (0, 30, 90, -45, 200):
        for zoom in ((0, 0), (1, 0), (0, 1)):
            turned = image.imrotate(floats, angle, *map(bool, zoom))
            found[f"imrotate {angle} {zoom[0]} {zoom[1]}"] = turned
    found["imrotate batch"] = image.imrotate(batch, mxnet.nd.array([10, 77]), True, False)
    for name, transform in {
        "CenterCrop((8, 6))": transforms.CenterCrop((8, 6)),
        "CenterCrop(40)": transforms.CenterCrop(40),
        "CenterCrop((40, 5))": transforms.CenterCrop((40, 5)),
        "Resize((9, 4))": transforms.Resize((9, 4)),
        "Resize(7)": transforms.Resize(7),
        "Resize(7, keep_ratio=True)": transforms.Resize(7, keep_ratio=True),
        "CropResize(2, 1, 8, 6)": transforms.CropResize(2, 1, 8, 6),
        "CropResize(2, 1, 8, 6, (5, 4), 1)": transforms.CropResize(2, 1, 8, 6, (5, 4), 1),
        "ToTensor()": transforms.ToTensor(),
        "Cast('float16')": transforms.Cast("float16"),
    }.items():
        found[name] = transform(photo)
    normal = transforms.Normalize((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    found["Normalize((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))"] = normal(floats)
    found["resize_short(photo, 5)"] = image.resize_short(photo, 5)
    found["fixed_crop(photo, 2, 3, 7, 6, (5, 4))"] = image.fixed_crop(photo, 2, 3, 7, 6, (5, 4))
    found["center_crop(photo, (8, 20))[0]"] = image.center_crop(photo, (8, 20))[0]
    for kind in range(5):
        name = f"copyMakeBorder(photo, 1, 2, 3, 4, {kind})"
        found[name] = image.copyMakeBorder(photo, 1, 2, 3, 4, type=kind)
    wide = photo.astype("float32")
    mean, std = mxnet.nd.array([1, 2, 3]), mxnet.nd.array([2, 3, 4])
    found["color_normalize(wide, MEAN, STD)"] = image.color_normalize(wide, mean, std)
    arrays = {name: value.asnumpy() for name, value in found.items()}
    numpy.savez_compressed(HERE / "results.npz", **arrays)


if __name__ == "__main__":
    records()
    results()
