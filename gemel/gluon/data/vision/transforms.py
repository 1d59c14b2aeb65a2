"""Transforms of images (H, W, C) or of batches (N, H, W, C).

Those that compute are hybrid blocks: `hybridize()` makes one program of a sequence of them. Each
image in a batch is treated as if it were alone, with its own random numbers, so a `DataLoader` over
arrays runs transforms on whole batches. Further arguments (a label) are passed through.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from gemel import image, np, npx
from gemel.errors import ShapeError
from gemel.gluon.block import Tensor
from gemel.gluon.data.dataset import takes_batches
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.nn.containers import HybridSequential, Sequential
from gemel.image.pictures import drawn
from gemel.lists import as_list
from gemel.ops.images import GREY
from gemel.ops.random import has_own_stream
from gemel.spec import plain

#: Whether all transforms of a sequence treat a batch like single images.
ALL_TAKE_BATCHES = property(lambda self: all(takes_batches(child) for child in self))


class Compose(Sequential):
    """Applies transforms one after the other. Adjacent hybrid transforms become one program."""

    def __init__(self, transforms: Any) -> None:
        super().__init__()
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


class Cast(Transform):
    """Converts to another dtype."""

    def __init__(self, dtype: Any = "float32") -> None:
        super().__init__()
        self._dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return x.astype(self._dtype)


class ToTensor(Transform):
    """Converts (H, W, C), 0 to 255, to float32 (C, H, W), 0 to 1."""

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.to_tensor(x)


class Normalize(Transform):
    """(x - mean) / std of pictures (C, H, W), with one number for each channel."""

    def __init__(self, mean: Any = 0.0, std: Any = 1.0) -> None:
        super().__init__()
        self._mean = mean
        self._std = std

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.normalize(x, self._mean, self._std)


class Rotate(Transform):
    """Floating pictures (C, H, W) turned by an angle in degrees; see `npx.image.rotate`."""

    def __init__(
        self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False
    ) -> None:
        super().__init__()
        self._arguments = rotation_degrees, zoom_in, zoom_out

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.rotate(x, *self._arguments)


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
        low, high = angle_limits
        if low >= high or not 0 <= rotate_with_proba <= 1:
            raise ValueError(
                f"RandomRotation: the limits {angle_limits} must be increasing, and the "
                f"probability {rotate_with_proba} must be between 0 and 1"
            )
        self._limits = float(low), float(high)
        self._zoom = zoom_in, zoom_out
        self._p = rotate_with_proba

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        single = len(x.shape) == 3
        batch = np.expand_dims(x, 0) if single else x
        count = (batch.shape[0],)
        angles = np.random.uniform(*self._limits, size=count)
        found = npx.image.rotate(batch, angles, *self._zoom)
        if self._p < 1:
            chosen = np.random.uniform(size=count) < self._p
            found = np.where(chosen.reshape(-1, 1, 1, 1), found, batch)
        return found[0] if single else found


def _pair(size: Any) -> tuple[int, int]:
    """A size (width, height), given as a pair or as one number."""
    size = plain(size)
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


class Resize(Transform):
    """Another size: (width, height), or one number for both or, with `keep_ratio`, the shorter."""

    def __init__(self, size: Any, keep_ratio: bool = False, interpolation: int = 1) -> None:
        super().__init__()
        self._arguments = size, keep_ratio, interpolation

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.resize(x, *self._arguments)


class CenterCrop(Transform):
    """Crops the centre to `size`; where the picture is smaller, resizes it."""

    def __init__(self, size: Any, interpolation: int = 1) -> None:
        super().__init__()
        self._arguments = _pair(size), interpolation

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return image.center_crop(x, *self._arguments)[0]


class CropResize(Transform):
    """Crops at column x and row y, and resizes to `size` if given."""

    def __init__(
        self, x: int, y: int, width: int, height: int, size: Any = None, interpolation: Any = None
    ) -> None:
        super().__init__()
        size = None if size is None else _pair(size)
        self._arguments = x, y, width, height, size, 1 if interpolation is None else interpolation

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return image.fixed_crop(x, *self._arguments)


class RandomCrop(Transform):
    """Crops to `size` at a random position, after adding a border of `pad` pixels.

    `pad` is a number, or the lines before and after along each axis: ((2, 2), (2, 2), (0, 0)).
    """

    def __init__(
        self, size: Any, pad: Any = None, pad_value: float = 0, interpolation: int = 1
    ) -> None:
        super().__init__()
        self._size = _pair(size)
        pad = plain(pad)
        self._pad = ((pad, pad), (pad, pad), (0, 0)) if isinstance(pad, int) else pad
        self._pad_value = pad_value
        self._interpolation = interpolation

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        if self._pad:
            around = ((0, 0),) * (len(x.shape) - 3) + tuple(map(tuple, self._pad))
            x = np.pad(x, around, mode="constant", constant_values=self._pad_value)
        return npx.image.random_crop(x, (0, 1), (0, 1), *self._size, interp=self._interpolation)


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
        self._arguments = *_pair(size), scale, ratio, interpolation

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.random_resized_crop(x, *self._arguments)


class RandomFlipLeftRight(Transform):
    """Flips left to right with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self._p = p

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.random_flip_left_right(x, self._p)


class RandomFlipTopBottom(Transform):
    """Flips top to bottom with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self._p = p

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.random_flip_top_bottom(x, self._p)


class RandomColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random factors between 1 - value and 1 +
    value."""

    def __init__(
        self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0
    ) -> None:
        super().__init__()
        self._arguments = brightness, contrast, saturation, hue

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.random_color_jitter(x, *self._arguments)


class RandomBrightness(RandomColorJitter):
    """Multiplies by a random factor between 1 - brightness and 1 + brightness."""

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
        self._alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """The transformed pictures."""
        return npx.image.random_lighting(x, self._alpha)


def _chosen(x: Tensor, p: float, changed: Tensor) -> Tensor:
    """Apply the change to each image separately with probability p."""
    return np.where(np.random.uniform(size=(*x.shape[:-3], 1, 1, 1)) < p, changed, x)


class RandomGray(Transform):
    """Converts to grey, still with three channels, with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self._p = p

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
        self._p = p

    def forward(self, x: Tensor, *others: Tensor) -> Any:
        """The image, transformed or not, and the further arguments."""
        if drawn() < self._p:
            return super().forward(x, *others)
        return (x, *others) if others else x


class HybridRandomApply(Transform):
    """Applies all of its hybrid transforms, which must keep shape and dtype, with probability p."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__()
        self.transforms = HybridCompose(as_list(transforms))
        self._p = p

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
