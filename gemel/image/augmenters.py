"""Random augmenters, which change pictures one after the other, in MXNet 1's form.

Those that change colours give floating pictures; those of integers become float32.

`gluon.data.vision.transforms` does the same to whole batches.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from math import cos, pi, sin
from typing import Any

from gemel import np
from gemel.errors import ArgumentError, OperandError, ShapeError
from gemel.image import pictures
from gemel.image.pictures import drawn, drawn_whole
from gemel.ops.images import FROM_YIQ, GREY, TO_YIQ
from gemel.ranges import check_ends, check_number
from gemel.tracing.manners import like

#: Means and standard deviations of ImageNet's red, green and blue, on the scale 0 to 255.
IMAGENET_MEAN = (123.68, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)
#: How colours of photographs vary (Krizhevsky et al., 2012): variances and directions.
EIGENVALUES = (55.46, 4.794, 1.148)
EIGENVECTORS = (
    (-0.5675, 0.7192, 0.4009),
    (-0.5808, -0.0045, -0.8140),
    (-0.5836, -0.6948, 0.4203),
)


class Augmenter:
    """Base class of augmenters: called with a picture (H, W, C), returns a changed one."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = {name: _plain(value) for name, value in kwargs.items()}

    def __post_init__(self) -> None:
        """Check the settings of gemel's own augmenters by their annotations."""
        kind = type(self)
        fields = getattr(kind, "__dataclass_fields__", {})
        for name in fields if kind.__module__.startswith("gemel.") else ():
            if check := _CHECKS.get(fields[name].type):
                check(kind.__name__, name, getattr(self, name))

    def dumps(self) -> Any:
        """Its name and settings, as JSON."""
        return json.dumps([type(self).__name__.lower(), self._settings()])

    def _settings(self) -> dict[str, Any]:
        names = getattr(self, "__dataclass_fields__", None)
        return self._kwargs if names is None else {n: _plain(getattr(self, n)) for n in names}

    def __call__(self, src: Any) -> Any:
        """The changed picture, an NDArray if `src` is one."""
        return like(src, self._made(src))

    def _made(self, src: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __call__(self, src)")


def _check_parts(name: str, what: str, value: Any) -> None:
    """Raise `OperandError` unless these are functions of a picture, in a list."""
    if not isinstance(value, (list, tuple)) or not all(map(callable, value)):
        raise OperandError(f"{name}: {what} is {value!r}; give a list of augmenters")


#: How settings are checked, by their annotations.
_CHECKS: dict[Any, Any] = {
    "float": check_number,
    "int": partial(check_number, least=0),
    "tuple[int, int]": pictures.pair,
    "tuple[float, float]": check_ends,
    "list[Any]": _check_parts,
}


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


@dataclass
class SequentialAug(Augmenter):
    """Applies several augmenters one after the other."""

    ts: list[Any]

    def dumps(self) -> Any:
        """The name of this augmenter, and those of its parts."""
        return [type(self).__name__.lower(), [each.dumps() for each in self.ts]]

    def _made(self, src: Any) -> Any:
        for each in self.ts:
            src = each(src)
        return src


class RandomOrderAug(SequentialAug):
    """Applies several augmenters in a random order."""

    def _made(self, src: Any) -> Any:
        left = list(self.ts)
        while left:
            src = left.pop(drawn_whole(0, len(left) - 1))(src)
        return src


@dataclass
class ResizeAug(Augmenter):
    """Resizes the shorter side to a size."""

    size: int
    interp: int = 2

    def _made(self, src: Any) -> Any:
        return pictures.resize_short(src, self.size, self.interp)


@dataclass
class ForceResizeAug(Augmenter):
    """Resizes to (width, height)."""

    size: tuple[int, int]
    interp: int = 2

    def _made(self, src: Any) -> Any:
        return pictures.imresize(src, *self.size, self.interp)


@dataclass
class RandomCropAug(Augmenter):
    """`random_crop`."""

    size: tuple[int, int]
    interp: int = 2

    def _made(self, src: Any) -> Any:
        return pictures.random_crop(src, self.size, self.interp)[0]


@dataclass
class RandomSizedCropAug(Augmenter):
    """`random_size_crop`."""

    size: tuple[int, int]
    area: float | tuple[float, float]
    ratio: tuple[float, float]
    interp: int = 2

    def _made(self, src: Any) -> Any:
        return pictures.random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


@dataclass
class CenterCropAug(Augmenter):
    """`center_crop`."""

    size: tuple[int, int]
    interp: int = 2

    def _made(self, src: Any) -> Any:
        return pictures.center_crop(src, self.size, self.interp)[0]


def _factor(jitter: float) -> float:
    return 1.0 + drawn(-jitter, jitter)


def _floating(src: Any) -> Any:
    """A picture in a floating dtype, in which colours are mixed."""
    x = np.asarray(src)
    return x.astype(x.dtype.floating)


def _grey(x: Any, weights: Any = GREY) -> Any:
    """The brightness (H, W) of a floating picture."""
    return np.dot(x, np.array(weights, dtype=x.dtype))


@dataclass
class BrightnessJitterAug(Augmenter):
    """Multiplies by a random factor between 1 - brightness and 1 + brightness."""

    brightness: float

    def _made(self, src: Any) -> Any:
        return src * _factor(self.brightness)


@dataclass
class ContrastJitterAug(Augmenter):
    """Blends with the mean grey, by a random factor."""

    contrast: float

    def _made(self, src: Any) -> Any:
        x, alpha = _floating(src), _factor(self.contrast)
        return x * alpha + _grey(x).mean() * (1.0 - alpha)


@dataclass
class SaturationJitterAug(Augmenter):
    """Blends with the grey picture, by a random factor."""

    saturation: float

    def _made(self, src: Any) -> Any:
        x, alpha = _floating(src), _factor(self.saturation)
        return x * alpha + np.expand_dims(_grey(x), -1) * (1.0 - alpha)


@dataclass
class HueJitterAug(Augmenter):
    """Rotates hues in YIQ by a random angle between -hue and hue half turns."""

    hue: float

    def _made(self, src: Any) -> Any:
        angle = drawn(-self.hue, self.hue) * pi
        turn = np.array(
            [[1.0, 0.0, 0.0], [0.0, cos(angle), -sin(angle)], [0.0, sin(angle), cos(angle)]]
        )
        matrix = np.dot(np.dot(np.array(FROM_YIQ), turn), np.array(TO_YIQ))
        x = _floating(src)
        return np.dot(x, matrix.T.astype(x.dtype))


class ColorJitterAug(RandomOrderAug):
    """Changes brightness, contrast and saturation (those that are not 0) in a random order."""

    def __init__(self, brightness: float, contrast: float, saturation: float) -> None:
        kinds = (BrightnessJitterAug, ContrastJitterAug, SaturationJitterAug)
        amounts = {"brightness": brightness, "contrast": contrast, "saturation": saturation}
        for what, by in amounts.items():
            check_number(type(self).__name__, what, by)
        pairs = zip(kinds, amounts.values(), strict=True)
        super().__init__([kind(by) for kind, by in pairs if by > 0])


@dataclass
class LightingAug(Augmenter):
    """Adds noise along the principal directions of colour."""

    alphastd: float
    eigval: Any
    eigvec: Any

    def _made(self, src: Any) -> Any:
        shares = np.random.normal(0, self.alphastd, size=(3,)) * np.array(self.eigval, "float32")
        x = _floating(src)
        return x + np.dot(np.array(self.eigvec, "float32"), shares).astype(x.dtype)


@dataclass
class ColorNormalizeAug(Augmenter):
    """`color_normalize`."""

    mean: Any
    std: Any

    def _made(self, src: Any) -> Any:
        return pictures.color_normalize(src, _channels(self.mean), _channels(self.std))


def _channels(values: Any) -> Any:
    return None if values is None else np.array(values, dtype="float32")


@dataclass
class RandomGrayAug(Augmenter):
    """Converts to grey, still with three channels, with probability p."""

    p: float

    def _made(self, src: Any) -> Any:
        x = _floating(src)
        if drawn() >= self.p:
            return x
        level = _grey(x, (0.21, 0.72, 0.07))
        return np.repeat(np.expand_dims(level, -1), 3, axis=-1)


@dataclass
class HorizontalFlipAug(Augmenter):
    """Flips left to right with probability p."""

    p: float

    def _made(self, src: Any) -> Any:
        return np.flip(src, axis=1) if drawn() < self.p else src


@dataclass
class CastAug(Augmenter):
    """Converts to another dtype."""

    typ: Any = "float32"

    def _made(self, src: Any) -> Any:
        return src.astype(self.typ)


def CreateAugmenter(  # noqa: N802 -- MXNet's name
    data_shape: tuple[int, int, int],
    resize: int = 0,
    rand_crop: bool = False,
    rand_resize: bool = False,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    hue: float = 0,
    pca_noise: float = 0,
    rand_gray: float = 0,
    inter_method: int = 2,
) -> list[Augmenter]:
    """The usual augmenters for pictures of `data_shape` (C, H, W), in order.

    `mean` and `std` True are ImageNet's. Raises `ShapeError` for another `data_shape`, and
    `ArgumentError` for `rand_resize` without `rand_crop`.
    """
    if not isinstance(data_shape, (tuple, list)) or len(data_shape) != 3:
        raise ShapeError(f"CreateAugmenter: data_shape={data_shape!r} must be (C, H, W)")
    size = data_shape[2], data_shape[1]
    check_number("CreateAugmenter", "resize", resize)
    found: list[Augmenter] = [ResizeAug(resize, inter_method)] if resize > 0 else []
    if rand_resize:
        if not rand_crop:
            raise ArgumentError(
                "CreateAugmenter: rand_resize crops at random, so it also needs rand_crop"
            )
        found.append(RandomSizedCropAug(size, 0.08, (3 / 4, 4 / 3), inter_method))
    else:
        found.append((RandomCropAug if rand_crop else CenterCropAug)(size, inter_method))
    if rand_mirror:
        found.append(HorizontalFlipAug(0.5))
    found.append(CastAug())
    return found + colour_augmenters(
        mean, std, brightness, contrast, saturation, hue, pca_noise, rand_gray
    )


def colour_augmenters(
    mean: Any,
    std: Any,
    brightness: float,
    contrast: float,
    saturation: float,
    hue: float,
    pca_noise: float,
    rand_gray: float,
) -> list[Augmenter]:
    """The augmenters that change only values."""
    for what, share in (("pca_noise", pca_noise), ("rand_gray", rand_gray)):
        check_number("CreateAugmenter", what, share)
    found: list[Augmenter] = []
    if brightness or contrast or saturation:
        found.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        found.append(HueJitterAug(hue))
    if pca_noise > 0:
        found.append(LightingAug(pca_noise, EIGENVALUES, EIGENVECTORS))
    if rand_gray > 0:
        found.append(RandomGrayAug(rand_gray))
    mean = IMAGENET_MEAN if mean is True else mean
    std = IMAGENET_STD if std is True else std
    if mean is not None or std is not None:
        found.append(ColorNormalizeAug(mean, std))
    return found
