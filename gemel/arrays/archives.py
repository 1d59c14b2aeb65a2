"""NumPy's files: `.npy` for one array, `.npz` for several with names."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from io import BytesIO
from math import prod
from threading import get_ident
from typing import Any, NamedTuple

from gemel.arrays.making import array_like, from_numpy
from gemel.device import Device
from gemel.errors import ArgumentError, DTypeError, MissingFileError, ParameterFileError
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy

MAGIC = b"\x93NUMPY"
ZIP = b"PK\x03\x04", b"PK\x05\x06"
#: So many bytes of an open file are read at a time: what a damaged one says may be too many.
_PIECE = 1 << 26


class Archive(dict[str, Any]):
    """The arrays of a `.npz` file by name. As in NumPy, it has `files` and works with `with`."""

    @property
    def files(self) -> list[str]:
        """The names of the arrays."""
        return list(self)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Does nothing: the file has been read already."""


# --- writing --------------------------------------------------------------------------------


@function(public="np")
def save(file: Any, arr: Any, allow_pickle: bool = False) -> None:
    """Write an array into a `.npy` file: a path (the ending is added) or an open file, which may
    get several, one after the other.

    bfloat16, which NumPy lacks, is written as float32. The file appears complete or not at all.
    `allow_pickle` is accepted for old code: there are no arrays of objects.

    >>> np.save("one.npy", np.array([1.0, 2.0]))
    >>> np.load("one.npy")
    """
    _put("save", file, ".npy", _written(arr))


@function(public="np")
def savez(file: Any, *args: Any, **kwds: Any) -> None:
    """Write arrays into a `.npz` file, named by keywords; the others are named arr_0, arr_1, ...

    >>> np.savez("several.npz", np.array([1.0]), w=np.array([2.0]))
    >>> np.load("several.npz")["w"]
    """
    _put("savez", file, ".npz", packed("savez", args, kwds))


@function(public="np")
def savez_compressed(file: Any, *args: Any, **kwds: Any) -> None:
    """`savez` into a compressed file.

    >>> np.savez_compressed("small.npz", w=np.zeros((100,)))
    >>> np.load("small.npz")["w"].shape
    """
    _put("savez_compressed", file, ".npz", packed("savez_compressed", args, kwds, compressed=True))


def packed(
    name: str, arrays: Iterable[Any], named: dict[str, Any], compressed: bool = False
) -> bytes:
    """The bytes of a `.npz` file. Raises `ArgumentError` if two arrays have the same name."""
    from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

    held = {f"arr_{place}": value for place, value in enumerate(arrays)}
    twice = [each for each in held if each in named]
    if twice:
        raise ArgumentError(
            f"{name}: {twice[0]} is the name of a keyword and also of a positional array; rename "
            "the keyword"
        )
    content = BytesIO()
    with ZipFile(content, "w", ZIP_DEFLATED if compressed else ZIP_STORED) as archive:
        for each, value in {**held, **named}.items():
            archive.writestr(f"{each}.npy", _written(value))
    return content.getvalue()


def _written(value: Any) -> bytes:
    """The bytes of a `.npy` file."""
    content = BytesIO()
    numpy().lib.format.write_array(content, array_like(value).asnumpy(), allow_pickle=False)
    return content.getvalue()


def _put(name: str, file: Any, ending: str, content: bytes) -> None:
    if hasattr(file, "write"):
        file.write(content)
        return
    path = checked_path(name, "file", file)
    appear(path if path.endswith(ending) else path + ending, [content])


def checked_path(name: str, what: str, path: Any) -> str:
    """A path as text. Raises `ArgumentError`, which names the function and its argument."""
    if not isinstance(path, (str, bytes, os.PathLike)) or not os.fspath(path):
        raise ArgumentError(f"{name}: {what}={path!r} is not the path of a file")
    return os.fsdecode(path)


def appear(path: str, parts: Iterable[bytes]) -> None:
    """Write a file atomically: it is written next to its place and then moved there.

    A link stays and its target is replaced, and the permissions of an existing file are kept. Pipes
    and devices are written to directly. Each thread uses its own temporary name. Raises
    `MissingFileError` if there is no such folder, and for other failures the system's `OSError`,
    with the given path.
    """
    mode = _mode(path)
    place = os.path.realpath(path)
    beside = f"{place}.{os.getpid()}-{get_ident()}.part"
    try:
        if mode is not None and not stat.S_ISREG(mode):
            with open(path, "wb") as file:
                file.writelines(parts)
            return
        with open(beside, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, place)
    except BaseException as error:
        if os.path.exists(beside):
            os.unlink(beside)
        if isinstance(error, FileNotFoundError):
            folder = os.path.dirname(place if os.path.islink(path) else path)
            raise MissingFileError(
                f"{path} cannot be written: there is no folder {folder!r}"
            ) from None
        if isinstance(error, OSError) and error.errno and error.filename in (None, beside):
            raise OSError(error.errno, error.strerror, path) from None
        raise


