"""RecordIO: read and written as MXNet does it; errors say where a file is damaged."""

from __future__ import annotations

import os
import pickle
import struct
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy
import pytest
from mxnet_records import MAGIC, RECORDS

from gemel import recordio
from gemel.errors import (
    ArgumentError,
    DataFileError,
    DTypeError,
    MissingFileError,
    ShapeError,
)
from gemel.gluon import data as gdata

HERE = Path(__file__).parent / "mxnet_data"


def written(folder: Path, records: Any = RECORDS) -> Path:
    path = folder / "some.rec"
    with recordio.MXRecordIO(path, "w") as writer:
        for record in records:
            writer.write(record)
    return path


def read(path: Path) -> list[bytes]:
    with recordio.MXRecordIO(path, "r") as reader:
        return list(iter(reader.read, None))  # type: ignore[arg-type]


def test_files_written_by_mxnet_are_read() -> None:
    assert read(HERE / "records.rec") == list(RECORDS)
    reader = recordio.MXIndexedRecordIO(HERE / "records.idx", HERE / "records.rec", "r")
    assert reader.keys == [3 * n for n in range(len(RECORDS))]
    for number in (4, 0, 9, 9, 2):
        assert reader.read_idx(3 * number) == RECORDS[number]
    with pytest.raises(KeyError, match="no record 1"):
        reader.read_idx(1)


def test_files_are_written_as_mxnet_writes_them(tmp_path: Path) -> None:
    assert written(tmp_path).read_bytes() == (HERE / "records.rec").read_bytes()
    writer = recordio.MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w")
    for number, record in enumerate(RECORDS):
        assert writer.tell() == os.path.getsize(HERE / "records.rec") or number < len(RECORDS)
        writer.write_idx(3 * number, record)
    writer.close()
    for kind in ("idx", "rec"):
        expected = (HERE / f"records.{kind}").read_bytes()
        assert (tmp_path / f"a.{kind}").read_bytes() == expected


def test_random_records_come_back(tmp_path: Path) -> None:
    draw = numpy.random.RandomState(0)
    pieces = [MAGIC, MAGIC[:2], b"x", b"abcd", draw.bytes(1000)]
    records = [
        b"".join(pieces[n] for n in draw.randint(0, 5, draw.randint(0, 9))) for _ in range(200)
    ]
    assert read(written(tmp_path, records)) == records


def test_an_index_is_made_where_there_is_none(tmp_path: Path) -> None:
    path = written(tmp_path)
    reader = recordio.MXIndexedRecordIO(tmp_path / "some.idx", path, "r")
    assert [reader.read_idx(key) for key in reader.keys] == list(RECORDS)
    dataset = gdata.RecordFileDataset(str(path))
    assert len(dataset) == len(RECORDS) and dataset[5] == RECORDS[5]


def test_headers() -> None:
    for label, flag in ((3, 0), (2.5, 0), ([1.0, 2.5], 2), (numpy.float32(4), 0)):
        data = recordio.pack(recordio.IRHeader(0, label, 17, 2), b"rest")
        header, rest = recordio.unpack(data)
        assert (header.flag, header.id, header.id2, rest) == (flag, 17, 2, b"rest")
        assert numpy.array_equal(header.label, label)
    for wrong in ((0, "x", 1, 0), (0, 1e39, 1, 0), (0, [1, "x"], 1, 0), (0, 1, -1, 0)):
        with pytest.raises(ArgumentError, match=r"pack: IRHeader\(.*: the label must be a number"):
            recordio.pack(recordio.IRHeader(*wrong), b"")
    with pytest.raises(DataFileError, match="shorter than its header"):
        recordio.unpack(b"short")
    with pytest.raises(DataFileError, match="too short for its 5 labels"):
        recordio.unpack(struct.pack("<IfQQ", 5, 0, 0, 0) + b"abcd")


