"""RecordIO: files of consecutive records, in the format of dmlc's libraries.

A record is the magic number, a word with 3 bits for a flag and 29 bits for the length, the bytes,
and zeros up to a multiple of 4. If the bytes contain the magic number at a multiple of 4, the
record is written in parts without it; the flags of the parts are 1, 2, ..., 2, 3.
"""

from __future__ import annotations

import os
import struct
from collections import namedtuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemel.arrays.archives import checked_path
from gemel.errors import (
    ArgumentError,
    DataFileError,
    DTypeError,
    MissingFileError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

MAGIC = 0xCED7230A
MARK = struct.pack("<I", MAGIC)
HEAD = struct.Struct("<II")
LONGEST = (1 << 29) - 1


class MXRecordIO:
    """Reads ("r") or writes ("w") the records of a file, one after the other.

    A reader uses no position of the file that forked processes share, so they do not interfere with
    each other.
    """

    def __init__(self, uri: Any, flag: str) -> None:
        if flag not in ("r", "w"):
            raise ArgumentError(f"{type(self).__name__}: the flag {flag!r} must be 'r' or 'w'")
        self.uri = checked_path(type(self).__name__, "uri", uri)
        self.flag = flag
        self.writable = flag == "w"
        self.is_open = False
        self.open()

    def open(self) -> None:
        """Open the file at its beginning; a writer empties it."""
        self.close()
        try:
            self._file = open(self.uri, "wb" if self.writable else "rb")  # noqa: SIM115 -- kept
        except FileNotFoundError:
            raise MissingFileError(f"{self.uri} does not exist") from None
        except IsADirectoryError:
            raise DataFileError(f"{self.uri} is a folder, not a file of records") from None
        self._position = 0
        self._process = os.getpid()
        self.is_open = True

    def close(self) -> None:
        """Close the file."""
        if self.is_open:
            self._file.close()
            self.is_open = False

    def reset(self) -> None:
        """Go back to the beginning; a writer empties the file."""
        self.open()

    def tell(self) -> int:
        """The offset of the next record."""
        return self._position

    def __enter__(self) -> MXRecordIO:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "is_open", False):
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self.writable:
            raise TypeError(f"{self.uri} is open for writing, so only one process may use it")
        state = dict(self.__dict__)
        del state["_file"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        is_open, position = state.pop("is_open"), state["_position"]
        self.__dict__.update(state)
        self.is_open = False
        if is_open:
            MXRecordIO.open(self)
            self._position = position

    # --- writing

    def write(self, buf: Any) -> None:
        """Append a record, bytes or another buffer. Raises `ArgumentError` for one of 512 MiB or
        more, and `DTypeError` for what has no bytes."""
        if not self.writable or not self.is_open:
            raise ArgumentError(f"{self.uri} is not open for writing")
        if self._process != os.getpid():
            raise RuntimeError(f"{self.uri} can only be written by the process that opened it")
        data = _bytes("write", buf)
        if len(data) > LONGEST:
            raise ArgumentError(
                f"{self.uri}: a record of {len(data)} bytes; the maximum is {LONGEST}"
            )
        text = b"".join(_parts(data))
        self._file.write(text)
        self._position += len(text)

    # --- reading

    def read(self) -> bytes | None:
        """The next record; None at the end. Raises `DataFileError` for a damaged file."""
        self._check_reads()
        found, position = self._record(self._position)
        self._position = position
        return found

    def _check_reads(self) -> None:
        if self.writable or not self.is_open:
            raise ArgumentError(f"{self.uri} is not open for reading")

    def _record(self, begin: int) -> tuple[bytes | None, int]:
        """The record at an offset, and the offset of its end."""
        parts: list[bytes] = []
        place, file = begin, self._file.fileno()
        while True:
            # A record may be damaged: no more is read than the file has.
            size = os.fstat(file).st_size
            head = os.pread(file, HEAD.size, place) if place < size else b""
            if not head and not parts:
                return None, place
            if len(head) < HEAD.size:
                raise self._damaged(place, begin, f"is truncated: {len(head)} of 8 bytes of head")
            magic, word = HEAD.unpack(head)
            if magic != MAGIC:
                raise self._damaged(place, begin, f"begins with {magic:#010x}, not {MAGIC:#010x}")
            flag, length = word >> 29, word & LONGEST
            if flag not in ((2, 3) if parts else (0, 1)):
                raise self._damaged(place, begin, f"has the flag {flag}, which is not valid here")
            first = place + HEAD.size
            part = os.pread(file, min(length, max(size - first, 0)), first)
            if len(part) < length:
                raise self._damaged(place, begin, f"is truncated: {len(part)} of {length} bytes")
            parts.append(part)
            place = first + length + -length % 4
            if flag in (0, 3):
                return parts[0] if flag == 0 else MARK.join(parts), place

    def _damaged(self, place: int, begin: int, what: str) -> DataFileError:
        part = "" if place == begin else f" (a part of the record at byte {begin})"
        return DataFileError(f"{self.uri}: the record at byte {place}{part} {what}")


def _offset_from(text: str) -> int:
    """Parse an offset in a file. Raises `ValueError`."""
    offset = int(text)
    if offset < 0:
        raise ValueError(f"{offset} is before the file")
    return offset


def _bytes(what: str, data: Any) -> bytes:
    """The bytes of a buffer. Raises `DTypeError` for anything else, such as text or a number."""
    try:
        return data if type(data) is bytes else bytes(memoryview(data))
    except TypeError:
        raise DTypeError(f"{what}: a {type(data).__name__} is not bytes; encode it first") from None


def _parts(data: bytes) -> list[bytes]:
    """The parts in which a record is written."""
    cuts, at = [], data.find(MARK)
    while at >= 0:
        # Only at multiples of 4, where a reader looks for it.
        if at % 4 == 0:
            cuts.append(at)
        at = data.find(MARK, at + (4 if at % 4 == 0 else 1))
    found, begin = [], 0
    for number, end in enumerate([*cuts, len(data)]):
        flag = 0 if not cuts else 1 if number == 0 else 3 if number == len(cuts) else 2
        found += [HEAD.pack(MAGIC, flag << 29 | end - begin), data[begin:end]]
        begin = end + 4
    found.append(bytes(-len(data) % 4))
    return found


class MXIndexedRecordIO(MXRecordIO):
    """A record file with an index, a text file of keys and offsets: records can be read in any
    order.

    If the index file is missing, a reader builds the index, with keys from 0, by scanning the
    records once.
    """

    def __init__(
        self, idx_path: Any, uri: Any, flag: str, key_type: Callable[[str], Any] = int
    ) -> None:
        self.idx_path = checked_path(type(self).__name__, "idx_path", idx_path)
        self.idx: dict[Any, int] = {}
        self.keys: list[Any] = []
        self.key_type = key_type
        self.fidx: Any = None
        super().__init__(uri, flag)

    def open(self) -> None:
        """Open the file and its index."""
        super().open()
        self.idx, self.keys = {}, []
        if self.writable:
            self.fidx = open(self.idx_path, "w")  # noqa: SIM115 -- kept
        elif os.path.exists(self.idx_path):
            self._read_index()
        else:
            self._make_index()

    def _read_index(self) -> None:
        offset = 0
        for line in Path(self.idx_path).read_bytes().splitlines(keepends=True):
            try:
                key, place = line.decode().split("\t")
                self.idx[self.key_type(key)] = _offset_from(place)
            except ValueError:
                raise DataFileError(
                    f"{self.idx_path}: the line at byte {offset} is not a key, a tab and an offset"
                ) from None
            offset += len(line)
        self.keys = list(self.idx)

    def _make_index(self) -> None:
        place = 0
        while (found := self._record(place))[0] is not None:
            self.idx[self.key_type(str(len(self.idx)))] = place
            place = found[1]
        self.keys = list(self.idx)

    def close(self) -> None:
        """Close both files."""
        super().close()
        if self.fidx is not None:
            self.fidx.close()
            self.fidx = None

    def seek(self, idx: Any) -> None:
        """Go to the record with that key. Raises `KeyError`."""
        if self.writable:
            raise ArgumentError(f"{self.uri} is open for writing; only readers can seek")
        self._position = self._place(idx)

    def _place(self, key: Any) -> int:
        if key not in self.idx:
            raise KeyError(f"{self.idx_path} has no record {key!r}")
        return self.idx[key]

    def read_idx(self, idx: Any) -> bytes:
        """The record with that key; several threads may ask for some at the same time. Raises
        `KeyError`, `DataFileError`."""
        self._check_reads()
        place = self._place(idx)
        # Other threads may read, and seek, at the same time: the position is only set.
        found, self._position = self._record(place)
        if found is None:
            raise DataFileError(
                f"{self.uri}: record {idx!r} is at byte {place} according to {self.idx_path}, "
                "beyond the end of the file"
            )
        return found

    def write_idx(self, idx: Any, buf: Any) -> None:
        """Append a record with a key. Raises `ArgumentError` for a key that is none of `key_type`,
        or that a line of the index cannot hold."""
        try:
            key, place = self.key_type(idx), self._position
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{self.idx_path}: the key {idx!r}: {error}") from None
        if any(end in str(key) for end in "\t\n\r"):
            raise ArgumentError(
                f"{self.idx_path}: the key {key!r} has a tab or an end of line, which end it in "
                "the file"
            )
        self.write(buf)
        self.fidx.write(f"{key}\t{place}\n")
        self.idx[key] = place
        self.keys.append(key)


IRHeader = namedtuple("IRHeader", ["flag", "label", "id", "id2"])
IRHeader.__doc__ = "Head of a record with a picture: if not 0, `flag` numbers of `label` follow."
IMAGE_HEAD = struct.Struct("<IfQQ")


def pack(header: Any, s: bytes) -> bytes:
    """Make a record from a header and bytes; a label that is not a number becomes an array of
    float32. Raises `ArgumentError` for a header that cannot be written, and `DTypeError` if `s` is
    no bytes."""
    data = _bytes("pack", s)
    if not hasattr(header, "__len__") or len(header) != len(IRHeader._fields):
        raise ArgumentError(f"pack: {header!r} must be a header {IRHeader._fields}")
    header = IRHeader(*header)
    try:
        return _head(header) + data
    except (struct.error, OverflowError, TypeError, ValueError):
        raise ArgumentError(
            f"pack: {header}: the label must be a number of float32, or several, and id and id2 "
            "whole numbers from 0 to 2**64 - 1"
        ) from None


def _head(header: IRHeader) -> bytes:
    """The bytes of a header with its labels."""
    if not isinstance(header.label, (list, tuple)) and not getattr(header.label, "ndim", 0):
        return IMAGE_HEAD.pack(0, header.label, header.id, header.id2)
    values = [float(value) for value in header.label]
    head = IMAGE_HEAD.pack(len(values), 0.0, header.id, header.id2)
    return head + struct.pack(f"<{len(values)}f", *values)


def unpack(s: bytes) -> tuple[Any, bytes]:
    """Split a record into header and bytes; several labels are a NumPy array of float32.

    Raises `DataFileError` for a record that is too short, and `DTypeError` if `s` is no bytes.
    """
    s = _bytes("unpack", s)
    if len(s) < IMAGE_HEAD.size:
        raise DataFileError(
            f"unpack: a record of {len(s)} bytes is shorter than its header of 24 bytes"
        )
    header = IRHeader(*IMAGE_HEAD.unpack_from(s))
    end = IMAGE_HEAD.size + 4 * header.flag
    if not header.flag:
        return header, s[end:]
    if len(s) < end:
        raise DataFileError(
            f"unpack: a record of {len(s)} bytes is too short for its {header.flag} labels "
            "(flag, byte 0)"
        )
    import numpy

    label = numpy.frombuffer(s, "<f4", header.flag, IMAGE_HEAD.size)
    return header._replace(label=label), s[end:]


def pack_img(header: Any, img: Any, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """Make a record from a header and a picture (H, W, 3) or (H, W), in BGR order as in OpenCV.

    `quality` is 1 to 100 for ".jpg"; for ".png" it is the compression level, 1 to 9.
    """
    from gemel import image

    return pack(header, image.encoded(img, quality, img_fmt, bgr=True))


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[Any, Any]:
    """Split a record into header and picture, a NumPy array in BGR order as in OpenCV.

    `iscolor` 1 gives (H, W, 3), 0 grey (H, W), -1 the picture's own kind.
    """
    from gemel import image

    header, data = unpack(s)
    return header, image.decoded(data, iscolor, to_rgb=False)


__all__ = [
    "IRHeader",
    "MXIndexedRecordIO",
    "MXRecordIO",
    "pack",
    "pack_img",
    "unpack",
    "unpack_img",
]
