"""A server's files: snapshots of its state, and a log of the messages since the last one.

`snapshot.N` is a state, and `log.N` has the messages that came after it. A snapshot is written to
another file, which is then renamed. Both kinds of file are checked when they are read. What a
killed process wrote is kept, because nothing stays in Python's buffers. After a power failure, data
that the system had not yet written to disk may be missing, unless `durable`. The server holds
`lock`, because a second server on the same files would cut off what the first one is writing.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import struct
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemel.errors import JournalError, KVStoreError
from gemel.kvstore.server.entries import Entry
from gemel.kvstore.server.protocol import Decoder, Message, encode
from gemel.kvstore.server.state import State
from gemel.kvstore.server.updates import Updates

if TYPE_CHECKING:
    import numpy

#: After this many seconds of work a snapshot is due, because reading the log repeats that work. To
#: limit the share of time spent on snapshots, the next one is due only after this many times the
#: seconds that the last one took.
REPLAY = 1.0
SELDOM = 5.0
#: The head of a log record: rank and length of the message; then two CRC-32s, of the head and of
#: the message. The head has its own because a wrong length would look like the end of the log.
HEAD = struct.Struct(">II")
CHECKS = struct.Struct(">II")
#: The head of a snapshot: magic and length of the description. Then come that, arrays and SHA-256.
SNAPSHOT = struct.Struct(">4sQ")
MAGIC = b"GKS1"


class Journal:
    """The files in `folder`, which is created. Raises `JournalError` if it cannot be.

    A snapshot is due after `limit` bytes of log, or after messages that took `replay` seconds.
    """

    def __init__(
        self,
        folder: Path,
        limit: int = 256 << 20,
        durable: bool = False,
        replay: float = REPLAY,
    ) -> None:
        self.folder = folder
        self.limit = limit
        self.durable = durable
        self._replay = replay
        self._spent = 0.0
        self._number = 0
        self._written = 0
        self._log = self._lock = -1
        #: Whether the loaded files were left by another job.
        self.is_new_job = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JournalError(
                f"{folder}: the journal's folder cannot be created: {error}"
            ) from None

    def load(self, workers: int) -> State:
        """Read the state from the files, and open the log for more. Raises `JournalError`.

        If the number of `workers` differs from that of the files, or the job of the files has
        ended, a new job continues from their values and rounds (`State.begin_anew`).
        """
        try:
            self._take_lock()
            return self._load(workers)
        except OSError as error:
            self.close()
            raise JournalError(f"{self.folder}: the journal cannot be read: {error}") from None
        except BaseException:
            self.close()
            raise

    def _take_lock(self) -> None:
        """Become the only server of this folder, until `close` or the end of the process."""
        self._lock = os.open(self.folder / "lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(
                f"{self.folder}: a running server already keeps its journal here; give each "
                "server its own --folder"
            ) from None
        except OSError:  # a file system without locks
            return

    def _load(self, workers: int) -> State:
        """Load the state; may also raise `OSError`."""
        numbers = self._numbers("snapshot")
        logs = self._numbers("log")
        state = State(workers)
        if logs and (not numbers or logs[-1] > numbers[-1]):
            raise JournalError(
                f"{self.folder}: log.{logs[-1]} continues snapshot.{logs[-1]}, which is missing"
            )
        if numbers:
            self._number = numbers[-1]
            state = read_snapshot(self.folder / f"snapshot.{self._number}")
        else:
            write_snapshot(self.folder / "snapshot.0", state)  # it records the number of workers
        path = self.folder / f"log.{self._number}"
        begun = time.monotonic()
        good = _replay(path, state) if path.exists() else 0
        self._spent = time.monotonic() - begun
        self._log = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        self._settle()
        os.ftruncate(self._log, good)  # drop an incomplete last record
        os.lseek(self._log, good, os.SEEK_SET)
        self._written = good
        self.is_new_job = state.workers != workers or not state.live
        if self.is_new_job:
            state.begin_anew(workers)
            self.snapshot(state)
        return state

    def _numbers(self, name: str) -> list[int]:
        """The sorted numbers of the snapshots or logs in the folder."""
        found = (path.suffix[1:] for path in self.folder.glob(f"{name}.*"))
        return sorted(int(number) for number in found if number.isdecimal())

    def append(self, rank: int, message: Message, seconds: float = 0.0) -> None:
        """Append a message, which took the state this many seconds, to the log."""
        header, body = encode(message)
        check = zlib.crc32(body, zlib.crc32(header))
        head = HEAD.pack(rank, len(header) + len(body))
        record = head + CHECKS.pack(zlib.crc32(head), check) + header
        for part in (record, body):
            view = memoryview(part)
            while view:
                view = view[os.write(self._log, view) :]
        if self.durable:
            os.fsync(self._log)
        self._written += len(record) + len(body)
        self._spent += seconds

    @property
    def is_full(self) -> bool:
        """Whether a snapshot is due."""
        return self._written > self.limit or self._spent > self._replay

    def snapshot(self, state: State) -> None:
        """Write the state to a new snapshot, and begin another log."""
        number = self._number + 1
        begun = time.monotonic()
        write_snapshot(self.folder / f"snapshot.{number}", state)
        path = self.folder / f"log.{number}"
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.close(self._log)
        self._log = log
        self._number, self._written = number, 0
        self._settle()
        self._spent = 0.0
        self._replay = max(self._replay, SELDOM * (time.monotonic() - begun))

    def _settle(self) -> None:
        """Once the names of the snapshot and its log are on disk, remove older files: those of the
        last snapshot, and what a process left that died while it wrote one."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot
                raise
        finally:
            os.close(folder)
        for kind in ("snapshot", "log", "new.snapshot"):
            for number in self._numbers(kind):
                if number != self._number:
                    (self.folder / f"{kind}.{number}").unlink(missing_ok=True)

    def close(self) -> None:
        """Close the log and release the folder."""
        for file in (self._log, self._lock):
            if file >= 0:
                os.close(file)
        self._log = self._lock = -1


