"""`dist_sync`: synchronous data-parallel training of several workers over MPI.

Every worker has a replica of all values and updates it with the same sums in the same way, so
replicas stay equal to the bit. Only the sums are sent, and rank 0's values at the start.
"""

from __future__ import annotations

import atexit
import hashlib
import math
import os
import threading
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from gemel import __version__, autograd, config, np
from gemel.device import CPUS, Device
from gemel.errors import WorkersError
from gemel.kvstore import compression
from gemel.kvstore.base import byte_counts, bytes_before, encoded, pairs, settings_of
from gemel.kvstore.local import NARROW, LocalStore, check_alike, widened
from gemel.kvstore.step_schedules import Piece, StepSchedule, StepSchedules
from gemel.kvstore.tally import Tally, apart
from gemel.kvstore.wire import MpiWire
from gemel.kvstore.world import World
from gemel.passes.rows import bounds_of

if TYPE_CHECKING:
    from gemel.links import Topology

#: The environment variables in which MPI's launchers pass the number of processes.
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE")


class MpiStore(LocalStore):
    """A store that sums over all workers of an MPI job; each worker may have several devices.

    All workers must push the same keys with the same shapes, dtypes and compression, in any order.
    If one is late by more than `timeout` seconds (``GEMEL_WORKERS_TIMEOUT``), all requests fail
    with a `WorkersError` that names the worker and the key, and no later request succeeds. Raises
    `WorkersError` if there is no MPI.
    """

    def __init__(self, name: str, on_devices: bool = True) -> None:
        super().__init__(name, on_devices)
        self._world = world()
        self._number = self._world.number_store()
        self._world.ways.set_rule(self._number, config.SCHEDULE.read())
        self._world_compression: compression.Compression | None = None
        self._step_schedules = StepSchedules(self._world, self._number)
        self._tally = Tally()

    @property
    def rank(self) -> int:
        """The rank of this worker, from 0."""
        return self._world.rank

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        return self._world.size

    def statistics(self) -> dict[str, float]:
        """What this worker has sent for all its stores since it started.

        ``requests``; the ``groups`` in which they were sent; their ``bytes`` before, and the
        ``seconds`` of, communication; for each way that was used, such as ``by ring``, its number
        of groups. ``processor seconds``, if the workers are connected by sockets: the processor
        time of the courier's sums.
        """
        return self._world.statistics()

    def set_schedule(self, schedule: str) -> None:
        """Set how this store sums from now on; waits until all workers make the same call.

        ``"ranks"`` (the default, unless ``GEMEL_SCHEDULE`` is set): the fastest of the ways that
        sum in the order of ranks, so that bits depend on nothing else. ``"any"``: the fastest of
        all. The name of a way, as listed by `explain`, or several with the largest number of bytes
        each is used for, such as ``"gather:65536,ring"``: the same bits in every run with the same
        number of workers. Raises `UnknownNameError`, and `WorkersError` if workers disagree.
        """
        rule = self._world.ways.check(schedule)
        note = f"schedule {rule}"
        self._world.issue(self._number, "the schedule", "meet", note=note).wait_to_read()
        self._world.ways.set_rule(self._number, rule)
        self._step_schedules.clear()

    def explain(self, topology: Topology | str | None = None, sizes: Sequence[int] = ()) -> str:
        """Explain how the workers sum, what was measured, and why: the same text on all workers.

        `sizes` are the sizes in bytes to show, by default those that were measured. With a
        `topology`, explain how to sum gradients over its links, as other stores do.
        """
        if topology is not None:
            return super().explain(topology, sizes)
        rule = self._world.ways.rule(self._number)
        return self._world.ways.explain(rule, byte_counts(sizes))

    def barrier(self) -> None:
        """Wait until all workers have called this. Raises `WorkersError` if one does not, or the
        threads that called it have not pushed and initialized the same keys as often."""
        import numpy

        mine = self._tally.text()
        digest = hashlib.sha256(mine.encode()).digest()
        rows = self._rows("a barrier", numpy.frombuffer(digest, "uint8"))
        if (rows != rows[0]).any():
            note = apart(self.rank, self.gathered(mine))
            name = "what they have begun before a barrier"
            self._world.issue(self._number, name, "meet", note=note).wait_to_read()

    def _compare(self, rule: str) -> None:
        self._world.issue(self._number, "the optimizer", "meet", note=rule)

    def gathered(self, text: str) -> list[str]:
        """Exchange a value: returns the values of all workers, by rank. Waits for all of them."""
        import numpy

        said = numpy.frombuffer(encoded(text), "uint8")
        with self._gathering:
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

    def set_optimizer(self, optimizer: Any) -> None:
        """Update the value of a key by an optimizer; the pushed sum is the gradient. All workers
        must set the same one; if they do not, the sums that follow fail with a `WorkersError`."""
        super().set_optimizer(optimizer)
        if self.num_workers > 1:
            self._compare(f"rule {settings_of(optimizer)}")

    # ---- values

    def init(self, key: Any, value: Any) -> None:
        """Initialize each key on all workers with the (first) array of rank 0. A key that the store
        has gets the new value."""
        for one, values in pairs(key, value):
            self._tally.add("broadcast", [one], [values])
            with autograd.pause():
                place = self._place(values, 0)
                host = values[0].as_in_ctx(CPUS[0])
                found = self._world.issue(self._number, _named(one), "broadcast", [host])
                self._values[one] = found.copyto(place)

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sum the arrays of each key over all workers. The sum becomes the key's value, or updates
        it by the optimizer. Raises `WorkersError` if the job has failed."""
        super().push(key, value, priority)
        for one, values in pairs(key, value):
            self._tally.add("sum", [one], [values])

    def pull(self, key: Any, out: Any, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Write each key's value into the arrays in `out`. Raises `WorkersError` if the job has
        failed."""
        self._world.check("a pull")
        super().pull(key, out, priority, ignore_sparse)

    def totals(
        self,
        keys: Sequence[Any],
        values: Sequence[Sequence[Any]],
        devices: Sequence[Device],
        blocks: Sequence[Sequence[Sequence[Any]]] = (),
    ) -> list[list[Any]]:
        """For each device the sums over all workers of the arrays of each key.

        Each sum starts when backward has written the gradient, last keys first. Of several ready
        keys the first go first, because the next forward starts with them. A large gradient that
        backward computes towards its end is sent in blocks of rows, each as soon as it is ready.
        """
        self._pushed.update(keys)
        self._tally.add("sum", keys, values)
        lists = [len(arrays) for arrays in values]
        kinds = [(arrays[0].shape, arrays[0]._code) for arrays in values]
        step = tuple(keys), tuple(lists), tuple(kinds)
        schedule = self._step_schedules.find(step)
        if schedule is None and self._step_schedules.unknown(step):
            self._ask(step, keys, values)
        if schedule is None:
            return self._one_by_one(keys, values, devices, blocks)
        return self._by_schedule(schedule, keys, values, devices, blocks)

    def _ask(self, step: Any, keys: Sequence[Any], values: Sequence[Sequence[Any]]) -> None:
        """Start to compare steps like this with the other workers' (`step_schedules`)."""
        pieces = self._pieces(keys, values)
        ways = self._world.ways
        most = ways.bucket(ways.rule(self._number), sum(piece.bytes for piece in pieces))
        if self._world_compression is not None:
            most = None
        with autograd.pause():
            self._step_schedules.ask(step, pieces, most)

    def _pieces(self, keys: Sequence[Any], values: Sequence[Sequence[Any]]) -> list[Piece]:
        """What is sent in a step, in this order."""
        pieces: list[Piece] = []
        later = bytes_before(values)
        for position in reversed(range(len(keys))):
            first = values[position][0]
            narrow = first.dtype.name in NARROW
            dtype, item = ("float32", 4) if narrow else (first.dtype.name, first.dtype.itemsize)
            name = _named(keys[position])
            for start, end in self._cuts(first, later[position]):
                shape = (end - start, *first.shape[1:]) if first.ndim else ()
                whole = tuple(shape) == tuple(first.shape)
                part = name if whole else f"{name}, rows {start} to {end - 1}"
                size = item * math.prod(shape)
                pieces.append(Piece(part, dtype, tuple(shape), size, -position))
        return pieces

    def _cuts(self, value: Any, later: int) -> list[tuple[int, int]]:
        """The blocks of rows in which an array is sent, as pairs (first row, row after the
        last)."""
        count = self.blocks(value, later)
        if count == 1:
            return [(0, value.shape[0] if value.ndim else 1)]
        bounds = bounds_of(value.shape[0], count)
        return list(zip(bounds[:-1], bounds[1:], strict=True))

    def _by_schedule(
        self,
        schedule: StepSchedule,
        keys: Sequence[Any],
        values: Sequence[Sequence[Any]],
        devices: Sequence[Device],
        blocks: Sequence[Sequence[Sequence[Any]]],
    ) -> list[list[Any]]:
        """Sum the arrays of a step that has a schedule."""
        order = range(len(keys) - 1, -1, -1)
        counts, arrays = [], []
        later = bytes_before(values)
        with autograd.pause():
            for position in order:
                check_alike(keys[position], values[position])
                place = self._place(values[position], position)
                early = blocks[position] if blocks else ()
                parts = self._parts(values[position], early, later[position])
                counts.append(len(parts))
                arrays += [self._own(part, place) for part in parts]
            totals = schedule.sums(arrays)
            found: list[list[Any]] = [[None] * len(keys) for _ in devices]
            for position, count in zip(order, counts, strict=True):
                some, totals = totals[:count], totals[count:]
                total = some[0] if count == 1 else np.concatenate(some)
                total = total.astype(values[position][0].dtype, copy=False)
                for row, device in zip(found, devices, strict=True):
                    row[position] = total.as_in_ctx(device)
        return found

    def blocks(self, value: Any, later: int = 0) -> int:
        """The number of row blocks in which to send a gradient like this array.

        It is the same on all workers; `explain` shows the reason. It is 1 if backward computes as
        many bytes of other gradients `later`: sending the whole overlaps with computing these, or
        with sending them.
        """
        if not value.ndim or not value.size or later >= value.nbytes:
            return 1
        rows: int = value.shape[0]
        kept = value.dtype.name in NARROW or self._compresses(value)
        nbytes = value.size * (4 if kept else value.dtype.itemsize)
        method = self._world_compression
        share = method.share if method is not None and self._compresses(value) else 1.0
        ways = self._world.ways
        return min(ways.blocks(ways.rule(self._number), nbytes * share), rows)

    def _compresses(self, value: Any) -> bool:
        return self._world_compression is not None and compression.shortens(value)

    def _total(
        self,
        key: Any,
        values: Sequence[Any],
        place: Device,
        priority: int,
        blocks: Sequence[Sequence[Any]] = (),
        later: int = 0,
    ) -> Any:
        check_alike(key, values)
        cuts = self._cuts(values[0], later)
        if len(cuts) == 1:
            return self._over_workers(_named(key), key, values, place, priority)
        totals = []
        parts = self._parts(values, blocks, later)
        for number, ((start, end), part) in enumerate(zip(cuts, parts, strict=True)):
            name = f"{_named(key)}, rows {start} to {end - 1}"
            totals.append(self._over_workers(name, (key, number), part, place, priority))
        return np.concatenate(totals)

    def _parts(
        self, values: Sequence[Any], blocks: Sequence[Sequence[Any]], later: int
    ) -> list[Sequence[Any]]:
        """The arrays of a key, or of each of its row blocks; the blocks do not depend on
        backward's."""
        cuts = self._cuts(values[0], later)
        if len(cuts) == 1:
            return [values]
        return [
            [early[number] if len(early) == len(cuts) else value[start:end]
             for value, early in zip_longest(values, blocks, fillvalue=())]
            for number, (start, end) in enumerate(cuts)
        ]  # fmt: skip

    def _own(self, values: Sequence[Any], place: Device) -> Any:
        """The sum of this worker's arrays, on the host and in the dtype in which it is sent."""
        own = values[0] if len(values) == 1 else self._sum(list(map(widened, values)), place)
        return widened(own.as_in_ctx(CPUS[0]) if own.device.linked else own)

    def _over_workers(
        self, name: str, kept: Any, values: Sequence[Any], place: Device, priority: int
    ) -> Any:
        """Sum arrays that all workers have, in the order of ranks.

        If the array is compressed, `kept` is the name of its stored errors.
        """
        own = self._own(values, place)
        if self._compresses(own):
            total = self._compressed(name, kept, own, priority)
        else:
            total = self._world.issue(self._number, name, "sum", [own], priority=priority)
        return total.astype(values[0].dtype, copy=False).as_in_ctx(place)

    def _compressed(self, name: str, kept: Any, own: Any, priority: int) -> Any:
        """Sum with compression: every worker receives the codes of all."""
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

    def scale_gradients(self, scale: float, owner: Any = None) -> None:
        """Say that what is pushed from now on is multiplied by `scale`, and whose it is."""
        if self._world_compression is not None:
            self._world_compression.begin(scale, owner)

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Send gradients between workers in fewer bits; all workers must make the same call.

        Each worker keeps what compression loses, and adds it to what it sends next.
        """
        self._world_compression = compression.create(compression_params)
        self._step_schedules.clear()


def _named(key: Any) -> str:
    return f"key {key!r}"


# ---- MPI


class _Joined:
    """The world this process has joined; like MPI itself, there is one per process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.world: World | None = None