def test_pictures_of_mxnet() -> None:
    pytest.importorskip("PIL")
    dataset = gdata.vision.ImageRecordDataset(str(HERE / "images.rec"))
    assert len(dataset) == 3
    rows, columns = numpy.mgrid[:12, :10]
    for number in range(3):
        picture, label = dataset[number]
        expected = numpy.stack([rows * 20, columns * 25, rows * 0 + 80 * number], -1)
        assert picture.tolist() == expected.tolist() and str(picture.dtype) == "uint8"
        assert numpy.array_equal(label, 7.0 if number == 0 else numpy.arange(number + 1) / 2)
    reader = recordio.MXIndexedRecordIO(HERE / "images.idx", HERE / "images.rec", "r")
    header, pixels = recordio.unpack_img(reader.read_idx(1))
    assert header.id == 101 and pixels[0, 1].tolist() == [80, 25, 0]  # BGR order
    again = recordio.pack_img(header, pixels, 9, ".png")
    assert recordio.unpack_img(again)[1].tolist() == pixels.tolist()
    assert recordio.unpack_img(again, 0)[1].shape == (12, 10)


def damaged(path: Path, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.mark.parametrize(
    ("damage", "offset", "message"),
    [
        (lambda p: os.truncate(p, 31), 24, "is truncated: 7 of 8 bytes of head"),
        (lambda p: os.truncate(p, 23), 12, "is truncated: 3 of 4 bytes"),
        (lambda p: damaged(p, 12, b"x"), 12, "begins with 0xced72378, not 0xced7230a"),
        (lambda p: damaged(p, 19, b"\x60"), 12, "has the flag 3"),
        (lambda p: damaged(p, 18, b"\xff"), 12, "is truncated: "),
        (lambda p: damaged(p, 31, b"\x40"), 24, "has the flag 2"),
    ],
)
def test_damage_is_reported_with_file_and_offset(
    tmp_path: Path, damage: Any, offset: int, message: str
) -> None:
    path = written(tmp_path, [b"a", b"abcd", b"efgh" * 10])
    damage(path)
    with pytest.raises(DataFileError, match=message) as found:
        read(path)
    assert str(path) in str(found.value) and f"byte {offset}" in str(found.value)


def test_a_part_that_is_missing(tmp_path: Path) -> None:
    path = written(tmp_path, [b"abcd" + MAGIC + b"efgh"])
    os.truncate(path, 12)
    with pytest.raises(
        DataFileError, match=r"byte 12 \(a part of the record at byte 0\) is truncated"
    ):
        read(path)


def test_bad_calls(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"none\.rec does not exist"):
        recordio.MXRecordIO(tmp_path / "none.rec", "r")
    with pytest.raises(ValueError, match="must be 'r' or 'w'"):
        recordio.MXRecordIO(tmp_path / "none.rec", "a")
    path = written(tmp_path)
    with pytest.raises(ValueError, match="not open for writing"):
        recordio.MXRecordIO(path, "r").write(b"a")
    closed = recordio.MXRecordIO(path, "r")
    closed.close()
    with pytest.raises(ValueError, match="not open for reading"):
        closed.read()
    (tmp_path / "some.idx").write_text("0\t0\nx y\n")
    with pytest.raises(DataFileError, match=r"some\.idx: the line at byte 4"):
        recordio.MXIndexedRecordIO(tmp_path / "some.idx", path, "r")
    (tmp_path / "some.idx").write_text("0\t4000\n")
    with pytest.raises(DataFileError, match="record 0 is at byte 4000"):
        recordio.MXIndexedRecordIO(tmp_path / "some.idx", path, "r").read_idx(0)
    with recordio.MXRecordIO(tmp_path / "w.rec", "w") as writer, pytest.raises(TypeError):
        pickle.dumps(writer)


@pytest.mark.parametrize("wrong", ["text", 5, None, [1, 2]])
def test_only_bytes_are_records(wrong: Any, tmp_path: Path) -> None:
    with recordio.MXRecordIO(tmp_path / "w.rec", "w") as writer:
        with pytest.raises(DTypeError, match="is not bytes"):
            writer.write(wrong)
        writer.write(bytearray(b"ab"))
        writer.write(numpy.array([1, 2], "uint8"))
    assert read(tmp_path / "w.rec") == [b"ab", b"\1\2"]
    with pytest.raises(DTypeError, match="is not bytes"):
        recordio.pack((0, 1.0, 0, 0), wrong)


@pytest.mark.parametrize("header", [(0, 1.0), (0, [[1.0], [2.0]], 0, 0), (0, None, 0, 0)])
def test_wrong_headers(header: Any) -> None:
    with pytest.raises(ArgumentError, match="pack: "):
        recordio.pack(header, b"")


@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 2, 4), (2, 2, 5), (0, 2, 3), (0, 2)])
def test_pictures_that_cannot_be_packed(shape: Any) -> None:
    pytest.importorskip("PIL")
    for ending in ".jpg", ".png":
        with pytest.raises(ShapeError, match=r"must be uint8 and \(H, W, 3\)"):
            recordio.pack_img((0, 1.0, 0, 0), numpy.zeros(shape, "uint8"), img_fmt=ending)


