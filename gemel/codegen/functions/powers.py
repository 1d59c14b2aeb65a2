"""Powers that are cheap for certain exponents: products and roots.

`mathlib.power` works for every exponent and takes about fifty times as long.
"""

from __future__ import annotations

from collections.abc import Callable

from gemel.codegen.language.lane import Lane, Recorded


def has_product(xp: Lane, y: Recorded) -> Recorded:
    """Whether `product` handles this exponent."""
    return (xp.trunc(y) == y) & (y >= 0) & (y <= 4)


def product(xp: Lane, x: Recorded, y: Recorded) -> Recorded:
    """x**y by multiplications: within 2 units in the last place."""
    square = x * x
    higher = xp.where(y == 3, square * x, square * square)
    return xp.where(y == 2, square, xp.where(y > 2, higher, xp.where(y == 1, x, 1)))


def has_root(xp: Lane, y: Recorded) -> Recorded:
    """Whether `root` handles this exponent."""
    return (abs(y) == 0.5) | (y == -1)


def root(xp: Lane, x: Recorded, y: Recorded) -> Recorded:
    """x**y by a square root, a division, or both; as in C, powers of -0 and -inf are positive."""
    root = xp.where(x == -xp.inf, xp.inf, xp.sqrt(x + 0.0))
    base = xp.where(y == -1, x, root)
    return xp.where(y < 0, 1 / base, base)


#: Pairs of functions: one tests the exponent, the other computes the power.
SHORT = (("has_product", "product"), ("has_root", "root"))
FUNCTIONS: dict[str, Callable[..., Recorded]] = {
    name: globals()[name] for pair in SHORT for name in pair
}
