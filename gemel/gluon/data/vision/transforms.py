"""Transforms of images (H, W, C) or of batches (N, H, W, C).

Those that compute are hybrid blocks: `hybridize()` makes one program of a sequence of them. Each
image in a batch is treated as if it were alone, with its own random numbers, so a `DataLoader` over
arrays runs transforms on whole batches. Further arguments (a label) are passed through.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from gemel import image, np, npx
from gemel.dtype import as_dtype
from gemel.errors import ArgumentError, OperandError, ShapeError
from gemel.gluon.block import Tensor
from gemel.gluon.data.dataset import takes_batches
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.nn.containers import HybridSequential, Sequential
from gemel.image.pictures import drawn
from gemel.lists import as_list
from gemel.ops.images import GREY
from gemel.ops.random import has_own_stream
from gemel.ranges import check_ends, check_number, counted, is_finite
from gemel.spec import is_several, plain

#: Whether all transforms of a sequence treat a batch like single images.
ALL_TAKE_BATCHES = property(lambda self: all(takes_batches(child) for child in self))


class Compose(Sequential):
    """Applies transforms one after the other. Adjacent hybrid transforms become one program."""

    def __init__(self, transforms: Any) -> None:
        super().__init__()
        if not hasattr(transforms, "__iter__"):
            raise OperandError(f"Compose: give a list of transforms, not {transforms!r}")
        for hybrid, run in groupby(transforms, lambda each: isinstance(each, HybridBlock)):
            several = list(run)
            self.add(*([HybridCompose(several)] if hybrid and len(several) > 1 else several))

    takes_batches = ALL_TAKE_BATCHES


class _PassesOn(HybridBlock):
    """A block whose `forward` receives the image; further arguments are passed through
    unchanged."""

    def __call__(self, x: Tensor, *others: Any) -> Any:
        """Return the transformed image and the further arguments.

        A thread with its own random stream does not use a program, because the program would keep
        drawing from the stream it was traced with.
        """
        found = self.forward(x) if has_own_stream() else super().__call__(x)
        return (found, *others) if others else found


class HybridCompose(_PassesOn, HybridSequential):
    """Applies hybrid transforms one after the other, hybridized; one program serves all sizes."""

    def __init__(self, transforms: Any) -> None:
        super().__init__(*transforms)
        self.hybridize()

    takes_batches = ALL_TAKE_BATCHES


class Transform(_PassesOn):
    """A transform of images, which treats a batch like single images."""

    takes_batches = True
    #: What it was made with, by name.
    _settings: dict[str, Any] = {}  # noqa: RUF012 -- replaced, never changed

    def __repr__(self) -> str:
        if self._children:
            return super().__repr__()
        shown = ", ".join(f"{name}={value!r}" for name, value in self._settings.items())
        return f"{type(self).__name__}({shown})"


class Cast(Transform):
    """Converts to another dtype."""

    def __init__(self, dtype: Any = "float32") -> None:
        super().__init__()
        as_dtype(dtype)  # raises an error if it is none
        self._settings = {"dtype": dtype}

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return x.astype(self._settings["dtype"])


class ToTensor(Transform):
    """Converts (H, W, C), 0 to 255, to float32 (C, H, W), 0 to 1."""

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.to_tensor(x)


class Normalize(Transform):
    """(x - mean) / std of pictures (C, H, W), with one number for each channel."""

    def __init__(self, mean: Any = 0.0, std: Any = 1.0) -> None:
        super().__init__()
        if not np.all(np.array(std) > 0):
            raise ArgumentError(f"Normalize: std is {std!r}; every number must be above 0")
        self._settings = {"mean": mean, "std": std}

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.normalize(x, **self._settings)


class Rotate(Transform):
    """Floating pictures (C, H, W) turned by an angle in degrees; see `npx.image.rotate`."""

    def __init__(
        self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False
    ) -> None:
        super().__init__()
        check_number("Rotate", "rotation_degrees", rotation_degrees)
        self._settings = {
            "rotation_degrees": rotation_degrees,
            "zoom_in": zoom_in,
            "zoom_out": zoom_out,
        }

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.rotate(x, *self._settings.values())


class RandomRotation(Transform):
    """Floating pictures (C, H, W) turned by an angle between two limits, with a probability."""

    def __init__(
        self,
        angle_limits: tuple[float, float],
        zoom_in: bool = False,
        zoom_out: bool = False,
        rotate_with_proba: float = 1.0,
    ) -> None:
        super().__init__()
        pair = tuple(angle_limits) if hasattr(angle_limits, "__iter__") else ()
        check_number("RandomRotation", "rotate_with_proba", rotate_with_proba, 0, 1)
        if not (len(pair) == 2 and all(map(is_finite, pair)) and pair[0] < pair[1]):
            raise ArgumentError(
                f"RandomRotation: the limits {angle_limits} must be increasing: two numbers"
            )
        low, high = pair
        self._settings = {
            "angle_limits": (float(low), float(high)),
            "zoom_in": zoom_in,
            "zoom_out": zoom_out,
            "rotate_with_proba": rotate_with_proba,
        }

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        (low, high), *zoom, chance = self._settings.values()
        single = len(x.shape) == 3
        batch = np.expand_dims(x, 0) if single else x
        count = (batch.shape[0],)
        angles = np.random.uniform(low, high, size=count)
        found = npx.image.rotate(batch, angles, *zoom)
        if chance < 1:
            chosen = np.random.uniform(size=count) < chance
            found = np.where(chosen.reshape(-1, 1, 1, 1), found, batch)
        return found[0] if single else found


def _pair(name: str, size: Any) -> tuple[int, int]:
    """A size (width, height), given as a pair or as one number. Raises `ArgumentError`."""
    pair = plain(size) if is_several(size) else (plain(size),) * 2
    if len(pair) != 2:
        raise ArgumentError(f"{name}: size is {size!r}; it must be one number, or (width, height)")
    return counted(name, "the width", pair[0]), counted(name, "the height", pair[1])


class Resize(Transform):
    """Another size: (width, height), or one number for both or, with `keep_ratio`, the shorter."""

    def __init__(self, size: Any, keep_ratio: bool = False, interpolation: int = 1) -> None:
        super().__init__()
        _pair("Resize", size)
        self._settings = {"size": size, "keep_ratio": keep_ratio, "interpolation": interpolation}

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.resize(x, *self._settings.values())


class CenterCrop(Transform):
    """Crops the centre to `size`; where the picture is smaller, resizes it."""

    def __init__(self, size: Any, interpolation: int = 1) -> None:
        super().__init__()
        self._settings = {"size": _pair("CenterCrop", size), "interpolation": interpolation}

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return image.center_crop(x, *self._settings.values())[0]


class CropResize(Transform):
    """Crops at column x and row y, and resizes to `size` if given."""

    def __init__(
        self, x: int, y: int, width: int, height: int, size: Any = None, interpolation: Any = None
    ) -> None:
        super().__init__()
        name = "CropResize"
        self._settings = {
            "x": counted(name, "x", x, 0),
            "y": counted(name, "y", y, 0),
            "width": counted(name, "width", width),
            "height": counted(name, "height", height),
            "size": None if size is None else _pair(name, size),
            "interpolation": 1 if interpolation is None else interpolation,
        }

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return image.fixed_crop(x, *self._settings.values())


class RandomCrop(Transform):
    """Crops to `size` at a random position, after adding a border of `pad` pixels.

    `pad` is a number, or the lines before and after along each axis: ((2, 2), (2, 2), (0, 0)).
    """

    def __init__(
        self, size: Any, pad: Any = None, pad_value: float = 0, interpolation: int = 1
    ) -> None:
        super().__init__()
        self._size = _pair("RandomCrop", size)
        pad = plain(pad)
        self._pad = ((pad, pad), (pad, pad), (0, 0)) if isinstance(pad, int) else pad
        for each in self._pad or ():
            for lines in each:
                counted("RandomCrop", "pad", lines, 0)
        self._settings = {
            "size": self._size,
            "pad": pad,
            "pad_value": pad_value,
            "interpolation": interpolation,
        }

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        if self._pad:
            around = ((0, 0),) * (len(x.shape) - 3) + tuple(map(tuple, self._pad))
            value = self._settings["pad_value"]
            x = np.pad(x, around, mode="constant", constant_values=value)
        kind = self._settings["interpolation"]
        return npx.image.random_crop(x, (0, 1), (0, 1), *self._size, interp=kind)


class RandomResizedCrop(Transform):
    """Crops a random fraction (`scale`) of the area with a random aspect ratio, and resizes
    (Szegedy et al., CVPR 2015)."""

    def __init__(
        self,
        size: Any,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: int = 1,
    ) -> None:
        super().__init__()
        scale = (scale, 1.0) if isinstance(scale, (int, float)) else scale
        check_ends("RandomResizedCrop", "scale", scale, 1)
        check_ends("RandomResizedCrop", "ratio", ratio)
        self._settings = {
            "size": _pair("RandomResizedCrop", size),
            "scale": scale,
            "ratio": ratio,
            "interpolation": interpolation,
        }

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        size, *how = self._settings.values()
        return npx.image.random_resized_crop(x, *size, *how)


class _ByChance(Transform):
    """A transform with a probability p. Raises `ArgumentError` unless it is from 0 to 1."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        check_number(type(self).__name__, "p", p, 0, 1)
        self._p = p
        self._settings = {"p": p}


