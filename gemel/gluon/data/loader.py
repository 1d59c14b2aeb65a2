"""DataLoader: batches from a data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.errors import unknown_name
from gemel.gluon.data.dataset import ArrayDataset
from gemel.gluon.data.sampler import LAST_BATCH, BatchSampler, RandomSampler, SequentialSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def default_batchify_fn(examples: list[Any]) -> Any:
    """A batch of examples: arrays are stacked, tuples part by part, numbers become one array."""
    first = examples[0]
    if isinstance(first, np.ndarray):
        return np.stack(examples)
    if isinstance(first, (tuple, list)):
        return [default_batchify_fn(list(part)) for part in zip(*examples, strict=True)]
    if isinstance(first, (bool, int, float)):
        whole = all(isinstance(example, int) for example in examples)
        return np.array(examples, dtype="int64" if whole else "float32")
    return np.stack([np.array(example, dtype=example.dtype) for example in examples])


class DataLoader:
    """Iterating gives one epoch of batches; data sets of several parts give lists of arrays.

    Either `batch_size` (with `shuffle`, or a `sampler` of numbers, and `last_batch`: "keep",
    "discard" or "rollover"), or a `batch_sampler` of lists of numbers. `batchify_fn` makes a batch
    of a list of examples. The order follows `np.random.seed`. An `ArrayDataset` of arrays is read a
    whole batch at a time, by the engine, while Python goes on; so batches are made in this process,
    and `num_workers`, `pin_memory`, `prefetch` and the like are accepted for old code.
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
        timeout: int = 120,
        try_nopython: bool | None = None,
    ) -> None:
        _check(batch_size, shuffle, sampler, last_batch, batch_sampler)
        self._dataset = dataset
        self._batchify = batchify_fn or default_batchify_fn
        arrays = dataset.arrays if isinstance(dataset, ArrayDataset) else None
        self._arrays = arrays if batchify_fn is None else None
        #: Without a sampler of the user's, the order is an array and never comes to Python.
        self._shuffle = shuffle
        self._batch_size = batch_size or 0
        self._last_batch = last_batch or "keep"
        self._plain = sampler is None and batch_sampler is None and last_batch != "rollover"
        if batch_sampler is None:
            kind = RandomSampler if shuffle else SequentialSampler
            order = sampler if sampler is not None else kind(len(dataset))
            batch_sampler = BatchSampler(order, self._batch_size, self._last_batch)
        self._batch_sampler = batch_sampler

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        arrays = self._arrays
        if arrays is None:
            for numbers in self._batch_sampler:
                yield self._batchify([self._dataset[number] for number in numbers])
            return
        for indices in self._index_arrays():
            batch = [array[indices] for array in arrays]
            yield batch if len(batch) > 1 else batch[0]

    def _index_arrays(self) -> Iterator[np.ndarray]:
        """The numbers of each batch's examples, as arrays."""
        if not self._plain:
            for numbers in self._batch_sampler:
                yield np.array(numbers, dtype="int64")
            return
        size = len(self._dataset)
        order = np.random.permutation(size) if self._shuffle else np.arange(size, dtype="int64")
        for batch in range(len(self)):
            begin = batch * self._batch_size
            yield order[begin : begin + self._batch_size]


def _check(
    batch_size: int | None, shuffle: bool, sampler: Any, last_batch: Any, batch_sampler: Any
) -> None:
    """Raise `ValueError` for settings that contradict each other."""
    if last_batch is not None and last_batch not in LAST_BATCH:
        raise unknown_name("last_batch", last_batch, LAST_BATCH)
    if batch_sampler is not None:
        if batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise ValueError(
                "DataLoader: batch_sampler decides the batches; leave out batch_size, shuffle, "
                "sampler and last_batch"
            )
        return
    if batch_size is None or batch_size < 1:
        raise ValueError(f"DataLoader: batch_size is {batch_size}; give a number from 1 up")
    if shuffle and sampler is not None:
        raise ValueError("DataLoader: a sampler decides the order; leave out shuffle")
