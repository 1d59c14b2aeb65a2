"""Pooling over one to three axes of space."""

from __future__ import annotations

from typing import Any, ClassVar

from gemel import npx
from gemel.gluon.block import Tensor
from gemel.gluon.hybrid import HybridBlock
from gemel.ops.convolution import per_axis
from gemel.ops.layouts import LAYOUTS, is_channels_last


class _AnyPooling(HybridBlock):
    """What pooling layers share."""

    _axes: ClassVar[int]
    _kind: ClassVar[str]

    def _alias(self) -> str:
        return "pool"


class _Pooling(_AnyPooling):
    """What those with windows share."""

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: Any = 0,
        layout: Any = None,
        ceil_mode: Any = False,
        count_include_pad: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        name = type(self).__name__
        if isinstance(layout, bool):  # MXNet's classes differ in the order of these two
            layout, ceil_mode = ceil_mode or None, layout
        is_channels_last(name, layout, self._axes)
        kernel = per_axis(name, "pool_size", pool_size, self._axes, 1)
        steps = kernel if strides is None else per_axis(name, "strides", strides, self._axes, 1)
        self._how: dict[str, Any] = {
            "layout": layout or LAYOUTS[self._axes - 1][0],
            "kernel": kernel,
            "stride": steps,
            "pad": per_axis(name, "padding", padding, self._axes, 0),
            "pooling_convention": "full" if ceil_mode else "valid",
            "count_include_pad": count_include_pad,
        }

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, *space) -> (batch, channels, *places)."""
        return npx.pooling(x, pool_type=self._kind, **self._how)

    def __repr__(self) -> str:
        how = self._how
        ceil_mode = how["pooling_convention"] == "full"
        return (
            f"{type(self).__name__}(size={how['kernel']}, stride={how['stride']}, "
            f"padding={how['pad']}, ceil_mode={ceil_mode}, global_pool=False, "
            f"pool_type={self._kind}, layout={how['layout']})"
        )


class _Max(_Pooling):
    """The largest element of each window."""

    _kind = "max"

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: Any = 0,
        layout: Any = None,
        ceil_mode: Any = False,
        **settings: Any,
    ) -> None:
        super().__init__(pool_size, strides, padding, layout, ceil_mode, **settings)


class MaxPool1D(_Max):
    """The largest of each `pool_size` elements; `strides` apart, else side by side."""

    _axes = 1


class MaxPool2D(_Max):
    """The largest element of each window of an image; `strides` apart, else side by side."""

    _axes = 2


class MaxPool3D(_Max):
    """The largest element of each window of a volume; `strides` apart, else side by side."""

    _axes = 3


class AvgPool1D(_Pooling):
    """The average of each `pool_size` elements; padding counts if `count_include_pad`."""

    _axes, _kind = 1, "avg"


class AvgPool2D(_Pooling):
    """The average of each window of an image; padding counts if `count_include_pad`."""

    _axes, _kind = 2, "avg"


class AvgPool3D(_Pooling):
    """The average of each window of a volume; padding counts if `count_include_pad`."""

    _axes, _kind = 3, "avg"


class _Global(_AnyPooling):
    """One number for each channel of each example."""

    def __init__(self, layout: str | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        is_channels_last(type(self).__name__, layout, self._axes)
        self._layout = layout or LAYOUTS[self._axes - 1][0]

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, *space) -> (batch, channels, 1, ...)."""
        return npx.pooling(x, pool_type=self._kind, global_pool=True, layout=self._layout)

    def __repr__(self) -> str:
        ones = (1,) * self._axes
        return (
            f"{type(self).__name__}(size={ones}, stride={ones}, padding={(0,) * self._axes}, "
            f"ceil_mode=True, global_pool=True, pool_type={self._kind}, "
            f"layout={self._layout})"
        )


class GlobalMaxPool1D(_Global):
    """The largest element of each channel."""

    _axes, _kind = 1, "max"


class GlobalMaxPool2D(_Global):
    """The largest element of each channel of an image."""

    _axes, _kind = 2, "max"


class GlobalMaxPool3D(_Global):
    """The largest element of each channel of a volume."""

    _axes, _kind = 3, "max"


class GlobalAvgPool1D(_Global):
    """The average of each channel."""

    _axes, _kind = 1, "avg"


class GlobalAvgPool2D(_Global):
    """The average of each channel of an image."""

    _axes, _kind = 2, "avg"


class GlobalAvgPool3D(_Global):
    """The average of each channel of a volume."""

    _axes, _kind = 3, "avg"


__all__ = [
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
]
