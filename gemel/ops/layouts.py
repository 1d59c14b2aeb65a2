"""Layouts of images: channels before the spatial axes (NCHW), or after them (NHWC).

Operations compute in the first layout. For the second, axes are moved before and after them.
"""

from __future__ import annotations

from typing import Any

from gemel.errors import unknown_name
from gemel.ops.shape import operand, transpose
from gemel.spec import check_axes

#: The layouts, for one to three spatial axes.
LAYOUTS = (("NCW", "NWC"), ("NCHW", "NHWC"), ("NCDHW", "NDHWC"))


def array_of(name: str, kind: str, value: Any, axes: str, beside: Any = ()) -> Any:
    """An argument as an array with these axes (see `check_axes`); numbers in lists get the
    precision of the arrays `beside` them. Raises `ShapeError`."""
    found = operand(value, beside)
    check_axes(name, kind, found, axes)
    return found


def is_channels_last(name: str, layout: Any, axes: int) -> bool:
    """Whether a layout has the channels last. Raises `UnknownNameError` for an unknown layout."""
    first, last = LAYOUTS[axes - 1]
    if layout is not None and str(layout) not in (first, last):
        raise unknown_name(f"layout of {name}", layout, (first, last))
    return bool(layout == last)


def channels_first(x: Any, last: bool) -> Any:
    """An image or a weight as (N, C, *space), from channels-last layout if `last`."""
    ndim = len(x.shape)
    return transpose(x, axes=(0, ndim - 1, *range(1, ndim - 1))) if last else x


def channels_last(x: Any, last: bool) -> Any:
    """An image (N, C, *space) as (N, *space, C) if `last`."""
    return transpose(x, axes=(0, *range(2, len(x.shape)), 1)) if last else x