_joined = _Joined()


def world() -> World:
    """The workers of this MPI job. The first call joins them and must be made by all of them.

    Raises `WorkersError` if there is no MPI, or the workers do not fit together.
    """
    with _joined.lock:
        if _joined.world is None:
            library = _library()
            communicator = library.COMM_WORLD
            _check_size(communicator.Get_size(), library)
            found = World(MpiWire(communicator, library), config.WORKERS_TIMEOUT.read())
            atexit.register(_leave, found, library)
            _joined.world = found
            note = f"gemel {__version__}, schedule {config.SCHEDULE.read()}"
            found.issue(0, "the start", "meet", note=note).wait_to_read()
            if found.size > 1:
                found.issue(0, "the measurement", "measure").wait_to_read()
        return _joined.world


def _library() -> Any:
    """The module MPI of mpi4py, initialized."""
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
            "kvstore 'dist_sync' calls MPI from its own thread, but MPI was started without "
            "thread support; create the store before anything else starts MPI"
        )
    return MPI


def _check_size(size: int, library: Any) -> None:
    """Raise if the processes were started by the launcher of another MPI."""
    counts = {name: int(os.environ[name]) for name in SIZES if os.environ.get(name, "").isdecimal()}
    name = next((name for name, number in counts.items() if number != size), None)
    if name is not None:
        version = library.Get_library_version().splitlines()[0]
        raise WorkersError(
            f"kvstore 'dist_sync': {counts[name]} processes were started ({name}), but MPI sees "
            f"{size}: the mpirun that started them belongs to an MPI other than {version}; start "
            "them with python -m gemel launch"
        )


def _leave(found: World, library: Any) -> None:
    """At exit, wait for all workers, unless the job has failed."""
    found.close()
    if not found.broken and os.getpid() == found.process and not library.Is_finalized():
        library.Finalize()


__all__ = ["MpiStore", "world"]
