"""Pictures with boxes: augmenters that change both, and batches of them.

A label is a NumPy array (boxes, 5 or more): class, left, top, right, bottom, as fractions of width
and height; rows of -1 are padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

from gemel import np
from gemel.errors import ArgumentError, DataFileError, ShapeError
from gemel.image import augmenters as plain
from gemel.image import pictures
from gemel.image.iterators import ImageIter
from gemel.image.pictures import drawn, drawn_whole
from gemel.io import DataBatch, DataDesc
from gemel.ir.reference import numpy
from gemel.lists import as_list
from gemel.ranges import check_number

Range = tuple[float, float]


class DetAugmenter(plain.Augmenter):
    """Base class of augmenters for detection: called with a picture (H, W, C) and its boxes,
    returns both changed."""

    def __call__(self, src: Any, label: Any) -> Any:  # type: ignore[override]
        """The changed picture, and its boxes."""
        return self._both(src, label)

    def _both(self, src: Any, label: Any) -> tuple[Any, Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __call__(self, src, label)")


@dataclass
class DetBorrowAug(DetAugmenter):
    """Applies an augmenter that moves nothing to the picture."""

    augmenter: Any

    def dumps(self) -> Any:
        """Its name, and the other's."""
        return [type(self).__name__.lower(), self.augmenter.dumps()]

    def _both(self, src: Any, label: Any) -> tuple[Any, Any]:
        return self.augmenter(src), label


@dataclass
class DetRandomSelectAug(DetAugmenter):
    """Applies one of several augmenters at random, or none with probability `skip_prob`."""

    aug_list: Any
    skip_prob: float = 0

    def dumps(self) -> Any:
        """The name of this augmenter, and those of its parts."""
        return [type(self).__name__.lower(), [each.dumps() for each in as_list(self.aug_list)]]

    def _both(self, src: Any, label: Any) -> tuple[Any, Any]:
        choices = as_list(self.aug_list)
        if not choices or drawn() < self.skip_prob:
            return src, label
        found: tuple[Any, Any] = choices[drawn_whole(0, len(choices) - 1)](src, label)
        return found


def _range(value: Any) -> Range:
    return (value, value) if isinstance(value, (int, float)) else tuple(value)


@dataclass
class DetHorizontalFlipAug(DetAugmenter):
    """Flips left to right with probability p."""

    p: float

    def _both(self, src: Any, label: Any) -> tuple[Any, Any]:
        if drawn() >= self.p:
            return src, label
        turned = label.copy()
        turned[:, 1], turned[:, 3] = 1.0 - label[:, 3], 1.0 - label[:, 1]
        return np.flip(src, axis=1), turned


def _areas(boxes: Any) -> Any:
    """The areas of boxes (N, 4)."""
    sides = numpy().maximum(boxes[:, 2:4] - boxes[:, :2], 0)
    return sides[:, 0] * sides[:, 1]


@dataclass
class DetRandomCropAug(DetAugmenter):
    """Crops the picture at random so that some box is covered by more than `min_object_covered`.

    Boxes with less than `min_eject_coverage` left are dropped. After `max_attempts` crops that do
    not fit or leave no box, the picture is unchanged (Liu et al., SSD, ECCV 2016).
    """

    min_object_covered: float = 0.1
    aspect_ratio_range: Any = (0.75, 1.33)
    area_range: Any = (0.05, 1.0)
    min_eject_coverage: float = 0.3
    max_attempts: int = 50

    def _both(self, src: Any, label: Any) -> tuple[Any, Any]:
        high, wide = src.shape[:2]
        low, most = _range(self.area_range)
        for _ in range(self.max_attempts):
            ratio = drawn(*_range(self.aspect_ratio_range))
            pixels = drawn(low, min(most, 1.0)) * high * wide
            w, h = round(sqrt(pixels * ratio)), round(sqrt(pixels / ratio))
            if not (0 < w <= wide and 0 < h <= high and w * h > 1):
                continue
            x, y = drawn_whole(0, wide - w), drawn_whole(0, high - h)
            boxes = self._kept(label, x / wide, y / high, w / wide, h / high)
            if boxes is not None:
                return pictures.fixed_crop(src, x, y, w, h), boxes
        return src, label

    def _kept(self, label: Any, x: float, y: float, w: float, h: float) -> Any:
        """The boxes in a crop, as fractions of it; None if it shows too little of a box, or drops
        all."""
        moved = label.copy()
        moved[:, (1, 3)] = ((label[:, (1, 3)] - x) / w).clip(0, 1)
        moved[:, (2, 4)] = ((label[:, (2, 4)] - y) / h).clip(0, 1)
        whole = _areas(label[:, 1:])
        share = numpy().divide(
            _areas(moved[:, 1:]) * w * h, whole, out=numpy().zeros_like(whole), where=whole > 0
        )
        if not (share > 0).any() or share[share > 0].min() <= self.min_object_covered:
            return None
        stays = share > self.min_eject_coverage
        return moved[stays] if stays.any() else None