def header_of_a_png(wide: int, high: int) -> bytes:
    """A file that says how large its picture is, and ends where the picture begins."""
    found = b"\x89PNG\r\n\x1a\n"
    for text in b"IHDR" + struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0), b"IDAT":
        found += struct.pack(">I", len(text) - 4) + text + struct.pack(">I", crc32(text))
    return found


def test_pictures_that_claim_to_be_huge() -> None:
    pytest.importorskip("PIL")
    for size in 60_000, 2**31 - 1:
        with pytest.raises(DataFileError, match=r"decoded: .*exceeds"):
            recordio.unpack_img(recordio.pack((0, 1.0, 0, 0), header_of_a_png(size, size)))


def test_readers_in_several_processes(tmp_path: Path) -> None:
    path = written(tmp_path)
    reader = recordio.MXRecordIO(path, "r")
    assert [reader.read() for _ in range(3)] == list(RECORDS[:3])
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.read() == RECORDS[3]
    pid = os.fork()
    if pid == 0:
        right = list(iter(reader.read, None)) == list(RECORDS[3:])  # type: ignore[arg-type]
        os._exit(0 if right else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert reader.read() == RECORDS[3]
    reader.reset()
    assert reader.read() == RECORDS[0]
    dataset = gdata.RecordFileDataset(str(path)).transform(len)
    loader = gdata.DataLoader(dataset, 3, num_workers=2)
    assert [n for batch in loader for n in batch.tolist()] == [len(record) for record in RECORDS]


def test_a_file_that_grows_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "some.rec"
    with recordio.MXRecordIO(path, "w") as writer:
        writer.write(b"one")
        writer._file.flush()
        reader = recordio.MXRecordIO(path, "r")
        assert [reader.read(), reader.read()] == [b"one", None]
        writer.write(b"two")
    assert [reader.read(), reader.read()] == [b"two", None]


def test_a_file_that_becomes_shorter_is_truncated(tmp_path: Path) -> None:
    path = written(tmp_path, [b"x" * 20000] * 9)
    reader = recordio.MXRecordIO(path, "r")
    assert reader.read() == b"x" * 20000
    os.truncate(path, 25000)
    with pytest.raises(DataFileError, match="byte 20008 is truncated: 4984 of 20000 bytes"):
        reader.read()


@pytest.mark.parametrize(
    ("kind", "key"), [(int, "one"), (int, None), (str, "a\tb"), (str, "a\nb"), (str, "\r")]
)
def test_keys_that_cannot_be_written(kind: Any, key: Any, tmp_path: Path) -> None:
    paths = tmp_path / "a.idx", tmp_path / "a.rec"
    with recordio.MXIndexedRecordIO(*paths, "w", kind) as writer:
        with pytest.raises(ArgumentError, match=r"a\.idx: the key"):
            writer.write_idx(key, b"one")
        writer.write_idx("0", b"two")
    reader = recordio.MXIndexedRecordIO(*paths, "r", kind)
    assert [reader.read_idx(each) for each in reader.keys] == [b"two"]


@pytest.mark.parametrize("line", ["0\t-12", "0\tx", "0"])
def test_invalid_lines_of_an_index(tmp_path, line):
    with recordio.MXRecordIO(tmp_path / "a.rec", "w") as writer:
        writer.write(b"abcd")
    (tmp_path / "a.idx").write_text(line + "\n")
    with pytest.raises(DataFileError, match=r"a\.idx: the line at byte 0 is not a key, a tab"):
        recordio.MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r")


def test_records_are_read_while_others_are(tmp_path: Path) -> None:
    """Another record is read whenever a function of recordio begins, as threads may do."""
    texts = [bytes([number]) * (number + 1) for number in range(8)]
    with recordio.MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w") as writer:
        for number, text in enumerate(texts):
            writer.write_idx(number, text)
    reader = recordio.MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r")
    seen = []

    def between(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename == recordio.__file__:
            seen.append(reader.read_idx(7))

    sys.setprofile(between)
    try:
        found = [reader.read_idx(number) for number in range(8)]
    finally:
        sys.setprofile(None)
    assert found == texts
    assert set(seen) == {texts[7]}
