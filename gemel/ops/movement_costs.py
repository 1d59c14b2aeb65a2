"""Which of several ways a `Movement` takes: estimates from sizes and dtypes, in multiply-adds.

So a convolution is computed in the same way imperatively, compiled and exported.
"""

from __future__ import annotations

from typing import Any

from gemel.ops.winograd_costs import PLANES
from gemel.spec import product

#: Positions of one image that suffice for a product of its own.
SMALL = 256
#: A product with fewer rows than this takes as long.
ROWS = 8
#: The costs, in multiply-adds, of adding up an element of a window, of adding up short rows of
#: these (divided by the square of a row's length), and of moving a weight first.
MOVED, MOVED_ROW, MOVED_WEIGHT = 24, 7000, 60


def gives_few(how: Any, y: Any, weight: Any, space: tuple[int, ...]) -> bool:
    """Whether `grown`, with strides of one, should add windows up. A product with windows has a
    column for each element of the image (mostly zeros if it is small), and few rows if there
    are few channels. Only sizes and dtypes decide.

    Costs are estimated as in `in_phases`; the gain has to be two fifths.
    """
    plain = y.dtype is weight.dtype is y.dtype.compute and how.groups == 1
    (given, taken), each = weight.shape[:2], product(how.moves.kernel)
    if not plain or each == 1:
        return False
    with_windows = product(space) * given * max(taken, ROWS)
    return bool(with_windows * 5 > product(y.shape[2:]) * taken * (given + MOVED) * 7)


def in_phases(how: Any, y: Any, weight: Any, space: tuple[int, ...]) -> bool:
    """Whether `grown`, with strides above one, uses `phases`. Only sizes and dtypes decide.

    The alternative computes windows by one product and adds them up. It reads the weights in
    place, but writes and reads the windows once more, a row of positions at a time. Costs are in
    multiply-adds for each element of the kernel.
    """
    kernel, stride = how.moves.kernel, how.moves.stride
    if how.moves.dilate != how.moves.ones or min(how.rest) < 0:
        return False
    plain = y.dtype is weight.dtype is y.dtype.compute and how.groups == 1
    if not plain or any(k < s for k, s in zip(kernel, stride, strict=True)):
        return True
    (given, taken), row = weight.shape[:2], y.shape[-1]
    if kernel == stride or row == 1:
        return False
    counts = (-(-n // s) for n, s in zip(space, stride, strict=True))
    by_phases = product((y.shape[0], *counts)) * given * max(taken, ROWS) * 5 // 4
    by_phases = by_phases + MOVED_WEIGHT * taken * given
    # Per element of a window: 1.1 for each product, what adding costs, and a part of its row. A
    # quotient, since plans compute these numbers in 63 bits, and rows may have a million places.
    added = given * 11 // 10 + MOVED + MOVED_ROW // (row * row)
    return bool(by_phases < product((y.shape[0], *y.shape[2:])) * taken * added)


def together(how: Any, y: Any, weight: Any) -> int | None:
    """The number of images whose windows are added up at a time; these fit in the caches.

    It divides the number of images; None means all at once.
    """
    each = product((weight.shape[1] * how.groups, *how.moves.kernel, *y.shape[2:]))
    each = each * y.dtype.accumulate.itemsize
    if y.shape[0] == 1 or each * y.shape[0] <= PLANES:
        return None
    images, most = int(y.shape[0]), PLANES // int(each)
    return max(n for n in range(1, max(most, 1) + 1) if images % n == 0)


def few(places: Any, images: Any, axes: int) -> bool:
    """Whether one image has so few positions that they may fill a product's vectors badly."""
    return bool(axes < 3 and images != 1 and places < SMALL)
