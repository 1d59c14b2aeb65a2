"""Data sets: a length, and an example for each number below it."""

from __future__ import annotations

from os.path import splitext
from typing import TYPE_CHECKING, Any, TypeAlias

from gemel import np
from gemel.arrays.archives import checked_path
from gemel.errors import ArgumentError, DTypeError, ShapeError, check_function
from gemel.gluon.data.batchify import default_batchify_fn
from gemel.gluon.data.sampler import check_iterable, check_sized, index_array
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.nn.containers import HybridSequential, Sequential
from gemel.ranges import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: Returns several examples at once: from an array of numbers, an array for each part.
Taker: TypeAlias = "Callable[[np.ndarray], list[Any]]"


class Dataset:
    """Base class: subclasses define `__len__` and `__getitem__`."""

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__")

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def _taker(self) -> Taker | None:
        """A function that returns several examples at once; None if each has to be made
        separately."""
        return None

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """Apply `fn` to each example: when it is read or, with ``lazy=False``, now."""
        check_function("transform", fn)
        return _kept(_Transformed(self, fn, False), lazy)

    def transform_first(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """Apply `fn` to the first part of each example, usually the input without the label."""
        check_function("transform_first", fn)
        return _kept(_Transformed(self, fn, True), lazy)

    def filter(self, fn: Callable[[Any], bool]) -> Dataset:
        """The examples for which `fn` returns true."""
        check_function("filter", fn)
        return _Chosen(self, [index for index in range(len(self)) if fn(self[index])])

    def take(self, count: int | None) -> Dataset:
        """The first `count` examples; all of them if `count` is None or there are fewer."""
        first = len(self) if count is None else counted("take", "the count", count, 0)
        return _Chosen(self, range(min(first, len(self))))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Part `index` of `num_shards` parts; the first parts may have one example more."""
        num_shards = counted("shard", "num_shards", num_shards)
        index = counted("shard", "index", index, 0)
        if index >= num_shards:
            raise ArgumentError(f"shard: index {index} is not below num_shards={num_shards}")
        each, more = divmod(len(self), num_shards)
        begin = each * index + min(index, more)
        return _Chosen(self, range(begin, begin + each + (index < more)))

    def sample(self, sampler: Iterable[int]) -> Dataset:
        """The examples selected by a sampler now, in its order."""
        check_iterable("sample", "the sampler", sampler)
        return _Chosen(self, list(sampler))


def _kept(dataset: Dataset, lazy: bool) -> Dataset:
    return dataset if lazy else SimpleDataset([dataset[index] for index in range(len(dataset))])


class SimpleDataset(Dataset):
    """A list, or anything else with a length and items, as a data set."""

    def __init__(self, data: Any) -> None:
        check_sized("SimpleDataset", "the data", data)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        return self._data[index]


class ArrayDataset(Dataset):
    """Several arrays (or lists, or data sets) of equal length: example i is item i of each.

    A `DataLoader` over arrays takes a whole batch with one operation.
    """

    def __init__(self, *sources: Any) -> None:
        if not sources:
            raise ArgumentError("ArrayDataset: give at least one array")
        for number, source in enumerate(sources):
            check_sized("ArrayDataset", f"source {number}", source)
            if len(source) != len(sources[0]):
                raise ShapeError(
                    f"ArrayDataset: source {number} has {len(source)} examples and source 0 has "
                    f"{len(sources[0])}; they must have the same number"
                )
        self._data = [_as_array(source) for source in sources]

    def __len__(self) -> int:
        return len(self._data[0])

    def __getitem__(self, index: int) -> Any:
        if len(self._data) == 1:
            return self._data[0][index]
        return tuple(source[index] for source in self._data)

    def _taker(self) -> Taker | None:
        if not all(isinstance(source, np.ndarray) for source in self._data):
            return None
        return lambda numbers: [source[numbers.to_device(source.device)] for source in self._data]


class RecordFileDataset(Dataset):
    """The records of a RecordIO file, as bytes; ``name.idx`` next to ``name.rec`` has their
    offsets.

    Without that file the records are scanned for.
    """

    def __init__(self, filename: Any) -> None:
        from gemel.recordio import MXIndexedRecordIO  # few programs need it

        self._filename = filename = checked_path(type(self).__name__, "filename", filename)
        self._record = MXIndexedRecordIO(splitext(filename)[0] + ".idx", filename, "r")

    def __len__(self) -> int:
        return len(self._record.keys)

    def __getitem__(self, index: int) -> bytes:
        return self._record.read_idx(self._record.keys[index])


class _Transformed(Dataset):
    def __init__(self, source: Dataset, function: Callable[..., Any], first: bool) -> None:
        self._source = source
        self._function = function
        self._first = first

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Any:
        example = self._source[index]
        if not isinstance(example, tuple):
            return self._function(example)
        if self._first:
            return (self._function(example[0]), *example[1:])
        return self._function(*example)

    def _taker(self) -> Taker | None:
        take = self._source._taker()
        if take is None or not takes_batches(self._function):
            return None
        function = self._function
        if isinstance(function, HybridBlock) and not function._active:
            function = HybridSequential(function)
            function.hybridize()

        def taken(numbers: np.ndarray) -> list[Any]:
            parts = take(numbers)
            if len(parts[0].shape) != 4 or not (self._first or len(parts) == 1):
                # Not images: process single examples, which also gives their error messages.
                found = default_batchify_fn([self[number] for number in numbers.tolist()])
                return found if isinstance(found, list) else [found]
            return [function(parts[0]), *parts[1:]]

        return taken


def takes_batches(function: Any) -> bool:
    """Whether a function, one or several `transforms`, treats a batch of images like single
    images."""
    if type(function) in (HybridSequential, Sequential):
        return all(takes_batches(child) for child in function)
    return bool(getattr(function, "takes_batches", False))


class _Chosen(Dataset):
    def __init__(self, source: Dataset, numbers: Sequence[int]) -> None:
        self._source = source
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Any:
        return self._source[self._numbers[index]]

    def _taker(self) -> Taker | None:
        take = self._source._taker()
        if take is None:
            return None
        chosen = index_array(self._numbers)
        return lambda numbers: take(chosen[numbers])


def _as_array(source: Any) -> Any:
    """Convert NumPy arrays to gemel arrays once, not for every batch; the dtype stays. Those of a
    dtype that gemel lacks, such as text, stay as they are."""
    if isinstance(source, np.ndarray) or not hasattr(source, "__array_interface__"):
        return source
    try:
        return np.array(source, dtype=source.dtype)
    except DTypeError:
        return source


__all__ = ["ArrayDataset", "Dataset", "RecordFileDataset", "SimpleDataset", "Taker"]
