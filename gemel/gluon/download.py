"""Downloads: files are checked, appear only when complete, and continue after interruptions."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from gemel import config
from gemel.arrays.archives import checked_path
from gemel.errors import ArgumentError, MissingFileError
from gemel.ranges import check_flag, counted

#: Seconds without an answer after which a server is given up; the bytes read at a time.
PATIENCE = 20.0
PIECE = 1 << 20


def data_dir() -> str:
    """The folder of data sets and parameters: MXNET_HOME, or ``~/.mxnet``."""
    return str(config.HOME.read()) or os.path.join("~", ".mxnet")


def repository_url(namespace: str, filename: str) -> str:
    """The URL of a file; MXNET_GLUON_REPO selects another server."""
    return f"{str(config.REPOSITORY.read()).rstrip('/')}/{namespace}/{filename}"


def check_sha1(filename: Any, sha1_hash: str) -> bool:
    """Whether the file's SHA-1 begins with `sha1_hash`. Raises `ArgumentError` for what is no path
    or no text."""
    filename = checked_path("check_sha1", "filename", filename)
    _check_texts("check_sha1", sha1_hash=sha1_hash)
    found = hashlib.sha1(usedforsecurity=False)
    with open(filename, "rb") as file:
        while piece := file.read(PIECE):
            found.update(piece)
    return found.hexdigest().startswith(sha1_hash.lower())


def download(
    url: str,
    path: Any = None,
    overwrite: bool = False,
    sha1_hash: str | None = None,
    retries: int = 5,
    verify_ssl: bool = True,
) -> str:
    """Download a file to `path` (a file or folder, by default the working directory) and return its
    path.

    An existing file (with the right SHA-1, if one is given) is kept unless `overwrite`. The file
    appears only when it is complete. The next call continues an interrupted download if `sha1_hash`
    can verify the result. Processes that need the same file wait for each other. Raises
    `MissingFileError`, and `ArgumentError` for what is no URL, path, digest or count.
    """
    _check_texts("download", url=url, sha1_hash=sha1_hash or "")
    path = path if path is None else checked_path("download", "path", path)
    check_flag("download", "overwrite", overwrite)
    check_flag("download", "verify_ssl", verify_ssl)
    retries = counted("download", "retries", retries, 0)
    name = url.split("?")[0].rsplit("/", 1)[-1]
    target = Path(name if path is None else path).expanduser()
    target = target / name if target.is_dir() else target
    if not overwrite and _is_there(target, sha1_hash):
        return str(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with open(part, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not part.exists() or not os.path.samestat(os.stat(part), os.fstat(file.fileno())):
            # Another process has finished the download, or given up, while this one waited.
            return download(url, path, overwrite, sha1_hash, retries, verify_ssl)
        if not overwrite and _is_there(target, sha1_hash):
            # Another process has finished it between the check and the opening of this file.
            part.unlink()
            return str(target)
        trouble: object = ""
        for _ in range(retries + 1):
            try:
                _fetch(url, file, sha1_hash is not None, verify_ssl)
                file.flush()
                if sha1_hash is None or check_sha1(part, sha1_hash):
                    os.fsync(file.fileno())
                    os.replace(part, target)
                    return str(target)
                file.truncate(0)
                trouble = f"what came does not have the SHA-1 {sha1_hash}"
            except OSError as error:  # includes the errors of urllib and ssl
                trouble = error
                if not _may_pass(error):
                    break
        if sha1_hash is None or not os.fstat(file.fileno()).st_size:
            part.unlink()
    raise MissingFileError(
        f"{target} is missing, and could not be downloaded from {url}: {trouble}. Put the file "
        f"there yourself, or set another server in {config.REPOSITORY.name}"
    )


def _check_texts(name: str, **settings: Any) -> None:
    """Raise `ArgumentError` for settings that are no texts."""
    for setting, value in settings.items():
        if not isinstance(value, str):
            raise ArgumentError(f"{name}: {setting}={value!r} is not a text")


def _is_there(target: Path, sha1_hash: str | None) -> bool:
    return target.is_file() and (sha1_hash is None or check_sha1(target, sha1_hash))


def _may_pass(error: OSError) -> bool:
    """Whether a retry may help: the server was found, and did not refuse."""
    code = getattr(error, "code", None)
    if code is not None:
        return int(code) >= 500
    reason = getattr(error, "reason", error)
    return not isinstance(reason, (socket.gaierror, ConnectionRefusedError))


def _fetch(url: str, file: Any, resume: bool, verify_ssl: bool) -> None:
    """Append the missing part to the file. Raises `OSError`."""
    if not resume:
        file.truncate(0)
    have = os.fstat(file.fileno()).st_size
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    context = None if verify_ssl else ssl._create_unverified_context()
    try:
        answer = urlopen(request, timeout=PATIENCE, context=context)
    except HTTPError as error:
        if error.code == 416:  # the file is already complete
            return
        raise
    with answer:
        if have and answer.status != 206:  # the server sends the whole file
            file.truncate(0)
        length = answer.headers.get("Content-Length")
        got = 0
        try:
            while piece := answer.read(PIECE):
                file.write(piece)
                got += len(piece)
        except http.client.HTTPException as error:
            raise OSError(f"the connection was lost: {error}") from None
        if length is not None and got != int(length):
            raise OSError(f"the connection was lost after {got} of {length} bytes")


__all__ = ["check_sha1", "data_dir", "download", "repository_url"]
