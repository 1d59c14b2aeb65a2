"""Samplers: the order in which examples are taken."""

from __future__ import annotations

import operator
from random import Random
from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.errors import (
    ArgumentError,
    OperandError,
    ParameterFileError,
    check_function,
    unknown_name,
)
from gemel.ranges import FlagsChecked, counted
from gemel.spec import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LAST_BATCH = ("keep", "discard", "rollover")


class Sampler(FlagsChecked):
    """Base class: iterates over indices of examples; `len` is their number."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__")


def check_iterable(name: str, what: str, value: Any) -> None:
    """Raise `OperandError` for what cannot be iterated over, such as a number or a class."""
    several = hasattr(value, "__iter__") or hasattr(value, "__getitem__")
    if isinstance(value, type) or not several:
        raise OperandError(f"{name}: {what} is {value!r}; it must be a Sampler or a list")


def check_sized(name: str, what: str, value: Any) -> None:
    """Raise `OperandError` for what has no length and no items, such as a number or a class."""
    sized = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    if isinstance(value, type) or not sized or getattr(value, "shape", None) == ():
        raise OperandError(
            f"{name}: {what} is {value!r}; it must have a length and items, as a data set, an "
            "array or a list"
        )


def is_count(value: Any) -> bool:
    """Whether this is an integer of at least 1."""
    return hasattr(value, "__index__") and value >= 1


def indices_of(batch: Any) -> list[Any]:
    """The indices of a batch that a batch sampler gave. Raises `ArgumentError` if it is no list."""
    if not hasattr(batch, "__iter__"):
        raise ArgumentError(
            f"DataLoader: the batch_sampler gave {batch!r}; it must give lists of indices, one for "
            "each batch"
        )
    return list(batch)


def index_array(numbers: Iterable[Any]) -> np.ndarray:
    """Indices of examples as an array. Raises `ArgumentError` for anything but whole numbers."""
    indices = []
    for number in numbers:
        if not hasattr(number, "__index__"):
            raise ArgumentError(
                f"DataLoader: {number!r} is no index of an example; it must be a whole number"
            )
        indices.append(operator.index(number))
    return np.array(indices, dtype="int64")


class SequentialSampler(Sampler):
    """The indices start, start + 1, ...: `length` of them."""

    def __init__(self, length: int, start: int = 0) -> None:
        self._length = counted(type(self).__name__, "length", length, 0)
        self._start = whole(type(self).__name__, "start", start)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._start, self._start + self._length))

    def __len__(self) -> int:
        return self._length


class RandomSampler(Sampler):
    """The indices 0 to length - 1 in a new random order each time, determined by
    `np.random.seed`."""

    def __init__(self, length: int) -> None:
        self._length = counted(type(self).__name__, "length", length, 0)

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.permutation(self._length).tolist())

    def __len__(self) -> int:
        return self._length


class IntervalSampler(Sampler):
    """The indices 0, interval, 2 * interval, ... below length; with `rollover` then from 1, and so
    on."""

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        length = counted("IntervalSampler", "length", length)
        interval = counted("IntervalSampler", "interval", interval)
        if interval > length:
            raise ArgumentError(
                f"IntervalSampler: the interval {interval} must lie between 1 and the length, "
                f"{length}"
            )
        self._length = length
        self._interval = interval
        self._rollover = rollover

    def __iter__(self) -> Iterator[int]:
        for begin in range(self._interval if self._rollover else 1):
            yield from range(begin, self._length, self._interval)

    def __len__(self) -> int:
        return self._length if self._rollover else -(-self._length // self._interval)


class FilterSampler(Sampler):
    """The indices of the examples for which `fn` returns true; each example is read once, now."""

    def __init__(self, fn: Callable[[Any], bool], dataset: Any) -> None:
        check_function("FilterSampler", fn)
        check_sized("FilterSampler", "the data set", dataset)
        self._numbers = [number for number in range(len(dataset)) if fn(dataset[number])]

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class BatchSampler(Sampler):
    """Groups the indices of another sampler into lists of `batch_size`.

    `last_batch` decides about an incomplete last batch: "keep" returns it, "discard" drops it, and
    "rollover" starts the next epoch with it.
    """

    def __init__(self, sampler: Any, batch_size: int, last_batch: str = "keep") -> None:
        if last_batch not in LAST_BATCH:
            raise unknown_name("last_batch", last_batch, LAST_BATCH)
        check_iterable("BatchSampler", "the sampler", sampler)
        if not is_count(batch_size):
            raise ArgumentError(f"BatchSampler: batch_size is {batch_size!r}; it must be 1 or more")
        self._sampler = sampler
        self._batch_size = batch_size
        self._last_batch = last_batch
        self._left: list[Any] = []

    def state_dict(self) -> dict[str, Any]:
        """The indices that start the next epoch, for a checkpoint between two epochs."""
        return {"left": list(self._left)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Start the next epoch with these indices. Raises `ParameterFileError` for another
        state."""
        if not isinstance(state, dict) or not isinstance(state.get("left"), list):
            raise ParameterFileError(
                f"BatchSampler: {state!r} is not the state of a BatchSampler, which has 'left', a "
                "list of indices"
            )
        self._left = list(state["left"])

    def __iter__(self) -> Iterator[list[Any]]:
        batch, self._left = self._left, []
        for index in self._sampler:
            batch.append(index)
            if len(batch) == self._batch_size:
                yield batch
                batch = []
        if batch and self._last_batch == "keep":
            yield batch
        elif self._last_batch == "rollover":
            self._left = batch

    def __len__(self) -> int:
        total = len(self._sampler) + len(self._left)
        complete = total // self._batch_size
        partial = self._last_batch == "keep" and total % self._batch_size > 0
        return complete + int(partial)


