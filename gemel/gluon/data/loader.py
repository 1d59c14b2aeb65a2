"""DataLoader: batches from a data set."""

from __future__ import annotations

import math
import operator
import weakref
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.errors import ArgumentError, ParameterFileError, check_function, unknown_name
from gemel.gluon.data.batchify import check_any, default_batchify_fn
from gemel.gluon.data.dataset import Dataset
from gemel.gluon.data.sampler import (
    LAST_BATCH,
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    check_iterable,
    check_sized,
    index_array,
    indices_of,
    is_count,
)
from gemel.npx import is_np_array
from gemel.ranges import FlagsChecked, check_number
from gemel.tracing.manners import as_nd, like

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gemel.gluon.data.dataset import Taker


class DataLoader(FlagsChecked):
    """Iterates over one epoch of batches; for data sets of several parts a batch is a list of
    arrays.

    Give either `batch_size` (with `shuffle` or a `sampler` of indices, and `last_batch`: "keep",
    "discard" or "rollover"), or a `batch_sampler` of lists of indices. `batchify_fn` makes a batch
    from a list of examples. The order follows `np.random.seed`.

    Arrays in memory, with or without `vision.transforms`, are processed a whole batch at a time,
    asynchronously by the engine. For other data sets, `num_workers` processes (threads, with
    `thread_pool`) make `prefetch` batches ahead, by default two per worker. They start with the
    first epoch, with a copy of the data set at that time, and stay. Random numbers depend on the
    seed and the number of the batch, not on which worker makes it. Raises `WorkerError` if a worker
    fails, ends, or needs more than `timeout` seconds (None or infinity: no limit) for a batch.
    `pin_memory` and the like are accepted for old code.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool = False,
        timeout: float | None = 120,
        try_nopython: bool | None = None,
        auto_reload: bool = False,
    ) -> None:
        if sampler is None and batch_sampler is None:
            check_sized("DataLoader", "the data set", dataset)
        _check(batch_size, shuffle, sampler, last_batch, batch_sampler)
        if batchify_fn is not None:
            check_function("DataLoader: batchify_fn", batchify_fn)
        self._dataset = dataset
        self._batchify = batchify_fn or default_batchify_fn
        taker = dataset._taker() if isinstance(dataset, Dataset) else None
        self._taker: Taker | None = taker if batchify_fn is None else None
        self._shuffle = shuffle
        self._batch_size = batch_size or 0
        #: Whether the user gave no sampler: the order is then an array that Python never reads.
        self._plain = sampler is None and batch_sampler is None and last_batch != "rollover"
        if batch_sampler is None:
            kind = RandomSampler if shuffle else SequentialSampler
            order = sampler if sampler is not None else kind(len(dataset))
            batch_sampler = BatchSampler(order, self._batch_size, last_batch or "keep")
        self._batch_sampler = batch_sampler
        self._num_workers = max(_whole("num_workers", num_workers), 0)
        ahead = 2 * self._num_workers if prefetch is None else _whole("prefetch", prefetch)
        self._prefetch = max(ahead, 0)
        self._thread_pool = thread_pool
        if timeout not in (None, math.inf):
            check_number("DataLoader", "timeout", timeout, 0)
        # Times that the system cannot count are no limit, as infinity is none.
        self._timeout = None if timeout is None or timeout > TIMEOUT_MAX else timeout
        #: The idle workers, which the next epoch reuses; and the function that ends them.
        self._idle: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes its batches in the same way, and has its own workers."""
        return {**vars(self), "_taker": self._taker is not None, "_idle": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._taker = self._dataset._taker() if state["_taker"] else None

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def state_dict(self) -> dict[str, Any]:
        """The state to carry from one epoch to the next: that of the batch sampler, usually
        none."""
        sampler = self._batch_sampler
        return dict(sampler.state_dict()) if hasattr(sampler, "state_dict") else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Start the next epoch from that state. Raises `ParameterFileError` for another one."""
        if state and not hasattr(self._batch_sampler, "load_state_dict"):
            raise ParameterFileError(
                f"DataLoader: {state!r} is of another loader; the batch_sampler of this one has no "
                "state"
            )
        if state:
            self._batch_sampler.load_state_dict(state)

    def whole_size(self, batch: int) -> int | None:
        """The number of examples in a batch over all workers of a job, if the batch sampler knows
        it."""
        sampler = self._batch_sampler
        return int(sampler.whole_size(batch)) if hasattr(sampler, "whole_size") else None

    def __iter__(self) -> Iterator[Any]:
        found = self._batches()
        return found if is_np_array() else map(as_nd, found)

    def _batches(self) -> Iterator[Any]:
        if self._taker is not None:
            return self._taken(self._taker)
        if self._num_workers:
            return self._made_by_others()
        return self._made()

    def _made(self) -> Iterator[Any]:
        """Batches made in this thread, example by example."""
        for numbers in self._batch_sampler:
            yield self._batchify([self._dataset[number] for number in indices_of(numbers)])

    def _taken(self, take: Taker) -> Iterator[Any]:
        """Batches taken from arrays."""
        for numbers in self._index_arrays():
            batch = take(numbers)
            batch = like(batch, batch)
            yield batch if len(batch) > 1 else batch[0]

    def _index_arrays(self) -> Iterator[np.ndarray]:
        """The numbers of each batch's examples, as arrays."""
        if not self._plain:
            for numbers in self._batch_sampler:
                chosen = indices_of(numbers)
                check_any(chosen)
                yield index_array(chosen)
            return
        size = len(self._dataset)
        order = np.random.permutation(size) if self._shuffle else np.arange(size, dtype="int64")
        for batch in range(len(self)):
            begin = batch * self._batch_size
            yield order[begin : begin + self._batch_size]

    def _made_by_others(self) -> Iterator[Any]:
        """Batches made by workers. An epoch that begins inside another one has its own workers."""
        # Imported here because most loaders take batches from arrays and do not need this.
        from gemel.gluon.data.crew import Ahead

        held, self._idle = self._idle, None
        if held is not None and not held[0].is_usable:
            held[1]()
            held = None
        crew, end = held = held or self._crew()

        def release() -> None:  # must not hold the loader: workers end with it
            if self._idle is not None or not crew.is_usable:
                end()
            else:
                self._idle = held

        try:
            return Ahead(crew, self._batch_sampler, self._prefetch, self._timeout, release)
        except BaseException:
            end()
            raise

    def _crew(self) -> tuple[Any, Callable[[], Any]]:
        """New workers, and the function that ends them, together with the loader or the program."""
        from gemel.gluon.data.crew import Maker, Threads  # late, as in _made_by_others

        maker = Maker(self._dataset, self._batchify)
        crew: Any
        if self._thread_pool:
            crew = Threads(maker, self._num_workers)
        else:
            from gemel.gluon.data.workers import Processes

            crew = Processes(maker, self._num_workers, max(self._prefetch, 1))
        return crew, weakref.finalize(self, crew.close)


def _whole(name: str, value: Any) -> int:
    """Check a setting that is a whole number. Raises `ArgumentError`."""
    if not hasattr(value, "__index__"):
        raise ArgumentError(f"DataLoader: {name} is {value!r}; it must be a whole number")
    return operator.index(value)


def _check(
    batch_size: int | None, shuffle: bool, sampler: Any, last_batch: Any, batch_sampler: Any
) -> None:
    """Raise `ArgumentError` for settings that contradict each other, and `OperandError` for what
    is no sampler."""
    for what, value in (("the sampler", sampler), ("the batch_sampler", batch_sampler)):
        if value is not None:
            check_iterable("DataLoader", what, value)
    if last_batch is not None and last_batch not in LAST_BATCH:
        raise unknown_name("last_batch", last_batch, LAST_BATCH)
    if batch_sampler is not None:
        if batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise ArgumentError(
                "DataLoader: batch_sampler decides the batches; leave out batch_size, shuffle, "
                "sampler and last_batch"
            )
        return
    if not is_count(batch_size):
        raise ArgumentError(
            f"DataLoader: batch_size is {batch_size!r}; give 1 or more, or a batch_sampler"
        )
    if shuffle and sampler is not None:
        raise ArgumentError("DataLoader: a sampler decides the order; leave out shuffle")
