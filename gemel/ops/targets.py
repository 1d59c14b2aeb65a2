"""The target shape of `reshape`, with its -1 filled in."""

from __future__ import annotations

from gemel.errors import ShapeError
from gemel.spec import Spec, product, whole_numbers


def target_shape(x: Spec, shape: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` with its -1 filled in. Raises `ShapeError` when the sizes differ."""
    whole_numbers("reshape", "shape", shape)
    plain = [n if type(n) is int else 1 for n in shape]

    def refused(why: str) -> ShapeError:
        hint = "; nd.reshape (F.reshape) knows MXNet 1's codes 0 and -2 to -4"
        hint = hint if any(n in plain for n in (0, -2, -3, -4)) else ""
        return ShapeError(f"reshape: {x} to {list(shape)}: {why}{hint}")

    if plain.count(-1) > 1 or min(plain, default=1) < -1:
        raise refused("at most one extent may be -1, and none may be less")
    if -1 in plain:
        free = plain.index(-1)
        known = product((*shape[:free], *shape[free + 1 :]))
        if known == 0 or x.size % known != 0:
            raise refused(f"{x.size} is not a multiple of {known}")
        return (*shape[:free], x.size // known, *shape[free + 1 :])
    if not product(shape) == x.size:
        raise refused(f"{x.size} elements cannot fill {product(shape)}")
    return tuple(shape)