def _mode(path: str) -> int | None:
    """The type and permissions of a file, or None if there is none."""
    try:
        return os.stat(path).st_mode
    except OSError:
        return None


# --- reading --------------------------------------------------------------------------------


def contents(what: str, path: str) -> bytes:
    """The bytes of a file that `what` reads. Raises `MissingFileError`, and for other failures the
    system's `OSError`."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise MissingFileError(f"{what}: {path} does not exist") from None


def is_numpys(content: bytes) -> bool:
    """Whether a file begins like a NumPy file."""
    return content.startswith((MAGIC, *ZIP))


def unpacked(path: str, content: bytes, device: Device) -> Any:
    """The contents of a NumPy file. Raises `ParameterFileError`."""
    if content.startswith(MAGIC):
        return _array(path, content, device)
    return Archive(
        (name, _array(f"{path}: {name}", part, device)) for name, part in _parts(path, content)
    )


def _parts(path: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    from zipfile import BadZipFile, ZipFile
    from zlib import error

    try:
        with ZipFile(BytesIO(content)) as archive:
            for name in archive.namelist():
                yield name.removesuffix(".npy"), archive.read(name)
    except (BadZipFile, EOFError, OSError, RuntimeError, ValueError, error) as reason:
        raise ParameterFileError(f"{path} is a damaged or truncated archive: {reason}") from None


class _Head(NamedTuple):
    """What a `.npy` file says about its array, and how many bytes its elements take."""

    dtype: Any
    shape: tuple[int, ...]
    backwards: bool
    size: int


def _head(path: str, opened: Any) -> _Head:
    """The head of a `.npy` file, which is then open at its elements.

    Raises `ParameterFileError`.
    """
    from tokenize import TokenError

    np = numpy()
    try:
        version = np.lib.format.read_magic(opened)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        shape, backwards, dtype = read(opened)
    except (ValueError, EOFError, SyntaxError, TypeError, TokenError) as reason:
        raise ParameterFileError(f"{path} is a damaged or truncated .npy file: {reason}") from None
    if dtype.hasobject:
        raise ParameterFileError(
            f"{path} holds pickled objects ({dtype}), which gemel does not read"
        )
    if any(extent < 0 for extent in shape):
        raise ParameterFileError(f"{path} is damaged: its array has the shape {list(shape)}")
    return _Head(dtype, shape, backwards, prod(shape) * dtype.itemsize)


class Opened:
    """An open file whose first bytes, `begin`, were read to see what it is."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._unread = b""
        self.begin = self._unread = self.exactly(len(MAGIC))

    def read(self, count: int) -> bytes:
        """The next bytes, at most `count`; none only at the end."""
        found, self._unread = self._unread[:count], self._unread[count:]
        return found or bytes(self._file.read(count) or b"")

    def exactly(self, count: int) -> bytes:
        """The next `count` bytes, or fewer if the file ends. A file may give fewer at a time."""
        parts = []
        while count and (part := self.read(min(count, _PIECE))):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def rest(self) -> bytes:
        """All further bytes."""
        found, self._unread = self._unread, b""
        return b"".join((found, self._file.read()))

    def next_array(self, path: str, device: Device) -> Array:
        """The array of a `.npy` file, of which no more is read than the array takes. Raises
        `ParameterFileError`."""
        head = _head(path, self)
        return _placed(path, head, self.exactly(head.size), device)


def _array(path: str, content: bytes, device: Device) -> Array:
    opened = BytesIO(content)
    head = _head(path, opened)
    end = opened.tell() + head.size
    if end < len(content):
        raise ParameterFileError(
            f"{path} is damaged: it continues after its array, which ends at byte {end}"
        )
    return _placed(path, head, memoryview(content)[opened.tell() :], device)


def _placed(path: str, head: _Head, elements: bytes | memoryview, device: Device) -> Array:
    """The array with these elements. Raises `ParameterFileError` if there are too few."""
    if len(elements) < head.size:
        raise ParameterFileError(
            f"{path} is damaged or truncated: {head.dtype}{list(head.shape)} takes {head.size} "
            f"bytes, but there are {len(elements)}"
        )
    order = "F" if head.backwards else "C"
    try:
        return from_numpy(numpy().ndarray(head.shape, head.dtype, elements, order=order), device)
    except DTypeError as reason:
        raise ParameterFileError(f"{path}: {reason}") from None


__all__ = [
    "Archive",
    "Opened",
    "appear",
    "contents",
    "is_numpys",
    "packed",
    "save",
    "savez",
    "savez_compressed",
]
