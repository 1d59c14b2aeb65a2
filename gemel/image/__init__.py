"""Images as arrays (height, width, channels): reading, resizing, cropping, random augmentation.

Reading files needs Pillow (``pip install gemel[image]``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gemel.elsewhere import module_elsewhere
from gemel.image.pictures import (
    center_crop,
    color_normalize,
    copyMakeBorder,
    decoded,
    encoded,
    fixed_crop,
    imdecode,
    imread,
    imresize,
    imrotate,
    random_crop,
    random_rotate,
    random_size_crop,
    resize_short,
    scale_down,
)

if TYPE_CHECKING:
    from gemel.image.augmenters import (
        Augmenter,
        BrightnessJitterAug,
        CastAug,
        CenterCropAug,
        ColorJitterAug,
        ColorNormalizeAug,
        ContrastJitterAug,
        CreateAugmenter,
        ForceResizeAug,
        HorizontalFlipAug,
        HueJitterAug,
        LightingAug,
        RandomCropAug,
        RandomGrayAug,
        RandomOrderAug,
        RandomSizedCropAug,
        ResizeAug,
        SaturationJitterAug,
        SequentialAug,
    )
    from gemel.image.detection import (
        CreateDetAugmenter,
        CreateMultiRandCropAugmenter,
        DetAugmenter,
        DetBorrowAug,
        DetHorizontalFlipAug,
        DetRandomCropAug,
        DetRandomPadAug,
        DetRandomSelectAug,
        ImageDetIter,
    )
    from gemel.image.iterators import ImageIter

#: Modules that most programs do not use; they are imported when one of their names is used.
LATE = ("augmenters", "iterators", "detection")

__all__ = [
    "Augmenter",
    "BrightnessJitterAug",
    "CastAug",
    "CenterCropAug",
    "ColorJitterAug",
    "ColorNormalizeAug",
    "ContrastJitterAug",
    "CreateAugmenter",
    "CreateDetAugmenter",
    "CreateMultiRandCropAugmenter",
    "DetAugmenter",
    "DetBorrowAug",
    "DetHorizontalFlipAug",
    "DetRandomCropAug",
    "DetRandomPadAug",
    "DetRandomSelectAug",
    "ForceResizeAug",
    "HorizontalFlipAug",
    "HueJitterAug",
    "ImageDetIter",
    "ImageIter",
    "LightingAug",
    "RandomCropAug",
    "RandomGrayAug",
    "RandomOrderAug",
    "RandomSizedCropAug",
    "ResizeAug",
    "SaturationJitterAug",
    "SequentialAug",
    "center_crop",
    "color_normalize",
    "copyMakeBorder",
    "decoded",
    "encoded",
    "fixed_crop",
    "imdecode",
    "imread",
    "imresize",
    "imrotate",
    "random_crop",
    "random_rotate",
    "random_size_crop",
    "resize_short",
    "scale_down",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        return module_elsewhere(__name__, name, __all__)
    for module in LATE:
        found = getattr(import_module(f"{__name__}.{module}"), name, None)
        if found is not None:
            return globals().setdefault(name, found)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
