"""Iterators over batches in MXNet 1's form; `gluon.data` has the newer form."""

from __future__ import annotations

from collections import namedtuple
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gemel import ndarray as nd
from gemel import np
from gemel.elsewhere import module_elsewhere
from gemel.errors import (
    ArgumentError,
    GemelError,
    ShapeError,
    unknown_name,
)
from gemel.lists import as_list
from gemel.ranges import FlagsChecked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gemel.image.iterators import ImageRecordIter, MNISTIter
    from gemel.tables import CSVIter, LibSVMIter, read_csv, read_libsvm

LAST_BATCH = ("pad", "discard", "roll_over")


class DataDesc(namedtuple("DataDesc", ["name", "shape"])):
    """The name, shape, `dtype` and `layout` of an array in a batch."""

    dtype: Any
    layout: str | None

    def __new__(
        cls, name: str, shape: Any, dtype: Any = "float32", layout: str | None = "NCHW"
    ) -> DataDesc:
        """Describe one array."""
        found = super().__new__(cls, name, tuple(shape))
        found.dtype, found.layout = dtype, layout
        return found

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """The axis of the examples."""
        return 0 if layout is None else layout.find("N")

    @staticmethod
    def get_list(shapes: Any, types: Any = None) -> list[DataDesc]:
        """Descriptions from pairs of names and shapes, and pairs of names and dtypes."""
        dtypes = dict(types or ())
        return [DataDesc(name, shape, dtypes.get(name, "float32")) for name, shape in shapes]


class DataBatch:
    """A batch: lists of arrays `data` and `label`; the last `pad` examples are padding."""

    def __init__(
        self,
        data: list[Any],
        label: list[Any] | None = None,
        pad: int | None = None,
        index: Any = None,
        bucket_key: Any = None,
        provide_data: Any = None,
        provide_label: Any = None,
    ) -> None:
        self.data, self.label, self.pad, self.index = data, label, pad, index
        self.bucket_key = bucket_key
        self.provide_data, self.provide_label = provide_data, provide_label

    def __str__(self) -> str:
        shapes = [[x.shape for x in arrays or []] for arrays in (self.data, self.label)]
        return f"DataBatch: data shapes: {shapes[0]} label shapes: {shapes[1]}"


class DataIter(FlagsChecked):
    """Base class of iterators: `next` returns a batch or raises `StopIteration`; `reset` starts
    again."""

    provide_data: list[DataDesc]
    provide_label: list[DataDesc]

    def __init__(self, batch_size: int = 0) -> None:
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[DataBatch]:
        return self

    def __next__(self) -> DataBatch:
        return self.next()

    def next(self) -> DataBatch:
        """Advance by `iter_next` and return the batch."""
        if not self.iter_next():
            raise StopIteration
        return DataBatch(self.getdata(), self.getlabel(), self.getpad(), self.getindex())

    def reset(self) -> None:
        """Start again."""

    # ---- in parts: subclasses have these in place of `next`

    #: The batch that `getdata` and the other methods return parts of.
    current_batch: DataBatch | None = None

    def iter_next(self) -> bool:
        """Advance to the next batch; returns whether there is one."""
        if type(self).next is DataIter.next:
            raise NotImplementedError(f"{type(self).__name__} has neither next nor iter_next")
        try:
            self.current_batch = self.next()
        except StopIteration:
            return False
        return True

    def getdata(self) -> list[Any]:
        """The data of this batch."""
        return self._this().data

    def getlabel(self) -> list[Any] | None:
        """The labels of this batch."""
        return self._this().label

    def getpad(self) -> int | None:
        """The number of padding examples in this batch."""
        return None if self.current_batch is None else self.current_batch.pad

    def getindex(self) -> Any:
        """The numbers of this batch's examples."""
        return None if self.current_batch is None else self.current_batch.index

    def _this(self) -> DataBatch:
        if self.current_batch is None:
            raise GemelError(
                f"{type(self).__name__}: there is no batch yet; call next() or iter_next() first"
            )
        return self.current_batch


