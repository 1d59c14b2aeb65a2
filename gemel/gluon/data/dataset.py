"""Data sets: a length, and an example for each number below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Dataset:
    """Base class: subclasses define `__len__` and `__getitem__`."""

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__")

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def transform(self, function: Callable[..., Any], lazy: bool = True) -> Dataset:
        """Each example as `function` makes it: when it is asked for, or with ``lazy=False`` now."""
        transformed = _Transformed(self, function)
        if lazy:
            return transformed
        return SimpleDataset([transformed[index] for index in range(len(self))])

    def transform_first(self, function: Callable[..., Any], lazy: bool = True) -> Dataset:
        """`transform` of each example's first part, commonly the input without the label."""

        def first(part: Any, *others: Any) -> Any:
            return (function(part), *others) if others else function(part)

        return self.transform(first, lazy)

    def filter(self, wanted: Callable[[Any], bool]) -> Dataset:
        """The examples that `wanted` says yes to."""
        return _Chosen(self, [index for index in range(len(self)) if wanted(self[index])])

    def take(self, count: int | None) -> Dataset:
        """The first `count` examples."""
        size = len(self) if count is None else min(count, len(self))
        return _Chosen(self, range(size))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Part `index` of `num_shards` nearly equal parts."""
        if not 0 <= index < num_shards:
            raise ValueError(f"shard: index {index} is not one of {num_shards} shards")
        size = len(self)
        return _Chosen(self, range(size * index // num_shards, size * (index + 1) // num_shards))


class SimpleDataset(Dataset):
    """A list, or anything else with a length and items, as a data set."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        return self._data[index]


class ArrayDataset(Dataset):
    """Several arrays (or lists, or data sets) of one length: example i is item i of each.

    A `DataLoader` over arrays takes a whole batch with one operation.
    """

    def __init__(self, *sources: Any) -> None:
        if not sources:
            raise ValueError("ArrayDataset: give at least one array")
        for number, source in enumerate(sources):
            if len(source) != len(sources[0]):
                raise ShapeError(
                    f"ArrayDataset: source {number} has {len(source)} examples and source 0 has "
                    f"{len(sources[0])}; they must have the same number"
                )
        self._sources = [_as_array(source) for source in sources]

    def __len__(self) -> int:
        return len(self._sources[0])

    def __getitem__(self, index: int) -> Any:
        if len(self._sources) == 1:
            return self._sources[0][index]
        return tuple(source[index] for source in self._sources)

    @property
    def arrays(self) -> list[np.ndarray] | None:
        """The sources if all of them are arrays, else None."""
        if all(isinstance(source, np.ndarray) for source in self._sources):
            return self._sources
        return None


class _Transformed(Dataset):
    def __init__(self, source: Dataset, function: Callable[..., Any]) -> None:
        self._source = source
        self._function = function

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Any:
        example = self._source[index]
        return self._function(*example) if isinstance(example, tuple) else self._function(example)


class _Chosen(Dataset):
    def __init__(self, source: Dataset, indices: Sequence[int]) -> None:
        self._source = source
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Any:
        return self._source[self._indices[index]]


def _as_array(source: Any) -> Any:
    """NumPy's arrays become gemel's once, not for every batch; the dtype stays."""
    if isinstance(source, np.ndarray) or not hasattr(source, "__array_interface__"):
        return source
    return np.array(source, dtype=source.dtype)
