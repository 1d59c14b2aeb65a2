"""Kernels by the text of their program: in memory, else on disk, else compiled.

A file of the disk cache is a header and an object. Its name is a hash of all that the code depends
on: the program, the target, the code generator and LLVM. A file that is damaged, or that another
user could have written, is not loaded but rebuilt, with a warning.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from gemel import _core
from gemel.codegen.program import Contraction, Program
from gemel.codegen.target import Target
from gemel.config import CACHE, CACHE_BYTES, DEBUG
from gemel.forking import compiling

MAGIC = b"gemel-kernel-1\n\0"
DIGEST = 32

_kernels: dict[str, Any] = {}
#: How many kernels were compiled, read from disk and found in memory: what counter tests look at.
counters = {"compiled": 0, "loaded": 0, "found": 0}


def kernel_for(program: Program | Contraction, target: Target) -> Any:
    """The loaded kernel of a program."""
    text = program.text
    kernel = _kernels.get(text)
    if kernel is not None:
        counters["found"] += 1
        return kernel
    kernel = _kernels[text] = _from_disk(text, target) or _compiled(program, text, target)
    return kernel


def compile_program(program: Program | Contraction, target: Target) -> bytes:
    """The object code of a program, by the compiler."""
    if isinstance(program, Contraction):
        from gemel.codegen.contract import compile_contraction

        return compile_contraction(program, target)
    from gemel.codegen.llvm import compile_program as compile_loops

    return compile_loops(program, target)


def object_for(program: Program | Contraction, target: Target) -> bytes:
    """The object code of a program, from disk where it is kept."""
    with contextlib.suppress(OSError), open(_path(program.text, target), "rb") as file:
        data = file.read()
        if _problem(os.fstat(file.fileno()), data) is None:
            return data[len(MAGIC) + DIGEST :]
    return compile_program(program, target)


def _compiled(program: Program | Contraction, text: str, target: Target) -> Any:
    counters["compiled"] += 1
    if DEBUG.read():
        print(
            f"gemel: compiling\n{text}" if DEBUG.read() > 1 else "gemel: compiling a kernel",
            file=sys.stderr,
        )
    with compiling:
        code = compile_program(program, target)
    kernel = _core.load_object(code)
    _store(_path(text, target), code)
    return kernel


def clear() -> None:
    """Forget the kernels in memory (those in use stay alive)."""
    _kernels.clear()


# --- disk -----------------------------------------------------------------------------------


def folder() -> str:
    """Where compiled kernels are kept."""
    chosen: str = CACHE.read()
    if chosen:
        return chosen
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "gemel")


def digest(data: bytes) -> bytes:
    """SHA-256, from Python's own module: hashlib would load OpenSSL first."""
    try:
        from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from _sha256 import sha256  # type: ignore[import-not-found,no-redef,unused-ignore]
    found: bytes = sha256(data).digest()
    return found


_fingerprint: list[str] = []


def fingerprint() -> str:
    """What stands for the code generator's sources and LLVM, found without importing either."""
    if not _fingerprint:
        here = os.path.join(os.path.dirname(os.path.dirname(__file__)), "codegen")
        sources = sorted(name for name in os.listdir(here) if name.endswith(".py"))
        stamps = [_stamp(os.path.join(here, name)) for name in sources]
        _fingerprint.append(f"{stamps} {_stamp(_compiler_file())}")
    return _fingerprint[0]


def _stamp(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return "none"
    return f"{found.st_size}:{found.st_mtime_ns}"


def _compiler_file() -> str:
    """A file of llvmlite that changes with its version."""
    for entry in sys.path:
        path = os.path.join(entry, "llvmlite", "binding", "libllvmlite.so")
        if os.path.exists(path):
            return path
    return ""


def _path(text: str, target: Target) -> str:
    name = digest(f"{text}\n{target.text}\n{fingerprint()}".encode()).hex()
    return os.path.join(folder(), name[:2], name + ".kernel")


def _from_disk(text: str, target: Target) -> Any:
    path = _path(text, target)
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            data = file.read()
    except OSError:
        return None
    problem = _problem(status, data)
    if problem is None:
        try:
            kernel = _core.load_object(data[len(MAGIC) + DIGEST :])
        except ValueError as error:
            problem = str(error)
        else:
            counters["loaded"] += 1
            return kernel
    _warn(f"gemel: the cached kernel {path} is not used and will be rebuilt: {problem}")
    return None


def _problem(status: os.stat_result, data: bytes) -> str | None:
    """Why a cache file must not be loaded, or None."""
    if hasattr(os, "getuid") and status.st_uid not in (os.getuid(), 0):
        return "it belongs to another user"
    if status.st_mode & 0o022:
        return "others may write it"
    if data[: len(MAGIC)] != MAGIC or len(data) <= len(MAGIC) + DIGEST:
        return "it is not a kernel file"
    if digest(data[len(MAGIC) + DIGEST :]) != data[len(MAGIC) : len(MAGIC) + DIGEST]:
        return "its checksum is wrong"
    return None


def _warn(message: str) -> None:
    import warnings

    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _store(path: str, code: bytes) -> None:
    """Keep a kernel; a folder that cannot be written only costs speed."""
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(MAGIC + digest(code) + code)
        os.replace(temporary, path)
    except OSError:
        return
    if counters["compiled"] % 64 == 0:
        evict(CACHE_BYTES.read())


def evict(limit: int) -> None:
    """Remove the oldest files until the folder holds at most `limit` bytes."""
    files = []
    for root, _, names in os.walk(folder()):
        for name in names:
            path = os.path.join(root, name)
            try:
                status = os.stat(path)
            except OSError:
                continue
            files.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            return
        try:
            os.unlink(path)
        except OSError:
            continue
        total -= size
