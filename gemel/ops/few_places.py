"""Convolutions of one image with few output positions: reading the weights takes most time."""

from __future__ import annotations

from typing import Any

from gemel.ops.elementwise import copy
from gemel.ops.layouts import channels_first
from gemel.ops.shape import reshape, swapaxes, transpose
from gemel.spec import product

#: Used for fewer than PLACES positions, and at least FILTERS filters of WEIGHTS weights each.
PLACES, FILTERS, WEIGHTS = 64, 64, 512


def are_few_places(how: Any, weight: Any, x: Any) -> bool:
    """Whether a `Movement` should use `of_few_places`. Only sizes and dtypes decide.

    Otherwise vectors run along positions: 49 of them fill vectors of 16 badly, and the rows of
    weights that are read together lie far apart.
    """
    plain = x.dtype is weight.dtype is x.dtype.compute and x.dtype.is_floating
    if not plain or how.groups > 1 or x.shape[0] != 1 or weight.shape[0] < FILTERS:
        return False
    long = product(weight.shape[1:]) >= WEIGHTS
    return bool(long and product(how.counts(x.shape[2:])) < PLACES)


def of_few_places(how: Any, weight: Any, x: Any) -> Any:
    """The convolution as a product with a row for each position and a column for each filter.

    The few windows are copied. The product then consists of dot products with the weights, which
    are read where they are.
    """
    counts = how.counts(x.shape[2:])
    matrix, axes = how.matrix(weight), len(counts)
    order = (0, *range(2 + axes, 2 + 2 * axes), 1, *range(2, 2 + axes))
    rows = reshape(
        copy(transpose(how.seen(x), axes=order)), shape=(1, product(counts), matrix.shape[-1])
    )
    found = how.product(rows, swapaxes(matrix, -1, -2))
    found = reshape(found, shape=(1, *counts, weight.shape[0]))
    return channels_first(found, last=True)


__all__ = ["are_few_places", "of_few_places"]
