"""Making batches in the background: by threads here, by processes in `workers`."""

from __future__ import annotations

import os
import random
import sys
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TimedOut
from typing import TYPE_CHECKING, Any, Protocol

from gemel import _core, np
from gemel.errors import GemelError
from gemel.gluon.data.sampler import indices_of
from gemel.ops.random import drawing_from, mixed, number_drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class WorkerError(GemelError, RuntimeError):
    """Raised if a worker that makes batches has failed, ended, or taken too long.

    If the data set itself failed, the error is also an instance of the exception it raised.
    """


class Maker:
    """Makes batches: a data set, and the function that makes a batch from a list of examples."""

    def __init__(self, dataset: Any, batchify: Callable[[list[Any]], Any]) -> None:
        self._dataset = dataset
        self._batchify = batchify

    def make(self, numbers: list[Any], at: list[Any] | None = None) -> Any:
        """Make the batch of these examples; `at` receives the number of the example in progress."""
        examples = []
        for number in numbers:
            if at is not None:
                at[:] = [number]
            examples.append(self._dataset[number])
        if at is not None:
            at.clear()
        return self._batchify(examples)


class Crew(Protocol):
    """The interface of threads or processes that make batches in advance."""

    @property
    def is_usable(self) -> bool:
        """Whether it still works, and belongs to this process."""

    def submit(self, numbers: list[Any], seed: int, timeout: float | None) -> Any:
        """Request a batch; returns a ticket for it, or None if there is no room within
        `timeout`."""

    def result(self, ticket: Any, timeout: float | None) -> Any:
        """Wait for the batch and return it. Raises the error if it failed."""

    def drop(self, ticket: Any) -> None:
        """Discard a batch that is not needed any more."""

    def close(self) -> None:
        """Stop the threads or processes."""


def start_streams(seed: int) -> None:
    """Seed every random stream that a data set in this process may use."""
    _core.set_random_state(seed, 0)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


class Threads:
    """Threads that make batches, for data sets that wait or that let other threads compute.

    Random numbers from gemel's functions depend on the seed, and not on the thread.
    """

    def __init__(self, maker: Maker, workers: int) -> None:
        self._maker = maker
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="gemel-data")
        self._owner, self._ended = os.getpid(), False
        self._stream: Any = type(np.random.default_rng(0).bit_generator)

    @property
    def is_usable(self) -> bool:
        """See `Crew`."""
        return self._owner == os.getpid() and not self._ended

    def submit(self, numbers: list[Any], seed: int, timeout: float | None) -> Future[Any]:
        """See `Crew`. There is always room."""
        return self._pool.submit(self._make, numbers, seed)

    def _make(self, numbers: list[Any], seed: int) -> Any:
        with drawing_from(self._stream(seed)):
            return self._maker.make(numbers)

    def result(self, ticket: Future[Any], timeout: float | None) -> Any:
        """See `Crew`."""
        try:
            return ticket.result(timeout)
        except TimedOut:
            if ticket.done():  # the data set raised it
                raise
            raise late(timeout) from None

    def drop(self, ticket: Future[Any]) -> None:
        """See `Crew`."""
        ticket.cancel()

    def close(self) -> None:
        """Let the threads end after their current batches."""
        self._ended = True
        self._pool.shutdown(wait=False, cancel_futures=True)


def late(timeout: float | None) -> WorkerError:
    """The error for a batch that takes too long."""
    return WorkerError(
        f"DataLoader: no batch within {timeout} seconds: the data set is slow, or waits for "
        "something; allow more time with timeout="
    )


class Ahead:
    """An epoch whose batches others make, some of them in advance; they are returned in order."""

    def __init__(
        self,
        crew: Crew,
        batches: Any,
        prefetch: int,
        timeout: float | None,
        release: Callable[[], None],
    ) -> None:
        self._crew = crew
        self._batches: Iterator[list[Any]] | None = iter(batches)
        self._all = batches
        self._prefetch = prefetch
        self._timeout = timeout
        self._release: Callable[[], None] | None = release
        self._owner = os.getpid()
        #: The seed of the epoch; that of a batch comes from it and the batch's number.
        self._epoch_seed = number_drawn()
        #: The number of batches that were requested.
        self._submitted = 0
        #: Tickets in order; an error of the sampler takes the place of a ticket.
        self._pending: deque[Any] = deque()
        #: A batch's example numbers for which there was no room.
        self._held: list[Any] | None = None
        self._fill(prefetch)

    def _fill(self, wanted: int) -> None:
        """Request batches until this many are in progress."""
        while len(self._pending) < wanted and (numbers := self._numbers()) is not None:
            seed = mixed(self._epoch_seed, self._submitted)
            # If no batch is in progress, room must be free soon; otherwise the next call tries
            # again.
            ticket = self._crew.submit(numbers, seed, 0.0 if self._pending else self._timeout)
            if ticket is None:
                self._held = numbers
                if not self._pending:
                    raise late(self._timeout)
                return
            self._submitted += 1
            self._pending.append(ticket)

    def _numbers(self) -> list[Any] | None:
        """The numbers of the next batch's examples; None after the last batch."""
        if self._held is not None:
            numbers, self._held = self._held, None
            return numbers
        if self._batches is None:
            return None
        try:
            return indices_of(next(self._batches))
        except StopIteration:
            self._batches = None
        except Exception as error:
            self._batches = None
            self._pending.append(error)
        return None

    def __iter__(self) -> Ahead:
        return self

    def __len__(self) -> int:
        return len(self._all)

    def __next__(self) -> Any:
        if self._owner != os.getpid():
            raise WorkerError(
                f"DataLoader: process {self._owner} began this epoch, and its workers make the "
                f"batches; process {os.getpid()} has to begin one of its own, by iter(loader)"
            )
        try:
            return self._following()
        except Exception:
            if not self._crew.is_usable:
                self.close()
            raise
        except BaseException:  # for example Ctrl-C: the state is unknown
            self._crew.close()
            self.close()
            raise

    def _following(self) -> Any:
        """The next batch; requests further ones before and after waiting for it."""
        self._fill(max(self._prefetch, 1))
        if not self._pending:
            self.close()
            raise StopIteration
        ticket = self._pending.popleft()
        if isinstance(ticket, Exception):
            raise ticket
        try:
            batch = self._crew.result(ticket, self._timeout)
        except StopIteration as error:  # it would end the loop
            raise RuntimeError("DataLoader: the data set raised StopIteration") from error
        except Exception:
            self._crew.drop(ticket)
            raise
        self._fill(self._prefetch)
        return batch

    next = __next__

    def close(self) -> None:
        """Leave the epoch: the batches in progress are not needed."""
        release, self._release = self._release, None
        if release is None:
            return
        self._batches = self._held = None
        for ticket in self._pending:
            if not isinstance(ticket, Exception):
                self._crew.drop(ticket)
        self._pending.clear()
        release()

    def __del__(self) -> None:
        if hasattr(self, "_release"):
            self.close()


__all__ = [
    "Ahead",
    "Crew",
    "Maker",
    "Threads",
    "WorkerError",
    "late",
    "start_streams",
]
