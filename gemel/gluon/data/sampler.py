"""Samplers: the order in which examples are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.errors import unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LAST_BATCH = ("keep", "discard", "rollover")


class Sampler:
    """Base class: iterating gives numbers of examples; `len` says how many."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__")


def is_count(value: Any) -> bool:
    """Whether it is a whole number from 1 up."""
    return hasattr(value, "__index__") and value >= 1


class SequentialSampler(Sampler):
    """start, start + 1, ...: `length` numbers."""

    def __init__(self, length: int, start: int = 0) -> None:
        self._length = length
        self._start = start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._start, self._start + self._length))

    def __len__(self) -> int:
        return self._length


class RandomSampler(Sampler):
    """0 to length - 1 in a new random order each time; `np.random.seed` repeats it."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.permutation(self._length).tolist())

    def __len__(self) -> int:
        return self._length


class IntervalSampler(Sampler):
    """0, interval, 2 * interval, ... below length; with `rollover` then from 1 on, and so forth."""

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        if not 0 < interval <= length:
            raise ValueError(
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
    """The numbers of the examples that `fn` says yes to; each example is looked at once, now."""

    def __init__(self, fn: Callable[[Any], bool], dataset: Any) -> None:
        self._numbers = [number for number in range(len(dataset)) if fn(dataset[number])]

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class BatchSampler(Sampler):
    """Lists of `batch_size` numbers from another sampler.

    `last_batch` says what becomes of an incomplete last one: "keep" gives it, "discard" drops it,
    "rollover" begins the next epoch with it.
    """

    def __init__(self, sampler: Any, batch_size: int, last_batch: str = "keep") -> None:
        if last_batch not in LAST_BATCH:
            raise unknown_name("last_batch", last_batch, LAST_BATCH)
        if not is_count(batch_size):
            raise ValueError(f"BatchSampler: batch_size is {batch_size}; give a number from 1 up")
        self._sampler = sampler
        self._batch_size = batch_size
        self._last_batch = last_batch
        self._left: list[Any] = []

    def state_dict(self) -> dict[str, Any]:
        """What the next epoch begins with, for a checkpoint taken between two epochs."""
        return {"left": list(self._left)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next epoch with that."""
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
        whole = total // self._batch_size
        partial = self._last_batch == "keep" and total % self._batch_size > 0
        return whole + int(partial)
