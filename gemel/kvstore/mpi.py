"""`dist_sync`: the workers of a job add up over MPI, all in step.

Every worker keeps its own replica of all values and changes it in the same way by the same sums,
so that the replicas are the same bits; nothing but sums travels, and rank 0's values at the start.
"""

from __future__ import annotations

import atexit
import os
import platform
import threading
import zlib
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from gemel import __version__, autograd, config, np
from gemel.device import CPUS, Device
from gemel.errors import WorkersError
from gemel.kvstore import compression
from gemel.kvstore.base import pairs
from gemel.kvstore.lines import Lines, opened
from gemel.kvstore.local import LocalStore, check_alike
from gemel.kvstore.waiting import LONGEST, Scratch, wait_until
from gemel.kvstore.ways import MOST_PAIRS, ways_of
from gemel.kvstore.world import World
from gemel.passes.rows import bounds_of

if TYPE_CHECKING:
    from gemel.kvstore.passing import Passing
    from gemel.links import Topology

#: How MPI's starters tell a process how many there are.
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE")
#: What has no sum in NumPy, or one of few bits, is added as float32.
NARROW = ("float16", "bfloat16")


class MpiStore(LocalStore):
    """Sums over all workers of an MPI job, of which each may have several devices.

    Everything that is pushed is a request all workers have to come with: the same keys, shapes,
    dtypes and compression, in any order. Whoever is waited for longer than `timeout` seconds
    (``GEMEL_WORKERS_TIMEOUT``) makes all requests fail with a `WorkersError` that names the worker
    and the key, and no other request succeeds after that. Raises `WorkersError` where there is no
    MPI.
    """

    def __init__(self, name: str, on_devices: bool = True) -> None:
        super().__init__(name, on_devices)
        self._world = world()
        self._number = self._world.number_store()
        self._world.ways.set_rule(self._number, config.SCHEDULE.read())
        self._world_compression: compression.Compression | None = None

    @property
    def rank(self) -> int:
        """Which of the workers this process is, from 0."""
        return self._world.rank

    @property
    def num_workers(self) -> int:
        """How many processes train together."""
        return self._world.size

    def statistics(self) -> dict[str, float]:
        """What this worker has sent, for all its stores, since it began.

        ``requests``, the ``groups`` in which they went, their ``bytes`` before and ``seconds`` of
        communication, from when all workers had come; for each way of adding up that was taken, as
        ``by ring``, how many groups went so.
        """
        went = {f"by {name}": float(count) for name, count in self._world.went.items()}
        return {**self._world.done, **went}

    def set_schedule(self, schedule: str) -> None:
        """How sums of this store are made from now on; waits until all workers say the same.

        ``"ranks"`` (the default, or what ``GEMEL_SCHEDULE`` says): the fastest of the ways that add
        in the order of ranks, so that bits depend on nothing else. ``"any"``: the fastest of all.
        A way's name, as `explain` lists them, or several with the bytes up to which they go, as
        ``"gather:65536,ring"``: the same bits in every run of as many workers. Raises
        `UnknownNameError`, and `WorkersError` where workers disagree.
        """
        rule = self._world.ways.check(schedule)
        note = f"schedule {rule}"
        self._world.issue(self._number, "the schedule", "meet", note=note).wait_to_read()
        self._world.ways.set_rule(self._number, rule)

    def explain(self, topology: Topology | str | None = None, sizes: Sequence[int] = ()) -> str:
        """How sums are made between the workers, what was measured, and why: the same on all.

        `sizes` are the bytes that are shown, by default those that were measured. With a `topology`
        how gradients of `sizes` best meet over its links, as other stores say it.
        """
        if topology is not None:
            return super().explain(topology, sizes)
        return self._world.ways.explain(self._world.ways.rule(self._number), sizes)

    def barrier(self) -> None:
        """Wait until all workers are here. Raises `WorkersError` when one does not come."""
        self._world.issue(self._number, "a barrier", "meet").wait_to_read()

    def gathered(self, text: str) -> list[str]:
        """What each worker says, by rank; waits until all have said it."""
        import numpy

        said = numpy.frombuffer(text.encode(), "uint8")
        sizes = self._rows("the length of what workers say", numpy.array([said.size]))[:, 0]
        longest = numpy.zeros(int(sizes.max()), "uint8")
        longest[: said.size] = said
        rows = self._rows("what workers say", longest)
        return [bytes(row[:size]).decode() for row, size in zip(rows, sizes, strict=True)]

    def _rows(self, name: str, row: Any) -> Any:
        """The rows of all workers, as a NumPy array."""
        given = np.array(row, dtype=row.dtype.name)
        result = given._code, (self.num_workers, given.size)
        return self._world.issue(self._number, name, "gather", [given], result).asnumpy()

    # ---- values

    def init(self, key: Any, value: Any) -> None:
        """Give each key its first value on all workers: the (first) array of rank 0."""
        for one, values in pairs(key, value):
            with autograd.pause():
                place = self._place(values, 0)
                host = values[0].as_in_ctx(CPUS[0])
                found = self._world.issue(self._number, _named(one), "broadcast", [host])
                self._values[one] = found.copyto(place)

    def totals(
        self,
        keys: Sequence[Any],
        values: Sequence[Sequence[Any]],
        devices: Sequence[Device],
        blocks: Sequence[Sequence[Sequence[Any]]] = (),
    ) -> list[list[Any]]:
        """For each device the sums over all workers of the arrays of each key.

        Each key's sum sets out when backward has written it, last keys first; where several could,
        first keys go first: the next forward begins with them. A large one goes in blocks of its
        rows, each when it is there, so that it is on its way while its end is computed.
        """
        return self._one_by_one(keys, values, devices, blocks)

    def blocks(self, value: Any) -> int:
        """In how many blocks of rows a gradient like this array goes to the other workers.

        The same on all of them, whatever they have: `explain` says why.
        """
        if not value.ndim or not value.size:
            return 1
        rows: int = value.shape[0]
        kept = value.dtype.name in NARROW or self._compresses(value)
        nbytes = value.size * (4 if kept else value.dtype.itemsize)
        method = self._world_compression
        share = method.share if method is not None and self._compresses(value) else 1.0
        ways = self._world.ways
        return min(ways.blocks(ways.rule(self._number), nbytes * share), rows)

    def _compresses(self, value: Any) -> bool:
        return self._world_compression is not None and value.dtype.kind == "f"

    def _total(
        self,
        key: Any,
        values: Sequence[Any],
        place: Device,
        priority: int,
        blocks: Sequence[Sequence[Any]] = (),
    ) -> Any:
        check_alike(key, values)
        count = self.blocks(values[0])
        if count == 1:
            return self._over_workers(_named(key), key, values, place, priority)
        bounds = bounds_of(values[0].shape[0], count)
        totals = []
        for number, (start, end) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
            # All workers cut alike, whether backward has or not.
            parts = [
                early[number] if len(early) == count else value[start:end]
                for value, early in zip_longest(values, blocks, fillvalue=())
            ]
            name = f"{_named(key)}, rows {start} to {end - 1}"
            totals.append(self._over_workers(name, (key, number), parts, place, priority))
        return np.concatenate(totals)

    def _over_workers(
        self, name: str, kept: Any, values: Sequence[Any], place: Device, priority: int
    ) -> Any:
        """The sum over all workers, in the order of ranks, of arrays that all have.

        `kept` says whose losses are kept where that is compressed.
        """
        own = values[0] if len(values) == 1 else self._sum(values, place)
        own = own.as_in_ctx(CPUS[0]) if own.device.linked else own
        if self._compresses(own):
            return self._compressed(name, kept, own, priority).as_in_ctx(place)
        wide = own.astype("float32") if own.dtype.name in NARROW else own
        total = self._world.issue(self._number, name, "sum", [wide], priority=priority)
        return total.astype(own.dtype, copy=False).as_in_ctx(place)

    def _compressed(self, name: str, kept: Any, own: Any, priority: int) -> Any:
        """The same in fewer bits: every worker gets the codes of all."""
        method = self._world_compression
        assert method is not None
        codes = method.encode(kept, own)
        result = codes._code, (self.num_workers, codes.size)
        note = f"{method.name}, of shape {tuple(own.shape)}"
        rows = self._world.issue(self._number, name, "gather", [codes], result, priority, note)
        total = method.decode(rows[0], own)
        for rank in range(1, self.num_workers):
            total = total + method.decode(rows[rank], own)
        return total

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Send gradients in fewer bits between workers; all must say the same.

        What an element loses stays with its worker, which adds it to what it sends next.
        """
        self._world_compression = compression.create(compression_params)


def _named(key: Any) -> str:
    return f"key {key!r}"


# ---- MPI


class MpiWire:
    """Workers connected by an MPI communicator of their own."""

    def __init__(self, communicator: Any, library: Any) -> None:
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()
        self._mpi = library
        self._messages = communicator.Dup()
        self._sums = communicator.Dup()
        #: The longest pause between two looks at what all do together.
        self.pause = LONGEST
        self._sending: list[tuple[Any, bytes]] = []
        self._rows = Scratch()
        self._status = library.Status()
        self.machines = self._machines()
        self._lines: Lines | None = None
        if 1 < self.size <= MOST_PAIRS:
            self._lines = opened(self.machines, self.rank, self.gathered, self.broadcast)
        #: Whether `received` sleeps until something comes, and there is a way `lines`.
        self.lines = self._lines is not None
        self._passing: dict[str, Passing] = {}
        ways = ways_of(self.machines).values()
        self._schedules = {way.name: way.schedule for way in ways if way.schedule is not None}

    def _machines(self) -> tuple[int, ...]:
        """For each rank the number of its machine, by the first rank that is there."""
        import numpy

        name = platform.node().encode()
        rows = self.gathered(numpy.array([zlib.crc32(name), len(name)], "int64")).tolist()
        return tuple(rows.index(row) for row in rows)

    def send(self, rank: int, message: bytes) -> None:
        """Send a message on its way; rank 0 is at one end of it."""
        if self._lines is not None:
            self._lines.send(rank, message)
            return
        self._sending = [pair for pair in self._sending if not pair[0].Test()]
        self._sending.append((self._messages.Isend([message, self._mpi.BYTE], rank), message))

    def received(self, patience: float = 0.0) -> list[tuple[int, bytes]]:
        """The messages that have come, with the ranks they come from; `patience` as by lines."""
        if self._lines is not None:
            return self._lines.received(patience)
        found = []
        status = self._status
        while self._messages.Iprobe(self._mpi.ANY_SOURCE, self._mpi.ANY_TAG, status):
            message = bytearray(status.Get_count(self._mpi.BYTE))
            self._messages.Recv([message, self._mpi.BYTE], status.Get_source())
            found.append((status.Get_source(), bytes(message)))
        return found

    def gathered(self, row: Any) -> Any:
        """The rows of all workers, in the order of ranks; all are as long.

        They lie in memory the next call takes again.
        """
        found = self._rows.take(self.size * row.nbytes).view(row.dtype)
        self._finish(self._sums.Iallgather(self._bytes(row), self._bytes(found)))
        return found.reshape(self.size, row.size)

    def summed(self, row: Any, way: str, lengths: Sequence[int]) -> Any:
        """The sum of the rows of all workers, by a way; `lengths` are those of its requests."""
        import numpy

        if way == "lines" and self._lines is not None:
            return self._lines.summed(row)
        if way == "gather" or self.size == 1:
            return _added(self.gathered(row))
        if way == "pieces" or (way == "mpi" and row.dtype.kind not in "iufc"):
            return self._by_pieces(row)
        if way == "mpi":
            total = numpy.empty_like(row)
            self._finish(self._sums.Iallreduce(row, total))
            return total
        if way not in self._passing:
            from gemel.kvstore.passing import Passing

            self._passing[way] = Passing(self._schedules[way], self.rank)
        return self._passing[way].summed(row, lengths, self)

    def _by_pieces(self, row: Any) -> Any:
        """Each worker adds up a piece, in the order of ranks, and gives it to all."""
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
        """Begin to send an array, which must stay as it is until `finish`."""
        return self._sums.Isend(self._bytes(array), rank)

    def start_receive(self, rank: int, array: Any) -> Any:
        """Begin to fill an array."""
        return self._sums.Irecv(self._bytes(array), rank)

    def finish(self, begun: Sequence[Any]) -> None:
        """Wait for what has begun."""
        waiting = list(begun)
        wait_until(lambda: bool(self._mpi.Request.Testall(waiting)), longest=self.pause)

    def _finish(self, begun: Any) -> None:
        """Wait for what all workers do, leaving the core to who computes."""
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
    """The sum of the rows, in the order of ranks; it is made in the first of them."""
    total = rows[0]
    for row in rows[1:]:
        total += row
    return total


class _Joined:
    """The world this process has joined: MPI is one for a process, too."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.world: World | None = None