@dataclass
class DetRandomPadAug(DetAugmenter):
    """Places the picture at random in a larger one of the colour `pad_val`."""

    aspect_ratio_range: Any = (0.75, 1.33)
    area_range: Any = (1.0, 3.0)
    max_attempts: int = 50
    pad_val: Any = (128, 128, 128)

    def _both(self, src: Any, label: Any) -> tuple[Any, Any]:
        high, wide = src.shape[:2]
        for _ in range(self.max_attempts):
            ratio = drawn(*_range(self.aspect_ratio_range))
            pixels = drawn(*_range(self.area_range)) * high * wide
            w, h = round(sqrt(pixels * ratio)), round(sqrt(pixels / ratio))
            if w - wide < 2 or h - high < 2:
                continue
            x, y = drawn_whole(0, w - wide), drawn_whole(0, h - high)
            moved = label.copy()
            moved[:, (1, 3)] = (label[:, (1, 3)] * wide + x) / w
            moved[:, (2, 4)] = (label[:, (2, 4)] * high + y) / h
            values = self.pad_val if isinstance(self.pad_val, (tuple, list)) else [self.pad_val] * 3
            around = y, h - y - high, x, w - x - wide
            return pictures.copyMakeBorder(src, *around, values=values), moved
        return src, label


def CreateMultiRandCropAugmenter(  # noqa: N802 -- MXNet's name
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 1.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    skip_prob: float = 0,
) -> DetRandomSelectAug:
    """One of several `DetRandomCropAug`: each setting is a value, or a list with one for each."""
    settings = (
        min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts
    )  # fmt: skip
    listed = [each if isinstance(each, list) else [each] for each in settings]
    most = max(map(len, listed))
    if any(len(each) not in (1, most) for each in listed):
        raise ArgumentError(
            "CreateMultiRandCropAugmenter: all lists must have the same number of values, or "
            f"one value; they have {[len(each) for each in listed]}"
        )
    full = [each * (most // len(each)) for each in listed]
    crops = [DetRandomCropAug(*each) for each in zip(*full, strict=True)]
    return DetRandomSelectAug(crops, skip_prob)


def CreateDetAugmenter(  # noqa: N802 -- MXNet's name
    data_shape: tuple[int, int, int],
    resize: int = 0,
    rand_crop: float = 0,
    rand_pad: float = 0,
    rand_gray: float = 0,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    pca_noise: float = 0,
    hue: float = 0,
    inter_method: int = 2,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 3.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    pad_val: Any = (127, 127, 127),
) -> list[DetAugmenter]:
    """The usual augmenters for pictures of `data_shape` (C, H, W) with boxes, in order."""
    if not isinstance(data_shape, (tuple, list)) or len(data_shape) != 3:
        raise ShapeError(f"CreateDetAugmenter: data_shape={data_shape!r} must be (C, H, W)")
    for what, value in (("resize", resize), ("rand_crop", rand_crop), ("rand_pad", rand_pad)):
        check_number("CreateDetAugmenter", what, value)
    found: list[DetAugmenter] = []
    if resize > 0:
        found.append(DetBorrowAug(plain.ResizeAug(resize, inter_method)))
    if rand_crop > 0:
        settings = min_object_covered, aspect_ratio_range, area_range, min_eject_coverage
        found.append(CreateMultiRandCropAugmenter(*settings, max_attempts, 1 - rand_crop))
    if rand_mirror:
        found.append(DetHorizontalFlipAug(0.5))
    if rand_pad > 0:
        pad = DetRandomPadAug(aspect_ratio_range, (1.0, area_range[1]), max_attempts, pad_val)
        found.append(DetRandomSelectAug([pad], 1 - rand_pad))
    size = plain.ForceResizeAug((data_shape[2], data_shape[1]), inter_method)
    colours = plain.colour_augmenters(
        mean, std, brightness, contrast, saturation, hue, pca_noise, rand_gray
    )
    return found + [DetBorrowAug(each) for each in (size, plain.CastAug(), *colours)]


class ImageDetIter(ImageIter):
    """Batches (N, C, H, W) of pictures, and (N, most boxes, width) of boxes, padded with -1.

    Labels in files begin with the length of their own head and the width of a box.
    """

    def __init__(self, batch_size: int, data_shape: tuple[int, int, int], **settings: Any) -> None:
        settings.setdefault("label_name", "label")
        super().__init__(batch_size, data_shape, **settings)
        self.label_shape = self._widest()

    def _augmenters(self, settings: dict[str, Any]) -> list[Any]:
        return list(CreateDetAugmenter(self.data_shape, **settings))  # type: ignore[arg-type]

    def _widest(self) -> tuple[int, int]:
        shapes = [
            _boxes(label, name).shape
            for label, _, name in (self._source[self._first + n] for n in range(self._size))
        ]
        return max(n for n, _ in shapes), max(width for _, width in shapes)

    @property
    def provide_label(self) -> list[DataDesc]:  # type: ignore[override]
        """Name and shape of a batch's boxes."""
        return [DataDesc(self._names[1], (self.batch_size, *self.label_shape))]

    def reshape(self, data_shape: Any = None, label_shape: Any = None) -> None:
        """Give other shapes, of pictures (C, H, W) or of boxes (most boxes, width)."""
        if label_shape is not None:
            if any(a < b for a, b in zip(label_shape, self.label_shape, strict=True)):
                raise ShapeError(
                    f"ImageDetIter: label_shape {tuple(label_shape)} must be at least "
                    f"{self.label_shape}"
                )
            self.label_shape = tuple(label_shape)
        if data_shape is not None:
            self.data_shape = tuple(data_shape)

    def sync_label_shape(self, it: ImageDetIter, verbose: bool = False) -> ImageDetIter:
        """Give both iterators the larger label shape, so that a network fits both."""
        most = tuple(map(max, zip(self.label_shape, it.label_shape, strict=True)))
        self.reshape(label_shape=most)
        it.reshape(label_shape=most)
        return it

    def _batch(self, numbers: list[int], pad: int) -> DataBatch:
        boxes = numpy().full((len(numbers), *self.label_shape), -1.0, "float32")
        found = []
        for place, number in enumerate(numbers):
            label, data, name = self._source[self._first + number]
            picture, label = pictures.imdecode(data, name=name), _boxes(label, name)
            for augmenter in self.auglist:
                picture, label = augmenter(picture, label)
            found.append(picture)
            boxes[place, : label.shape[0], : label.shape[1]] = label
        data = [np.stack(found).transpose(0, 3, 1, 2)]
        labels = [np.array(boxes, dtype="float32")]
        return DataBatch(data, labels, pad, numbers, None, self.provide_data, self.provide_label)


def _boxes(label: Any, name: str) -> Any:
    """The boxes with a positive area in a file's label."""
    flat = numpy().asarray(label, "float32").ravel()
    head, width = (int(flat[0]), int(flat[1])) if len(flat) > 1 else (0, 0)
    if width < 5 or head < 2 or (len(flat) - head) % width or len(flat) < head + width:
        raise DataFileError(
            f"{name}: a label of {len(flat)} numbers that begins with {flat[:2].tolist()}: it "
            "must consist of the header length, the width of a box (5 or more), and complete "
            "boxes"
        )
    boxes = flat[head:].reshape(-1, width)
    boxes = boxes[(boxes[:, 3] > boxes[:, 1]) & (boxes[:, 4] > boxes[:, 2])]
    if not len(boxes):
        raise DataFileError(f"{name}: no box has a positive area")
    return boxes


__all__ = [
    "CreateDetAugmenter",
    "CreateMultiRandCropAugmenter",
    "DetAugmenter",
    "DetBorrowAug",
    "DetHorizontalFlipAug",
    "DetRandomCropAug",
    "DetRandomPadAug",
    "DetRandomSelectAug",
    "ImageDetIter",
]
