"""`npx.image`: images as arrays, (H, W, C) or (N, H, W, C).

Written by `make stubs`: change what is declared instead.
"""

import builtins
from typing import Any

from gemel.ndarray import ndarray

def adjust_lighting(data: Any, alpha: Any) -> ndarray:
    """Images of 3 channels, 0 to 255, lit as photographs are: alpha says how much in each of the
    three directions their colours vary most (Krizhevsky et al., 2012)."""

def crop(data: Any, x: int, y: int, width: int, height: int) -> ndarray:
    """Crop images at column x and row y. Raises `ShapeError` if this exceeds the image."""

def flip_left_right(data: Any) -> ndarray:
    """Flip images left to right."""

def flip_top_bottom(data: Any) -> ndarray:
    """Flip images top to bottom."""

def normalize(data: Any, mean: Any = 0.0, std: Any = 1.0) -> ndarray:
    """(data - mean) / std of images (channels, height, width), with one number for each channel."""

def random_brightness(data: Any, min_factor: float, max_factor: float) -> ndarray:
    """Multiply each image by a factor drawn from a range."""

def random_color_jitter(
    data: Any,
    brightness: float = 0.0,
    contrast: float = 0.0,
    saturation: float = 0.0,
    hue: float = 0.0,
) -> ndarray:
    """Images with brightness, contrast, saturation and hue changed by factors drawn from
    1 - each, but not below 0, to 1 + each."""

def random_contrast(data: Any, min_factor: float, max_factor: float) -> ndarray:
    """Blend images with their mean grey, by a factor drawn from a range."""

def random_crop(
    data: Any,
    xrange: tuple[float, float],
    yrange: tuple[float, float],
    width: int,
    height: int,
    interp: int = 1,
) -> ndarray:
    """Crop images to width x height at a random position: fractions of the free space, drawn from
    two ranges. An image that is too small is resized first."""

def random_flip_left_right(data: Any, p: float = 0.5) -> ndarray:
    """Flip each image left to right with probability p."""

def random_flip_top_bottom(data: Any, p: float = 0.5) -> ndarray:
    """Flip each image top to bottom with probability p."""

def random_hue(data: Any, min_factor: float, max_factor: float) -> ndarray:
    """Rotate the hues of images by a factor drawn from a range: 1 changes nothing, 2 is half a
    turn."""

def random_lighting(data: Any, alpha_std: float = 0.05) -> ndarray:
    """`adjust_lighting` with alpha drawn from a normal distribution."""

def random_resized_crop(
    data: Any,
    width: int,
    height: int,
    area: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (0.75, 1.3333333333333333),
    interp: int = 1,
) -> ndarray:
    """Crop a random fraction of the area of images with a random aspect ratio, as far as it fits,
    and resize to width x height, bilinearly (Szegedy et al., CVPR 2015)."""

def random_saturation(data: Any, min_factor: float, max_factor: float) -> ndarray:
    """Blend images with their grey versions, by a factor drawn from a range."""

def resize(data: Any, size: Any, keep_ratio: builtins.bool = False, interp: int = 1) -> ndarray:
    """Resize images to (width, height), or one number for both."""

def rotate(
    data: Any,
    rotation_degrees: Any,
    zoom_in: builtins.bool = False,
    zoom_out: builtins.bool = False,
) -> ndarray:
    """Floating images (C, H, W) turned about their middle, mixing linearly; beyond them is 0."""

def to_tensor(data: Any) -> ndarray:
    """Convert (height, width, channels), 0 to 255, to float32 (channels, height, width), 0 to 1."""

__all__ = [
    "adjust_lighting",
    "crop",
    "flip_left_right",
    "flip_top_bottom",
    "normalize",
    "random_brightness",
    "random_color_jitter",
    "random_contrast",
    "random_crop",
    "random_flip_left_right",
    "random_flip_top_bottom",
    "random_hue",
    "random_lighting",
    "random_resized_crop",
    "random_saturation",
    "resize",
    "rotate",
    "to_tensor",
]
