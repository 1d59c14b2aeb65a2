"""Pooling over one to three spatial axes."""

from __future__ import annotations

from typing import Any, ClassVar

from gemel import npx
from gemel.errors import ShapeError
from gemel.gluon.block import Tensor
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.inputs import of_array
from gemel.ops.convolution import per_axis
from gemel.ops.layouts import LAYOUTS, is_channels_last


class _OverSpace(HybridBlock):
    """Base class of layers that make one number of several along the spatial axes."""

    _axes: ClassVar[int]
    _kind: ClassVar[str]

    def __init__(self, layout: str | None, **settings: Any) -> None:
        super().__init__(**settings)
        layout = layout or LAYOUTS[self._axes - 1][0]
        is_channels_last(type(self).__name__, layout, self._axes)
        #: The arguments of the function.
        self._kwargs: dict[str, Any] = {"pool_type": self._kind, "layout": layout}

    def _alias(self) -> str:
        return "pool"

    def _takes(self) -> str:
        return f"{self._axes + 2} axes: batch, channels and space"

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, *space) -> (batch, channels, *places)."""
        if len(x.shape) != self._axes + 2:
            raise ShapeError(f"{type(self).__name__}: the input has shape {list(x.shape)}")
        return self._pooled(x)

    def _pooled(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class _AnyPooling(_OverSpace):
    """Base class of pooling layers, with the arguments of `npx.pooling`."""

    def __init__(
        self, layout: str | None, global_pool: bool, ceil_mode: Any, how: Any, **settings: Any
    ) -> None:
        super().__init__(layout, **settings)
        self._kwargs |= {
            **how,
            "global_pool": global_pool,
            "pooling_convention": "full" if ceil_mode else "valid",
        }

    def _pooled(self, x: Tensor) -> Tensor:
        return npx.pooling(x, **self._kwargs)

    def __repr__(self) -> str:
        how = self._kwargs
        return (
            f"{type(self).__name__}(size={how['kernel']}, stride={how['stride']}, "
            f"padding={how['pad']}, ceil_mode={how['pooling_convention'] == 'full'}, "
            f"global_pool={how['global_pool']}, pool_type={self._kind}, layout={how['layout']})"
        )


class _Pooling(_AnyPooling):
    """Base class of pooling layers with windows."""

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
        name = type(self).__name__
        if isinstance(layout, bool):  # MXNet's classes have these two in different orders
            layout, ceil_mode = ceil_mode or None, layout
        strides = pool_size if strides is None else strides
        how: dict[str, Any] = {
            "kernel": per_axis(name, "pool_size", pool_size, self._axes, 1),
            "stride": per_axis(name, "strides", strides, self._axes, 1),
            "pad": per_axis(name, "padding", padding, self._axes, 0),
        }
        if self._kind == "avg":
            how["count_include_pad"] = count_include_pad
        super().__init__(layout, False, ceil_mode, how, **settings)


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
    """The maximum of each window of `pool_size` elements; `strides` defaults to `pool_size`.

    The gradient goes to the first of equal elements.
    """

    _axes = 1


class MaxPool2D(_Max):
    """The maximum of each window of an image; `strides` defaults to `pool_size`.

    The gradient goes to the first of equal elements.
    """

    _axes = 2


class MaxPool3D(_Max):
    """The maximum of each window of a volume; `strides` defaults to `pool_size`.

    The gradient goes to the first of equal elements.
    """

    _axes = 3


class AvgPool1D(_Pooling):
    """The average of each window of `pool_size` elements; padding counts if `count_include_pad`."""

    _axes, _kind = 1, "avg"


class AvgPool2D(_Pooling):
    """The average of each window of an image; padding counts if `count_include_pad`."""

    _axes, _kind = 2, "avg"


class AvgPool3D(_Pooling):
    """The average of each window of a volume; padding counts if `count_include_pad`."""

    _axes, _kind = 3, "avg"


class _Global(_AnyPooling):
    """One number for each channel of each example: (batch, channels, 1, ...)."""

    def __init__(self, layout: str | None = None, **settings: Any) -> None:
        ones, zeros = (1,) * self._axes, (0,) * self._axes
        how = {"kernel": ones, "stride": ones, "pad": zeros}
        super().__init__(layout, True, True, how, **settings)


class GlobalMaxPool1D(_Global):
    """The maximum of each channel."""

    _axes, _kind = 1, "max"


class GlobalMaxPool2D(_Global):
    """The maximum of each channel of an image."""

    _axes, _kind = 2, "max"


class GlobalMaxPool3D(_Global):
    """The maximum of each channel of a volume."""

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


class _Adaptive(_OverSpace):
    """Base class of layers that divide images of any size into a given number of parts, with the
    arguments of `npx.adaptive_pooling`."""

    def __init__(self, output_size: Any, layout: str | None = None, **settings: Any) -> None:
        from gemel.ops.adaptive import parts_per_axis  # few networks need it

        super().__init__(layout, **settings)
        self.output_size = parts_per_axis(type(self).__name__, output_size, self._axes)

    def _pooled(self, x: Tensor) -> Tensor:
        """(batch, channels, *space) -> (batch, channels, *output_size)."""
        return npx.adaptive_pooling(x, self.output_size, **self._kwargs)

    def __repr__(self) -> str:
        layout = self._kwargs["layout"]
        return f"{type(self).__name__}(output_size={self.output_size}, layout={layout})"


class AdaptiveMaxPool1D(_Adaptive):
    """The maximum of each of `output_size` parts of a sequence."""

    _axes, _kind = 1, "max"


class AdaptiveMaxPool2D(_Adaptive):
    """The maximum of each of `output_size` parts of an image."""

    _axes, _kind = 2, "max"


class AdaptiveMaxPool3D(_Adaptive):
    """The maximum of each of `output_size` parts of a volume."""

    _axes, _kind = 3, "max"


class AdaptiveAvgPool1D(_Adaptive):
    """The average of each of `output_size` parts of a sequence."""

    _axes, _kind = 1, "avg"


class AdaptiveAvgPool2D(_Adaptive):
    """The average of each of `output_size` parts of an image."""

    _axes, _kind = 2, "avg"


class AdaptiveAvgPool3D(_Adaptive):
    """The average of each of `output_size` parts of a volume."""

    _axes, _kind = 3, "avg"


__all__ = [
    "AdaptiveAvgPool1D",
    "AdaptiveAvgPool2D",
    "AdaptiveAvgPool3D",
    "AdaptiveMaxPool1D",
    "AdaptiveMaxPool2D",
    "AdaptiveMaxPool3D",
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
