"""Convolutions of one picture with few places, whose weights take long to read."""

from __future__ import annotations

from typing import Any

from gemel.ops.elementwise import copy
from gemel.ops.shape import reshape, swapaxes, transpose
from gemel.spec import product

#: There are fewer places than the first, and at least so many filters of so many weights each.
PLACES, FILTERS, WEIGHTS = 64, 64, 512


def are_few_places(how: Any, weight: Any, x: Any) -> bool:
    """Whether `of_few_places` is the way of a `Movement`: decided by sizes and dtypes only.

    Side by side, 49 places fill vectors of 16 badly, and the rows of weights that are read at a
    time lie far apart.
    """
    plain = x.dtype is weight.dtype is x.dtype.compute and x.dtype.is_floating
    if not plain or how.groups > 1 or x.shape[0] != 1 or weight.shape[0] < FILTERS:
        return False
    long = product(weight.shape[1:]) >= WEIGHTS
    return bool(long and product(how.counts(x.shape[2:])) < PLACES)


def of_few_places(how: Any, weight: Any, x: Any) -> Any:
    """The convolution as a product with a row for each place and a column for each filter.

    Windows are copied, which are few; then these are dot products with the weights where they lie.
    """
    counts = how.counts(x.shape[2:])
    matrix, axes = how.matrix(weight), len(counts)
    order = (0, *range(2 + axes, 2 + 2 * axes), 1, *range(2, 2 + axes))
    rows = reshape(
        copy(transpose(how.seen(x), axes=order)), shape=(1, product(counts), matrix.shape[-1])
    )
    found = how.product(rows, swapaxes(matrix, -1, -2))
    found = reshape(found, shape=(1, *counts, weight.shape[0]))
    return transpose(found, axes=(0, axes + 1, *range(1, axes + 1)))


__all__ = ["are_few_places", "of_few_places"]