def _replay(path: Path, state: State) -> int:
    """Apply the messages of a log; returns how many of its bytes are whole records."""
    good = 0
    decoder = Decoder()
    with path.open("rb") as file:
        begin = HEAD.size + CHECKS.size
        while len(found := file.read(begin)) == begin:
            (rank, size), checks = HEAD.unpack_from(found), CHECKS.unpack_from(found, HEAD.size)
            whole = zlib.crc32(found[: HEAD.size]) == checks[0]
            data = file.read(size) if whole else b""
            if whole and len(data) < size:
                break
            if not whole or zlib.crc32(data) != checks[1]:
                raise JournalError(f"{path}: the record at byte {good} is damaged")
            try:
                (message,) = decoder.feed(data)
                state.apply(rank, message)
            except (KVStoreError, ValueError) as error:
                raise JournalError(f"{path}: the record at byte {good}: {error}") from None
            good += begin + size
    return good


# ---- snapshots


def write_snapshot(path: Path, state: State) -> None:
    """Write a state to a file, completely or not at all."""
    arrays: list[Any] = []
    text = json.dumps(_described(state, arrays)).encode()
    temporary = path.with_name(f"new.{path.name}")
    check = hashlib.sha256()
    with temporary.open("wb") as file:
        for part in (SNAPSHOT.pack(MAGIC, len(text)), text, *map(_bytes, arrays)):
            check.update(part)
            file.write(part)
        file.write(check.digest())
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


def read_snapshot(path: Path) -> State:
    """Read the state from a file. Raises `JournalError` if the file is damaged."""
    data = path.read_bytes()
    body, digest = data[:-32], data[-32:]
    if len(data) < SNAPSHOT.size + 32 or hashlib.sha256(body).digest() != digest:
        raise JournalError(f"{path}: this snapshot is damaged")
    magic, size = SNAPSHOT.unpack_from(body)
    if magic != MAGIC:
        raise JournalError(f"{path}: this is not a snapshot of a server")
    return _restored(json.loads(body[SNAPSHOT.size :][:size]), body, SNAPSHOT.size + size)


def _bytes(array: Any) -> Any:
    import numpy

    dense = numpy.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return dense.reshape(-1).view(numpy.uint8).data


def _described(state: State, arrays: list[Any]) -> dict[str, Any]:
    """A state as JSON, in which an array is a position in `arrays`."""

    def kept(array: Any) -> int | None:
        if array is None:
            return None
        arrays.append(array)
        return len(arrays) - 1

    entries = []
    for number, entry in state.entries.items():
        pending = [
            [sequence, rank, kept(array), numbers]
            for sequence, pushes in entry.pending.items()
            for rank, (array, numbers) in pushes.items()
        ]
        numbers = [entry.version, entry.share, entry.previous_share]
        values = [kept(entry.value), kept(entry.previous)]
        ranks = [list(entry.last.items()), list(entry.start.items())]
        entries.append([number, entry.describe(), numbers, values, ranks, pending])
    rule = None
    if state.updates is not None:
        counts, states = state.updates.states()
        kept_states = [[key, [kept(array) for array in found]] for key, found in states.items()]
        rule = [state.updates.description, list(counts.items()), kept_states]
    description = {
        "workers": state.workers,
        "place": state.place,
        "gone": sorted(state.gone),
        "finished": sorted(state.finished),
        "entries": entries,
        "rule": rule,
    }
    description["arrays"] = [[array.dtype.name, list(array.shape)] for array in arrays]
    return description


def _restored(description: dict[str, Any], data: bytes, offset: int) -> State:
    """The state of a snapshot: its description, and the bytes of its arrays from an offset on."""
    import numpy

    arrays: list[numpy.ndarray[Any, Any]] = []
    for name, shape in description["arrays"]:
        kind = numpy.dtype(name).newbyteorder("<")
        array = numpy.ndarray(tuple(shape), kind, data, offset).astype(name)
        arrays.append(array)
        offset += array.nbytes
    state = State(description["workers"])
    if description.get("place") is not None:  # files of earlier versions have none
        state.place = tuple(description["place"])
    state.gone, state.finished = set(description["gone"]), set(description["finished"])
    for number, said, numbers, values, ranks, pending in description["entries"]:
        entry = Entry(**{**said, "shape": tuple(said["shape"])})
        entry.version, entry.share, entry.previous_share = numbers
        entry.value, entry.previous = (None if at is None else arrays[at] for at in values)
        entry.last, entry.start = (dict(map(tuple, pairs)) for pairs in ranks)
        for sequence, rank, at, given in pending:
            entry.pending.setdefault(sequence, {})[rank] = arrays[at], tuple(given)
        state.entries[number] = entry
    if description["rule"] is not None:
        said, counts, states = description["rule"]
        state.updates = Updates(said)
        found = {key: [arrays[at] for at in kept] for key, kept in states}
        state.updates.restore(dict(map(tuple, counts)), found)
    return state


__all__ = ["Journal", "read_snapshot", "write_snapshot"]