class Batches(DataIter):
    """An iterator over numbered examples, from which subclasses make batches in `_batch`."""

    def __init__(
        self, size: int, batch_size: int, shuffle: bool, last_batch_handle: str = "pad"
    ) -> None:
        super().__init__(batch_size)
        if last_batch_handle not in LAST_BATCH:
            raise unknown_name("last_batch_handle", last_batch_handle, LAST_BATCH)
        kind = type(self).__name__
        if not hasattr(batch_size, "__index__") or batch_size < 1:
            raise ArgumentError(
                f"{kind}: batch_size={batch_size!r} must be a whole number, 1 or more"
            )
        if size < batch_size and last_batch_handle != "pad":
            raise ArgumentError(
                f"{kind}: batch_size is {batch_size}, but there are only {size} examples; they "
                'make a batch with last_batch_handle="pad"'
            )
        self.last_batch_handle = last_batch_handle
        self._size, self._shuffle = size, shuffle
        self._left: list[int] = []
        self._order: list[int] = []
        self.reset()

    def reset(self) -> None:
        """Begin an epoch; with "roll_over" it starts with the examples left from the last one."""
        new = np.random.permutation(self._size).tolist() if self._shuffle else range(self._size)
        self._order = [*self._left, *new]
        self._left = []
        self._at = 0

    def hard_reset(self) -> None:
        """Begin an epoch without the examples left from the last one."""
        self._left = []
        self.reset()

    def next(self) -> DataBatch:
        """The next batch. An incomplete last one is padded from the epoch's beginning, left out,
        or kept for the next epoch."""
        begin, end = self._at, self._at + self.batch_size
        numbers = self._order[begin:end]
        self._at = end
        pad = self.batch_size - len(numbers)
        if pad and numbers and self.last_batch_handle == "roll_over":
            self._left = numbers
        if not numbers or (pad and self.last_batch_handle != "pad"):
            raise StopIteration
        if pad:
            numbers = numbers + [self._order[n % len(self._order)] for n in range(pad)]
        self.current_batch = self._batch(numbers, pad)
        return self.current_batch

    def _batch(self, numbers: list[int], pad: int) -> DataBatch:
        raise NotImplementedError


class ResizeIter(DataIter):
    """An iterator with `size` batches per epoch from another iterator, which restarts when it
    ends."""

    def __init__(self, data_iter: DataIter, size: int, reset_internal: bool = True) -> None:
        if not hasattr(size, "__index__") or size < 0:
            raise ArgumentError(f"ResizeIter: size={size!r} must be a whole number of batches")
        super().__init__(data_iter.batch_size)
        self.data_iter, self.size, self.reset_internal = data_iter, size, reset_internal
        self.provide_data, self.provide_label = data_iter.provide_data, data_iter.provide_label
        self.cur = 0

    def reset(self) -> None:
        """Begin an epoch; also resets the inner iterator if `reset_internal`."""
        self.cur = 0
        if self.reset_internal:
            self.data_iter.reset()

    def next(self) -> DataBatch:
        """The next batch of `size`."""
        if self.cur == self.size:
            raise StopIteration
        self.cur += 1
        try:
            self.current_batch = self.data_iter.next()
        except StopIteration:
            self.data_iter.reset()
            self.current_batch = self.data_iter.next()
        return self.current_batch


class PrefetchingIter(DataIter):
    """Prefetches batches of one or several iterators in parallel: the next batch is made while the
    last one is used.

    `rename_data` and `rename_label` are dictionaries of new names for old, one for each iterator.
    """

    def __init__(self, iters: Any, rename_data: Any = None, rename_label: Any = None) -> None:
        self.iters = as_list(iters)
        for given in (rename_data, rename_label):
            if not self.iters or (given and len(given) != len(self.iters)):
                raise ArgumentError(
                    f"PrefetchingIter: {len(self.iters)} iterators and {len(given or ())} "
                    "dictionaries of names; give at least one iterator, and one for each"
                )
        super().__init__(self.iters[0].batch_size)
        self.provide_data = _renamed([it.provide_data for it in self.iters], rename_data)
        self.provide_label = _renamed([it.provide_label for it in self.iters], rename_label)
        self._pool: Any = import_module("concurrent.futures").ThreadPoolExecutor(1)
        self._coming = self._pool.submit(self._together)

    def _together(self) -> DataBatch | None:
        try:
            parts = [it.next() for it in self.iters]
        except StopIteration:
            return None
        data, label = (
            [x for part in parts for x in getattr(part, kind) or []] for kind in ("data", "label")
        )
        described = self.provide_data, self.provide_label
        return DataBatch(data, label, parts[0].pad, parts[0].index, None, *described)

    def reset(self) -> None:
        """Begin an epoch."""
        self._coming.exception()  # let the prefetch end, and ignore its error
        for it in self.iters:
            it.reset()
        self._coming = self._pool.submit(self._together)

    def next(self) -> DataBatch:
        """The next batch."""
        found: DataBatch | None = self._coming.result()
        if found is None:
            raise StopIteration
        self._coming = self._pool.submit(self._together)
        self.current_batch = found
        return found