class RandomFlipLeftRight(_ByChance):
    """Flips left to right with probability p."""

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.random_flip_left_right(x, self._p)


class RandomFlipTopBottom(_ByChance):
    """Flips top to bottom with probability p."""

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.random_flip_top_bottom(x, self._p)


class RandomColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random factors between 1 - value, but not
    below 0, and 1 + value."""

    def __init__(
        self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0
    ) -> None:
        super().__init__()
        given = {
            "brightness": brightness,
            "contrast": contrast,
            "saturation": saturation,
            "hue": hue,
        }
        for name, value in given.items():
            check_number(type(self).__name__, name, value, 0)
        self._settings = {name: value for name, value in given.items() if value}

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.random_color_jitter(x, **self._settings)


class RandomBrightness(RandomColorJitter):
    """Multiplies by a random factor between 1 - brightness, but not below 0, and 1 + brightness."""

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness=brightness)


class RandomContrast(RandomColorJitter):
    """Blends with the mean grey, by a random factor between 1 - contrast and 1 + contrast."""

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast=contrast)


class RandomSaturation(RandomColorJitter):
    """Blends with the grey picture, by a random factor between 1 - saturation and 1 +
    saturation."""

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation=saturation)


class RandomHue(RandomColorJitter):
    """Rotates hues, by a random factor between 1 - hue and 1 + hue; 2 is half a turn."""

    def __init__(self, hue: float) -> None:
        super().__init__(hue=hue)


class RandomLighting(Transform):
    """Adds noise along the principal directions of colour (Krizhevsky et al., 2012)."""

    def __init__(self, alpha: float) -> None:
        super().__init__()
        check_number("RandomLighting", "alpha", alpha, 0)
        self._settings = {"alpha": alpha}

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.random_lighting(x, self._settings["alpha"])


def _chosen(x: Tensor, p: float, changed: Tensor) -> Tensor:
    """Apply the change to each image separately with probability p."""
    return np.where(np.random.uniform(size=(*x.shape[:-3], 1, 1, 1)) < p, changed, x)


class RandomGray(_ByChance):
    """Converts to grey, still with three channels, with probability p."""

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        x = np.asarray(x)
        if x.shape[-1] != 3:
            raise ShapeError(
                f"RandomGray: {list(x.shape)} must have 3 channels along the last axis"
            )
        level = sum(x[..., n : n + 1] * weight for n, weight in enumerate(GREY))
        return _chosen(
            x, self._p, (level if x.dtype.is_floating else np.rint(level)).astype(x.dtype)
        )


class RandomApply(Sequential):
    """Applies all of its transforms with probability p."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__(*as_list(transforms))
        check_number("RandomApply", "p", p, 0, 1)
        self._p = p

    def forward(self, x: Tensor, *others: Tensor) -> Any:
        """The image, transformed or not, and the further arguments."""
        if drawn() < self._p:
            return super().forward(x, *others)
        return (x, *others) if others else x


