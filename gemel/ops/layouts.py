"""Where images have their channels: before the axes of space, or (NHWC) after them.

Operations compute with the first; the axes of the second are exchanged around them.
"""

from __future__ import annotations

from typing import Any

from gemel.errors import unknown_name
from gemel.ops.shape import transpose

#: The layouts there are, by axes of space.
LAYOUTS = (("NCW", "NWC"), ("NCHW", "NHWC"), ("NCDHW", "NDHWC"))


def is_channels_last(name: str, layout: Any, axes: int) -> bool:
    """Whether a layout has the channels last. Raises `UnknownNameError` if there is no such."""
    first, last = LAYOUTS[axes - 1]
    if layout not in (None, first, last):
        raise unknown_name(f"layout of {name}", layout, (first, last))
    return bool(layout == last)


def channels_first(x: Any, last: bool) -> Any:
    """(N, C, *space) of an image, or of a weight, that may have the channels last."""
    ndim = len(x.shape)
    return transpose(x, axes=(0, ndim - 1, *range(1, ndim - 1))) if last else x


def channels_last(x: Any, last: bool) -> Any:
    """(N, *space, C) of (N, C, *space), if that is wanted."""
    return transpose(x, axes=(0, *range(2, len(x.shape)), 1)) if last else x
