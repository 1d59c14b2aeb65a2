"""Batches of pictures from record files, lists and folders, in MXNet 1's form."""

from __future__ import annotations

import os
from os.path import splitext
from pathlib import Path
from typing import Any

from gemel import ndarray as nd
from gemel import np, recordio
from gemel.arrays.archives import checked_path
from gemel.errors import ArgumentError, DataFileError, MissingFileError, ShapeError
from gemel.image.augmenters import CreateAugmenter
from gemel.image.pictures import imdecode
from gemel.io import Batches, DataBatch, DataDesc, NDArrayIter
from gemel.ranges import counted
from gemel.spec import is_several
from gemel.tracing.manners import as_nd


class ImageIter(Batches):
    """Batches (N, C, H, W) of augmented pictures, grey if `data_shape` (C, H, W) has one channel.

    They come from a record file (`path_imgrec`, with the index `path_imgidx`), or from files below
    `path_root` in a list: `path_imglist`, a file of lines of number, labels and path, which may be
    below `path_root` too, or `imglist`, rows of labels and path. `aug_list` are augmenters, by
    default those of `CreateAugmenter(data_shape, **settings)`. Part `part_index` of `num_parts` is
    used.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: tuple[int, int, int],
        label_width: int = 1,
        path_imgrec: Any = None,
        path_imglist: Any = None,
        path_root: Any = None,
        path_imgidx: Any = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: Any = None,
        imglist: Any = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: Any = "float32",
        last_batch_handle: str = "pad",
        **settings: Any,
    ) -> None:
        if not is_several(data_shape) or len(data_shape) != 3 or data_shape[0] not in (1, 3):
            raise ShapeError(
                f"{type(self).__name__}: data_shape {data_shape} must be (3, H, W) or (1, H, W)"
            )
        counted(type(self).__name__, "num_parts", num_parts)
        if counted(type(self).__name__, "part_index", part_index, 0) >= num_parts:
            raise ArgumentError(
                f"{type(self).__name__}: {part_index} is not below num_parts={num_parts}"
            )
        self.data_shape, self.label_width, self._dtype = tuple(data_shape), label_width, dtype
        self.auglist = self._augmenters(settings) if aug_list is None else list(aug_list)
        self._source = _source(path_imgrec, path_imgidx, path_imglist, path_root, imglist)
        size = len(self._source) // num_parts
        self._first = size * part_index
        self._names = data_name, label_name
        super().__init__(
            len(self._source) if num_parts == 1 else size, batch_size, shuffle, last_batch_handle
        )

    def _augmenters(self, settings: dict[str, Any]) -> list[Any]:
        return list(CreateAugmenter(self.data_shape, **settings))  # type: ignore[arg-type]

    @property
    def provide_data(self) -> list[DataDesc]:  # type: ignore[override]
        """Name and shape of a batch's pictures."""
        return [DataDesc(self._names[0], (self.batch_size, *self.data_shape))]

    @property
    def provide_label(self) -> list[DataDesc]:  # type: ignore[override]
        """Name and shape of a batch's labels."""
        width = (self.label_width,) if self.label_width > 1 else ()
        return [DataDesc(self._names[1], (self.batch_size, *width), self._dtype)]

    def _sample(self, number: int) -> tuple[Any, Any]:
        """A decoded picture, and its label."""
        label, data, name = self._source[self._first + number]
        return self.imdecode(data, name), label

    def imdecode(self, s: bytes, name: str = "") -> Any:
        """Decode the bytes of a file; subclasses may read other formats."""
        return imdecode(s, flag=int(self.data_shape[0] == 3), name=name)

    def _batch(self, numbers: list[int], pad: int) -> DataBatch:
        samples = [self._sample(number) for number in numbers]
        pictures = [self.augmentation_transform(picture) for picture, _ in samples]
        for each in pictures:
            if each.shape[-1] != self.data_shape[0]:
                raise ShapeError(
                    f"{type(self).__name__}: the augmenters gave a picture {each.shape}, whose "
                    f"channels are not those of data_shape {self.data_shape}"
                )
        found = np.stack(pictures)
        labels = np.array([_label(each, self.label_width) for _, each in samples], self._dtype)
        data, label = as_nd(([found.transpose(0, 3, 1, 2)], [labels]))
        return DataBatch(data, label, pad, numbers, None, self.provide_data, self.provide_label)

    def augmentation_transform(self, data: Any) -> Any:
        """Apply all augmenters to a picture; subclasses may change it in other ways."""
        for augmenter in self.auglist:
            data = augmenter(data)
        return data


def _label(label: Any, width: int) -> Any:
    values = [float(value) for value in label] if getattr(label, "ndim", 0) else [float(label)]
    if len(values) != width:
        raise ShapeError(
            f"ImageIter: a label has {len(values)} numbers; but label_width is {width}"
        )
    return values[0] if width == 1 else values