class HybridRandomApply(_ByChance):
    """Applies all of its hybrid transforms, which must keep shape and dtype, with probability p."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__(p)
        self.transforms = HybridCompose(as_list(transforms))

    @property
    def takes_batches(self) -> bool:  # type: ignore[override]
        """Whether all of them treat a batch like single images."""
        return takes_batches(self.transforms)

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        found = self.transforms(x)
        if len(found.shape) != len(x.shape) or found.dtype != x.dtype:
            raise ShapeError(
                f"HybridRandomApply: the transforms make {found.dtype}{list(found.shape)} of "
                f"{x.dtype}{list(x.shape)}; both must have the same shape and dtype, or use "
                "RandomApply"
            )
        return _chosen(x, self._p, found)


__all__ = [
    "Cast",
    "CenterCrop",
    "Compose",
    "CropResize",
    "HybridCompose",
    "HybridRandomApply",
    "Normalize",
    "RandomApply",
    "RandomBrightness",
    "RandomColorJitter",
    "RandomContrast",
    "RandomCrop",
    "RandomFlipLeftRight",
    "RandomFlipTopBottom",
    "RandomGray",
    "RandomHue",
    "RandomLighting",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSaturation",
    "Resize",
    "Rotate",
    "ToTensor",
    "Transform",
]
