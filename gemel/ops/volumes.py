"""Convolutions over three spatial axes, as sums of convolutions of planes.

A window has three axes and the channels: four, more than a product can read in place, so that all
windows would have to be copied. For one element of the kernel's first axis, a window lies in a
plane and has three.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

from gemel.dtype import promote
from gemel.ops.elementwise import add, cast
from gemel.ops.shape import reshape, stack, swapaxes
from gemel.ops.windows import Moves, bordered, windows

#: At most this many convolutions of planes, because each reads the results so far again.
PLACES = 7


def are_planes(how: Any) -> bool:
    """Whether a `Movement` is computed over planes. Only sizes decide."""
    return len(how.pad) == 3 and how.moves.kernel[0] <= PLACES


def of_planes(how: Any, weight: Any, x: Any, turned: bool) -> Any:
    """`Movement.times` of volumes (N, C, D, H, W): the sum, over the kernel's first axis, of the
    convolutions of the planes under each of its elements."""
    flat = _flat(how, wide=True)
    factors = [weight[:, :, place] for place in range(how.moves.kernel[0])]
    factors = factors[::-1] if turned else factors
    parts = [
        flat.times(factor, plane, turned)
        for factor, plane in zip(factors, _planes(how, x), strict=True)
    ]
    found = reduce(add, parts)
    dtype = promote(x.dtype, weight.dtype)
    found = cast(found, dtype=dtype.accumulate if how.wide else dtype)
    counts = how.counts(x.shape[2:])
    found = reshape(found, shape=(x.shape[0], counts[0], *found.shape[1:]))
    return swapaxes(found, 1, 2)


def weights_of_planes(how: Any, x: Any, y: Any, shape: tuple[int, ...]) -> Any:
    """`Movement.weights` of volumes: the gradients of the weights for each element of the kernel's
    first axis, stacked."""
    flat, planes = _flat(how, wide=how.wide), _as_images(y)
    own = (*shape[:2], *shape[3:])
    return stack([flat.weights(part, planes, own) for part in _planes(how, x)], axis=2)


def _flat(how: Any, wide: bool) -> Any:
    """How the kernel moves over a plane that already has its border."""
    moves = Moves(*(each[1:] for each in how.moves))
    return how._replace(moves=moves, pad=(0, 0), wide=wide)


def _planes(how: Any, x: Any) -> Iterator[Any]:
    """The planes under each element of the kernel's first axis, as images (N * places, C, H, W)."""
    whole = bordered(x, how.pad, how.pad, most=how.pad)
    along = {name: (sizes[0], 1, 1) for name, sizes in how.moves._asdict().items()}
    seen = windows(whole, **along)
    for place in range(how.moves.kernel[0]):
        yield _as_images(seen[:, :, place, 0, 0])


def _as_images(x: Any) -> Any:
    """(N, C, D, H, W) -> (N * D, C, H, W)."""
    planes = swapaxes(x, 1, 2)
    return reshape(planes, shape=(x.shape[0] * x.shape[2], x.shape[1], *x.shape[3:]))


__all__ = ["are_planes", "of_planes", "weights_of_planes"]