_joined = _Joined()


def world() -> World:
    """The workers of this MPI job, joined at the first call; it takes all of them.

    Raises `WorkersError` where there is no MPI, or the workers do not fit together.
    """
    with _joined.lock:
        if _joined.world is None:
            library = _library()
            communicator = library.COMM_WORLD
            _check_size(communicator.Get_size(), library)
            found = World(MpiWire(communicator, library), config.WORKERS_TIMEOUT.read())
            atexit.register(_leave, found, library)
            _joined.world = found
            note = f"gemel {__version__}"
            found.issue(0, "the start", "meet", note=note).wait_to_read()
            if found.size > 1:
                found.issue(0, "the measurement", "measure").wait_to_read()
        return _joined.world


def _library() -> Any:
    """Module MPI of mpi4py, initialized."""
    try:
        import mpi4py

        mpi4py.rc.finalize = False
        mpi4py.rc.thread_level = "multiple"
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise WorkersError(
            f"kvstore 'dist_sync' needs MPI and mpi4py ({error}); install both with "
            "pip install 'gemel[mpi]', and start with python -m gemel launch -n 2 train.py"
        ) from None
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise WorkersError(
            "kvstore 'dist_sync' talks to MPI from a thread of its own, and MPI was started "
            "without support for threads; create the store before anything else starts MPI"
        )
    return MPI


def _check_size(size: int, library: Any) -> None:
    """Raise where the starter of the processes speaks another MPI's language."""
    told = {name: int(os.environ[name]) for name in SIZES if os.environ.get(name, "").isdecimal()}
    name = next((name for name, number in told.items() if number != size), None)
    if name is not None:
        version = library.Get_library_version().splitlines()[0]
        raise WorkersError(
            f"kvstore 'dist_sync': {told[name]} processes were started ({name}), but MPI sees "
            f"{size}: the mpirun that started them belongs to another MPI than {version}; start "
            "them with python -m gemel launch"
        )


def _leave(found: World, library: Any) -> None:
    """At the exit: the last step all workers do together, unless something is wrong."""
    found.close()
    if not found.broken and os.getpid() == found.process and not library.Is_finalized():
        library.Finalize()


__all__ = ["MpiStore", "MpiWire", "world"]