class WorkerBatchSampler(Sampler):
    """One worker's part of each batch of a job: lists of indices for a `DataLoader`.

    All workers draw the same order, from the seed and the number of the epoch, and cut it into
    batches of `batch_size` examples (over all workers together); worker `rank` gets its part of
    each. So the batches do not depend on the number of workers, and a job with another number of
    workers can resume in the middle of an epoch. The random streams are not used.

    `last_batch` is "discard" or "keep". Raises `ArgumentError` for a batch, or a last one that is
    kept, with fewer examples than workers.

    >>> first, second = (gluon.data.WorkerBatchSampler(7, 4, 2, rank) for rank in range(2))
    >>> list(first), list(second)
    ([[0, 1]], [[2, 3]])
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        num_workers: int = 1,
        rank: int = 0,
        shuffle: bool = False,
        seed: int = 0,
        last_batch: str = "discard",
    ) -> None:
        if last_batch not in ("discard", "keep"):
            raise unknown_name("last_batch", last_batch, ("discard", "keep"))
        counts = is_count(batch_size) and is_count(num_workers) and hasattr(rank, "__index__")
        if not (counts and 0 <= rank < num_workers):
            raise ArgumentError(
                f"WorkerBatchSampler: worker {rank} of {num_workers}, batches of {batch_size}; "
                "the counts must be 1 or more, and the rank below the number of workers"
            )
        length = counted("WorkerBatchSampler", "length", length, 0)
        rest = length % batch_size if last_batch == "keep" else 0
        least = min(size for size in (batch_size, rest) if size)
        if least < num_workers:
            raise ArgumentError(
                f"WorkerBatchSampler: a batch of {least} examples leaves some of the "
                f"{num_workers} workers without any; use larger batches, or last_batch='discard'"
            )
        self._length = length
        self._batch_size = batch_size
        self._share = rank, num_workers
        self._order = {"shuffle": bool(shuffle), "seed": whole("WorkerBatchSampler", "seed", seed)}
        self._count = length // batch_size + (rest > 0)
        self._epoch = 0

    def __len__(self) -> int:
        return self._count

    def whole_size(self, batch: int) -> int:
        """The number of examples of all workers together in a batch."""
        return min(self._batch_size, self._length - batch * self._batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        epoch, (rank, workers) = self._epoch, self._share
        self._epoch += 1
        order = self._drawn(epoch)
        for batch in range(self._count):
            begin, size = batch * self._batch_size, self.whole_size(batch)
            yield order[begin + size * rank // workers : begin + size * (rank + 1) // workers]

    def _drawn(self, epoch: int) -> list[int]:
        """The order of an epoch: sorted by random keys, which are the same in all versions of
        Python."""
        if not self._order["shuffle"]:
            return list(range(self._length))
        keys = Random((self._order["seed"] << 64) + epoch)
        drawn = [keys.random() for _ in range(self._length)]
        return sorted(range(self._length), key=drawn.__getitem__)

    def state_dict(self) -> dict[str, Any]:
        """The next epoch, and what determines the order."""
        return {"epoch": self._epoch, **self._data()}

    def _data(self) -> dict[str, Any]:
        return {"length": self._length, "whole batch": self._batch_size, **self._order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with that epoch. Raises `ParameterFileError` for other data, batches or
        orders."""
        mine = self._data()
        given = {name: state.get(name) for name in mine}
        if given != mine:
            raise ParameterFileError(
                f"WorkerBatchSampler: the checkpoint is of {given}, but this is {mine}; resuming "
                "requires the same order of the data and the same whole batches"
            )
        self._epoch = int(state["epoch"])
