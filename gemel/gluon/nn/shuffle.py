"""Rearranging images: channels become space, and borders mirror the inside."""

from __future__ import annotations

from typing import Any, ClassVar

from gemel import np
from gemel.errors import ShapeError
from gemel.gluon.block import Tensor
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.inputs import of_array
from gemel.ops.convolution import per_axis
from gemel.spec import plain


class _PixelShuffle(HybridBlock):
    """(N, product of factors * C, *space) -> (N, C, *space * factors).

    Shi et al., Real-time single image and video super-resolution using an efficient sub-pixel
    convolutional neural network, CVPR 2016.
    """

    _axes: ClassVar[int]

    def __init__(self, factor: Any, **settings: Any) -> None:
        super().__init__(**settings)
        self._factors = per_axis(type(self).__name__, "factor", factor, self._axes, 1)

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """Each position becomes as many positions as the product of the factors."""
        factors, space = self._factors, x.shape[2:]
        count = 1
        for factor in factors:
            count *= factor
        if len(x.shape) != self._axes + 2 or x.shape[1] % count != 0:
            raise ShapeError(
                f"{type(self).__name__}: the input {list(x.shape)} must be (batch, channels, "
                f"*space) with {self._axes} axes of space, and {count} must divide its channels"
            )
        parts = x.reshape((x.shape[0], x.shape[1] // count, *factors, *space))
        axes = range(2, 2 + self._axes)
        pairs = [place for axis in axes for place in (axis + self._axes, axis)]
        wide = (n * f for n, f in zip(space, factors, strict=True))
        return parts.transpose((0, 1, *pairs)).reshape((x.shape[0], x.shape[1] // count, *wide))

    def __repr__(self) -> str:
        shown = self._factors[0] if self._axes == 1 else self._factors
        return f"{type(self).__name__}({shown})"


class PixelShuffle1D(_PixelShuffle):
    """(N, factor * C, W) -> (N, C, W * factor)."""

    _axes = 1


class PixelShuffle2D(_PixelShuffle):
    """(N, f1 * f2 * C, H, W) -> (N, C, H * f1, W * f2)."""

    _axes = 2


class PixelShuffle3D(_PixelShuffle):
    """(N, f1 * f2 * f3 * C, D, H, W) -> (N, C, D * f1, H * f2, W * f3)."""

    _axes = 3


class ReflectionPad2D(HybridBlock):
    """(N, C, H, W) with a border of `padding` that mirrors the image, its edges not repeated.

    `padding` is one number for all sides, or 8: before and after each of the four axes.
    """

    def __init__(self, padding: Any = 0, **settings: Any) -> None:
        super().__init__(**settings)
        padding = plain(padding)
        found = (0, 0, 0, 0, *(padding,) * 4) if isinstance(padding, int) else tuple(padding)
        if len(found) != 8:
            raise ShapeError(f"ReflectionPad2D: padding {padding!r} must be one number, or 8")
        self._padding = found

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C, before + H + after, before + W + after)."""
        pairs = zip(self._padding[::2], self._padding[1::2], strict=True)
        return np.pad(x, tuple(pairs), mode="reflect")


__all__ = ["PixelShuffle1D", "PixelShuffle2D", "PixelShuffle3D", "ReflectionPad2D"]
