"""Images read at points between their pixels."""

from __future__ import annotations

from typing import Any

from gemel.ops.elementwise import cast, floor, where
from gemel.ops.indexing import gather
from gemel.ops.shape import expand_dims


def interpolated(
    pixels: Any, images: Any, rows: Any, columns: Any, high: Any, wide: Any, inside: Any = None
) -> Any:
    """The values at points, each mixed linearly from its four neighbours; those outside are 0.

    `pixels` (images * high * wide, channels) are the pixels of all images. `images`, `rows` and
    `columns` are each point's image and place, of shapes that broadcast; the result has their
    shape, followed by the channels. Points that are not `inside`, if it is given, are 0 too.
    Places should have a dtype that holds fractions of the extents, so for pixels of two bytes
    float32; the result has the dtype of the pixels.
    """
    top, left = floor(rows), floor(columns)
    found = None
    for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
        weight = (1 - abs(rows - row)) * (1 - abs(columns - column))
        counts = (row >= 0) & (row < high) & (column >= 0) & (column < wide)
        counts = counts if inside is None else inside & counts
        # No NaN becomes a number of a pixel, and that number may be more than places can hold.
        at, across = (cast(where(counts, each, 0.0), dtype="int64") for each in (row, column))
        number = images * (high * wide) + at * wide + across
        part = gather(pixels, number, axis=0) * expand_dims(where(counts, weight, 0.0), -1)
        found = part if found is None else found + part
    return cast(found, dtype=pixels.dtype)
