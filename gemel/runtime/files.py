"""The disk cache: files named by a hash of all that their content depends on.

A file is a header and its content: the object code of a kernel, or a plan. A file that is damaged,
or that another user could have written, is not used. A warning says so, and it is made again.
"""

from __future__ import annotations

import os
import struct
import sys
import warnings
import zlib
from collections.abc import Callable
from typing import TypeVar

from gemel.config import CACHE, CACHE_BYTES

try:  # Python's own module: hashlib would load OpenSSL first
    from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # before Python 3.12
    from _sha256 import sha256  # type: ignore[import-not-found,no-redef,unused-ignore]

MAGIC = b"gemel-cache-2\n\0\0"
#: After the magic bytes: a CRC of the name and the content. It detects damage; owner and
#: permissions protect against attacks, so it need not be cryptographic.
CHECKSUM = struct.Struct("<I")
HEADER = len(MAGIC) + CHECKSUM.size

Made = TypeVar("Made")


def folder() -> str:
    """The folder of the files."""
    chosen: str = CACHE.read()
    if chosen:
        return chosen
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "gemel")


def digest(data: bytes) -> bytes:
    """SHA-256."""
    hashed: bytes = sha256(data).digest()
    return hashed


def name_of(*texts: str) -> str:
    """The name of a file whose content these texts determine."""
    return digest("\n".join(texts).encode()).hex()


def _path(name: str, kind: str) -> str:
    return os.path.join(folder(), name[:2], f"{name}.{kind}")


# --- the version of the code that makes the files -------------------------------------------

PACKAGE = os.path.dirname(os.path.dirname(__file__))

_fingerprints: dict[tuple[str, ...], str] = {}


def fingerprint(*places: str) -> str:
    """A hash of gemel's version and of the size and time of some sources, the core and LLVM.

    A place is a source file, or a folder for all files in it ("." for those of the package that
    are in no other folder). Nothing is imported for this. Times alone would not be enough: some
    installers give all files the same time.
    """
    if places not in _fingerprints:
        stamps = [_stamp(path) for place in places for path in _sources(place)]
        core = sys.modules["gemel._core"].__file__ or ""
        version = getattr(sys.modules["gemel"], "__version__", "")
        text = f"{version} {stamps} {_stamp(core)} {_stamp(_compiler_file())}"
        _fingerprints[places] = name_of(text)
    return _fingerprints[places]


def _sources(place: str) -> list[str]:
    """The paths of a place's files, in order."""
    path = os.path.join(PACKAGE, place)
    if place.endswith(".py"):
        return [path]
    folders = [path] if place == "." else [folder for folder, _, _ in os.walk(path)]
    entries = (entry for folder in folders for entry in os.scandir(folder))
    return sorted(entry.path for entry in entries if entry.name.endswith(".py"))


def _stamp(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return "none"
    return f"{status.st_size}:{status.st_mtime_ns}"


def _compiler_file() -> str:
    """A file of llvmlite that changes with its version."""
    for entry in sys.path:
        path = os.path.join(entry, "llvmlite", "binding", "libllvmlite.so")
        if os.path.exists(path):
            return path
    return ""


# --- reading --------------------------------------------------------------------------------


def load(name: str, kind: str, read: Callable[[bytes], Made | None]) -> Made | None:
    """The result of `read` on a file's content; None if there is no valid file.

    `read` raises `ValueError` for invalid content.
    """
    path = _path(name, kind)
    try:
        status, data = _contents(path)
    except OSError:
        return None
    problem = _problem(status, data, name)
    if problem is None:
        try:
            return read(data[HEADER:])
        except ValueError as error:
            problem = str(error)
    _warn(f"gemel: the cached {kind} {path} is not used and will be rebuilt: {problem}")
    return None


def _contents(path: str) -> tuple[os.stat_result, bytes]:
    """A file's status and bytes, in half the time `open` takes. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe does not wait for a writer
    try:
        status = os.fstat(descriptor)
        return status, os.read(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def _seal(name: str, content: bytes | memoryview) -> bytes:
    return CHECKSUM.pack(zlib.crc32(content, zlib.crc32(name.encode())))


def sealed(name: str, content: bytes) -> bytes:
    """The bytes of a file. Its checksum covers the name: a renamed file is invalid."""
    return MAGIC + _seal(name, content) + content


def _problem(status: os.stat_result, data: bytes, name: str) -> str | None:
    """Why a file must not be used, or None."""
    if hasattr(os, "getuid") and status.st_uid not in (os.getuid(), 0):
        return "it belongs to another user"
    if status.st_mode & 0o022:
        return "others may write it"
    if data[: len(MAGIC)] != MAGIC or len(data) <= HEADER:
        return "it is not a file of the cache"
    if _seal(name, memoryview(data)[HEADER:]) != data[len(MAGIC) : HEADER]:
        return "its checksum is wrong"
    return None


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)


# --- writing --------------------------------------------------------------------------------

#: The least space that a file takes on disk.
LEAST = 4096
#: How many folders the files are spread over: by the first two hexadecimal digits of their names.
FOLDERS = 256


def store(name: str, kind: str, content: bytes) -> None:
    """Write a file. If that fails, nothing is lost but speed."""
    path = _path(name, kind)
    # Random, not the process id: containers may give the same id at each start, and the temporary
    # file of a killed process would then be in the way.
    temporary = f"{path}.{os.urandom(8).hex()}"
    kept = False
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(sealed(name, content))
        os.replace(temporary, path)
        kept = True
    except OSError:
        return
    finally:
        if not kept:
            _remove(temporary)
    if name[2] == "0":  # for one file in 16, whichever process writes it
        evict(os.path.dirname(path), CACHE_BYTES.read() // FOLDERS)


def _remove(path: str) -> bool:
    """Delete a file; return whether that succeeded."""
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def evict(place: str, limit: int) -> None:
    """Remove the least recently used files of one folder until they take at most `limit` bytes.

    Names are hashes, so all folders hold about as much. To look at one of them takes milliseconds;
    to look at all files of a full cache would take seconds.
    """
    files = []
    for entry in _entries(place):
        try:
            status = entry.stat()
        except OSError:
            continue
        # The time of the last access is updated once a day, or never: see mount(8).
        used = max(status.st_atime_ns, status.st_mtime_ns)
        files.append((used, max(status.st_size, LEAST), entry.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            return
        if _remove(path):
            total -= size


def _entries(place: str) -> list[os.DirEntry[str]]:
    """The files of a folder; none if another process has removed it."""
    try:
        with os.scandir(place) as entries:
            return list(entries)
    except OSError:
        return []


__all__ = ["digest", "evict", "fingerprint", "folder", "load", "name_of", "store"]
