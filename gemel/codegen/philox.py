"""Random bits inside kernels: the same Philox2x32-10 as `gemel.ir.philox`, step by step."""

from __future__ import annotations

from gemel import dtype as dtypes
from gemel.ir.philox import FIRST, GOLDEN, MULTIPLIER, ROUNDS, SECOND, WEYL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gemel.codegen.lane import Lane, Recorded


def record(
    xp: Lane, index: Recorded, seed: Recorded, number: Recorded
) -> tuple[Recorded, Recorded]:
    """Two uint32 for the element `index` of call `number` (all int64)."""
    u64, u32 = dtypes.uint64, dtypes.uint32

    def mix(z: Recorded) -> Recorded:
        z = z + GOLDEN
        z = (z ^ (z >> 30)) * FIRST
        z = (z ^ (z >> 27)) * SECOND
        return z ^ (z >> 31)

    word = mix(mix(seed.cast(u64)) ^ number.cast(u64))
    key = word.cast(u32)
    low = index.cast(u32)
    high = (index.cast(u64) >> 32).cast(u32) ^ (word >> 32).cast(u32)
    multiplier = xp.constant(MULTIPLIER, u32)
    for _ in range(ROUNDS):
        low, high = xp.multiply_high(multiplier, low) ^ key ^ high, low * multiplier
        key = key + WEYL
    return low, high