def _renamed(described: list[list[DataDesc]], names: Any) -> list[DataDesc]:
    """The descriptions of several iterators, with new names."""
    pairs = zip(described, names or [{}] * len(described), strict=True)
    return [
        DataDesc(new.get(each.name, each.name), each.shape, each.dtype, each.layout)
        for some, new in pairs
        for each in some
    ]


def _named(values: Any, name: str) -> list[tuple[str, Any]]:
    """Arrays with names, from one array, a list or a dictionary. NumPy arrays become float32."""
    if values is None:
        return []
    if isinstance(values, dict):
        pairs = list(values.items())
    elif isinstance(values, (list, tuple)):
        names = [name] if len(values) == 1 else [f"_{n}_{name}" for n in range(len(values))]
        pairs = list(zip(names, values, strict=True))
    else:
        pairs = [(name, values)]
    ours = np.ndarray
    return [(n, x if isinstance(x, ours) else nd.array(x, dtype="float32")) for n, x in pairs]


class NDArrayIter(Batches):
    """Batches of arrays: one array, a list or a dictionary, with labels in the same form.

    The batches are NDArrays, unless they come from `np` arrays.

    `last_batch_handle` is "pad", "discard" or "roll_over".
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        batch_size: int = 1,
        shuffle: bool = False,
        last_batch_handle: str = "pad",
        data_name: str = "data",
        label_name: str = "softmax_label",
    ) -> None:
        self.data, self.label = _named(data, data_name), _named(label, label_name)
        if not self.data or not all(x.ndim for _, x in (*self.data, *self.label)):
            raise ShapeError("NDArrayIter: needs an array of data, and arrays with an axis 0")
        sizes = {name: len(x) for name, x in (*self.data, *self.label)}
        if len(set(sizes.values())) != 1:
            raise ShapeError(f"NDArrayIter: the arrays differ in length: {sizes}")
        super().__init__(next(iter(sizes.values())), batch_size, shuffle, last_batch_handle)

    def _described(self, arrays: list[tuple[str, Any]]) -> list[DataDesc]:
        return [DataDesc(n, (self.batch_size, *x.shape[1:]), x.dtype) for n, x in arrays]

    @property
    def provide_data(self) -> list[DataDesc]:  # type: ignore[override]
        """Names and shapes of a batch's data."""
        return self._described(self.data)

    @property
    def provide_label(self) -> list[DataDesc]:  # type: ignore[override]
        """Names and shapes of a batch's labels."""
        return self._described(self.label)

    def _batch(self, numbers: list[int], pad: int) -> DataBatch:
        index = np.array(numbers, dtype="int64")
        data, label = ([x[index] for _, x in each] for each in (self.data, self.label))
        return DataBatch(data, label, pad, index, None, self.provide_data, self.provide_label)


#: The modules of names that are imported when they are first used: they import this one.
_LATE = {
    "CSVIter": "tables",
    "ImageRecordIter": "image.iterators",
    "LibSVMIter": "tables",
    "MNISTIter": "image.iterators",
    "read_csv": "tables",
    "read_libsvm": "tables",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        return module_elsewhere(__name__, name, __all__)
    found = getattr(import_module(f"gemel.{_LATE[name]}"), name)
    return globals().setdefault(name, found)


__all__ = [
    "Batches",
    "CSVIter",
    "DataBatch",
    "DataDesc",
    "DataIter",
    "ImageRecordIter",
    "LibSVMIter",
    "MNISTIter",
    "NDArrayIter",
    "PrefetchingIter",
    "ResizeIter",
    "read_csv",
    "read_libsvm",
]
