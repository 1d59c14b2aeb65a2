"""The connections between the workers of an MPI job: MPI itself, and sockets."""

from __future__ import annotations

import platform
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gemel import config
from gemel.kvstore.sockets import Connections, opened
from gemel.kvstore.waiting import LONGEST, Scratch, wait_until
from gemel.kvstore.ways import MOST_PAIRS, ways_of

if TYPE_CHECKING:
    from gemel import _core
    from gemel.kvstore.passing import Passing


class Wire(Protocol):
    """Connections between workers. All but `send` and `received` are collective calls."""

    rank: int
    #: The longest pause, in seconds, between two polls of a collective operation.
    pause: float
    #: Whether `received` sleeps until something arrives and sums can use the way `lines`.
    has_sockets: bool

    #: The courier, if there are sockets.
    courier: _core.Courier | None

    @property
    def machines(self) -> Sequence[int]:
        """The number of each rank's machine."""

    def send(self, rank: int, message: bytes) -> None:
        """Start to send a message."""

    def received(self, patience: float = 0.0) -> list[tuple[int, bytes]]:
        """The messages that have arrived, with the ranks that sent them.

        If `has_sockets` is true, wait for a message, for at most `patience` seconds.
        """

    def gathered(self, row: Any) -> Any:
        """The rows of all workers, in the order of ranks; all have the same length."""

    def summed(self, row: Any, way: str, lengths: Sequence[int]) -> Any:
        """The sum of the rows of all workers by a way; `lengths` are those of its requests."""

    def broadcast(self, row: Any) -> Any:
        """The row of rank 0."""


class MpiWire:
    """Workers connected by an MPI communicator of their own."""

    def __init__(self, communicator: Any, library: Any) -> None:
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()
        self._mpi = library
        self._messages = communicator.Dup()
        self._sums = communicator.Dup()
        #: The longest pause between two polls of a collective operation.
        self.pause = LONGEST
        self._sending: list[tuple[Any, bytes]] = []
        self._rows = Scratch()
        self._status = library.Status()
        self.machines = self._machines()
        self._connections: Connections | None = None
        chosen = config.SOCKETS.read()
        if 1 < self.size <= MOST_PAIRS:
            self._connections = opened(
                self.machines, self.rank, self.gathered, self.broadcast, chosen
            )
        #: Whether `received` sleeps until something arrives and there is a way `lines`.
        self.has_sockets = self._connections is not None
        self.courier = self._connections.courier if self._connections is not None else None
        self._passing: dict[str, Passing] = {}
        ways = ways_of(self.machines).values()
        self._schedules = {way.name: way.schedule for way in ways if way.schedule is not None}

    def _machines(self) -> tuple[int, ...]:
        """The number of each rank's machine, which is the lowest rank on it."""
        import numpy

        name = platform.node().encode()
        rows = self.gathered(numpy.array([zlib.crc32(name), len(name)], "int64")).tolist()
        return tuple(rows.index(row) for row in rows)

    def send(self, rank: int, message: bytes) -> None:
        """Start to send a message; the sender or the receiver is rank 0."""
        if self._connections is not None:
            self._connections.send(rank, message)
            return
        self._sending = [pair for pair in self._sending if not pair[0].Test()]
        self._sending.append((self._messages.Isend([message, self._mpi.BYTE], rank), message))

    def received(self, patience: float = 0.0) -> list[tuple[int, bytes]]:
        """The messages that have arrived, with their ranks; `patience` applies if there are
        sockets."""
        if self._connections is not None:
            return self._connections.received(patience)
        found = []
        status = self._status
        while self._messages.Iprobe(self._mpi.ANY_SOURCE, self._mpi.ANY_TAG, status):
            message = bytearray(status.Get_count(self._mpi.BYTE))
            self._messages.Recv([message, self._mpi.BYTE], status.Get_source())
            found.append((status.Get_source(), bytes(message)))
        return found

    def gathered(self, row: Any) -> Any:
        """The rows of all workers, in the order of ranks; all have the same length.

        The next call reuses the memory of the result.
        """
        found = self._rows.take(self.size * row.nbytes).view(row.dtype)
        self._finish(self._sums.Iallgather(self._bytes(row), self._bytes(found)))
        return found.reshape(self.size, row.size)

    def summed(self, row: Any, way: str, lengths: Sequence[int]) -> Any:
        """The sum of the rows of all workers by a way; `lengths` are those of its requests."""
        import numpy

        if way == "lines" and self._connections is not None:
            return self._connections.summed(row)
        if way == "gather" or self.size == 1:
            return _added(self.gathered(row))
        if way == "pieces" or (way == "mpi" and row.dtype.kind not in "iufc"):
            return self._by_pieces(row)
        if way == "mpi":
            total = numpy.empty_like(row)
            self._finish(self._sums.Iallreduce(row, total))
            return total
        if way not in self._passing:
            from gemel.kvstore.passing import Passing  # it needs NumPy

            self._passing[way] = Passing(self._schedules[way], self.rank)
        return self._passing[way].summed(row, lengths, self)

    def _by_pieces(self, row: Any) -> Any:
        """Each worker adds up one piece in the order of ranks and sends it to all."""
        import numpy

        ends = [row.size * rank // self.size for rank in range(self.size + 1)]
        counts = [b - a for a, b in zip(ends[:-1], ends[1:], strict=True)]
        mine = counts[self.rank]
        pieces = numpy.empty((self.size, mine), row.dtype)
        item = row.itemsize
        here = [item * mine] * self.size, [item * mine * rank for rank in range(self.size)]
        there = [item * n for n in counts], [item * start for start in ends[:-1]]
        self._finish(
            self._sums.Ialltoallv(
                [self._raw(row), there, self._mpi.BYTE], [self._raw(pieces), here, self._mpi.BYTE]
            )
        )
        total = numpy.empty_like(row)
        self._finish(
            self._sums.Iallgatherv(
                self._bytes(_added(pieces)), [self._raw(total), there, self._mpi.BYTE]
            )
        )
        return total

    def start_send(self, rank: int, array: Any) -> Any:
        """Begin to send an array, which must not change until `finish`."""
        return self._sums.Isend(self._bytes(array), rank)

    def start_receive(self, rank: int, array: Any) -> Any:
        """Begin to fill an array."""
        return self._sums.Irecv(self._bytes(array), rank)

    def finish(self, begun: Sequence[Any]) -> None:
        """Wait for the sends and receives that have begun."""
        waiting = list(begun)
        wait_until(lambda: bool(self._mpi.Request.Testall(waiting)), longest=self.pause)

    def _finish(self, begun: Any) -> None:
        """Wait for a collective operation, leaving the core to threads that compute."""
        wait_until(begun.Test, longest=self.pause)

    def broadcast(self, row: Any) -> Any:
        """The row of rank 0."""
        self._sums.Bcast(self._bytes(row), 0)
        return row

    def _bytes(self, array: Any) -> list[Any]:
        return [self._raw(array), self._mpi.BYTE]

    @staticmethod
    def _raw(array: Any) -> Any:
        return array.reshape(-1).view("uint8")


def _added(rows: Any) -> Any:
    """The sum of the rows in the order of ranks; it overwrites the first row."""
    total = rows[0]
    for row in rows[1:]:
        total += row
    return total


__all__ = ["MpiWire", "Wire"]