def _source(record: Any, index: Any, lines: Any, root: Any, rows: Any) -> Any:
    """A sequence of (label, bytes of the file, its name)."""
    if record is not None:
        return _Records(record, index)
    if lines is None and rows is None:
        raise ArgumentError("ImageIter: give path_imgrec, path_imglist or imglist")
    # This module is in a higher layer, and needed only here.
    from gemel.gluon.data.vision import ImageListDataset

    if rows is not None:  # labels may be a separate list
        rows = [[*(r[0] if isinstance(r[0], (list, tuple)) else r[:-1]), r[-1]] for r in rows]
    if lines is not None:
        path = checked_path("ImageIter", "path_imglist", lines)
        rows = os.path.abspath(path) if os.path.exists(path) else path
    return _Files(ImageListDataset(root or ".", rows))


class _Records:
    def __init__(self, path: Any, index: Any) -> None:
        place = index if index is not None else splitext(path)[0] + ".idx"
        self._record = recordio.MXIndexedRecordIO(place, path, "r")

    def __len__(self) -> int:
        return len(self._record.keys)

    def __getitem__(self, number: int) -> tuple[Any, bytes, str]:
        key = self._record.keys[number]
        name = f"{self._record.uri}: record {key} at byte {self._record.idx[key]}"
        try:
            header, data = recordio.unpack(self._record.read_idx(key))
        except DataFileError as error:
            raise DataFileError(f"{name}: {error}") from None
        return header.label, data, name


class _Files:
    def __init__(self, dataset: Any) -> None:
        self._items = dataset.items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> tuple[Any, bytes, str]:
        path, label = self._items[number]
        try:
            return label, Path(path).read_bytes(), path
        except FileNotFoundError:
            raise MissingFileError(f"{path} does not exist") from None


def ImageRecordIter(  # noqa: N802 -- MXNet's name
    path_imgrec: Any,
    data_shape: tuple[int, int, int],
    batch_size: int,
    path_imgidx: Any = None,
    label_width: int = 1,
    shuffle: bool = False,
    resize: int = -1,
    rand_crop: bool = False,
    rand_mirror: bool = False,
    mean_r: float = 0.0,
    mean_g: float = 0.0,
    mean_b: float = 0.0,
    std_r: float = 1.0,
    std_g: float = 1.0,
    std_b: float = 1.0,
    scale: float = 1.0,
    round_batch: bool = True,
    part_index: int = 0,
    num_parts: int = 1,
    data_name: str = "data",
    label_name: str = "softmax_label",
    inter_method: int = 1,
    preprocess_threads: int = 4,
    prefetch_buffer: int = 4,
) -> ImageIter:
    """An `ImageIter` over a record file, whose pictures become (x - mean) / std * scale; grey ones
    (`data_shape` (1, H, W)) by `mean_r` and `std_r`.

    `preprocess_threads` and `prefetch_buffer` are accepted for old code: a `DataLoader` over an
    `ImageRecordDataset` has workers.
    """
    some = slice(data_shape[0])
    mean, std = np.array((mean_r, mean_g, mean_b)[some]), np.array((std_r, std_g, std_b)[some])
    changes = CreateAugmenter(
        data_shape, max(resize, 0), rand_crop, False, rand_mirror, mean, std / scale,
        inter_method=inter_method,
    )  # fmt: skip
    return ImageIter(
        batch_size, data_shape, label_width, path_imgrec, path_imgidx=path_imgidx, shuffle=shuffle,
        part_index=part_index, num_parts=num_parts, aug_list=changes, data_name=data_name,
        label_name=label_name, last_batch_handle="pad" if round_batch else "discard",
    )  # fmt: skip


def MNISTIter(  # noqa: N802 -- MXNet's name
    image: Any,
    label: Any,
    batch_size: int = 128,
    shuffle: bool = True,
    flat: bool = False,
    silent: bool = False,
    seed: int = 0,
    num_parts: int = 1,
    part_index: int = 0,
) -> NDArrayIter:
    """Batches of idx files: pictures (N, 1, 28, 28), or `flat` (N, 784), from 0 to 255 / 256.

    An incomplete last batch is left out. `silent` and `seed` are accepted for old code: the order
    follows `np.random.seed`.
    """
    from gemel.gluon.data.vision.formats import read_pictures  # in a higher layer

    pictures, labels = read_pictures(Path(image), Path(label))
    size = len(labels) // num_parts
    part = slice(size * part_index, size * (part_index + 1))
    shape = (-1, pictures[0].size) if flat else (-1, 1, *pictures.shape[1:3])
    data = nd.array(pictures[part], dtype="float32").reshape(shape) / 256
    return NDArrayIter(data, labels[part], batch_size, shuffle, "discard")
