"""Random bits by counting: Philox2x32-10 (Salmon, Moraes, Dror, Shaw 2011).

The counter of an element is (low 32 bits of its index, high 32 bits of its index xor the second
word below); the key is the first word. Both words come from SplitMix64's mixing (Steele, Lea,
Flood 2014) of the seed and the call number::

    z = mix(seed + 0x9E3779B97F4A7C15)
    z = mix((z xor number) + 0x9E3779B97F4A7C15)       low half: key, high half: second word

So an element's bits depend on nothing but the seed, the call number and its index.
"""

from __future__ import annotations

from gemel import dtype as dtypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gemel.codegen.lane import Lane, Value

_MULTIPLIER, _WEYL, _ROUNDS = 0xD256D193, 0x9E3779B9, 10
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def record(xp: Lane, index: Value, seed: Value, number: Value) -> tuple[Value, Value]:
    """Two uint32 for the element `index` of call `number` (all int64)."""
    u64, u32 = dtypes.uint64, dtypes.uint32

    def mix(z: Value) -> Value:
        z = z + _GOLDEN
        z = (z ^ (z >> 30)) * _FIRST
        z = (z ^ (z >> 27)) * _SECOND
        return z ^ (z >> 31)

    word = mix(mix(seed.cast(u64)) ^ number.cast(u64))
    key = word.cast(u32)
    low = index.cast(u32)
    high = (index.cast(u64) >> 32).cast(u32) ^ (word >> 32).cast(u32)
    multiplier = xp.constant(_MULTIPLIER, u32)
    for _ in range(_ROUNDS):
        low, high = xp.multiply_high(multiplier, low) ^ key ^ high, low * multiplier
        key = key + _WEYL
    return low, high


def words(seed: int, number: int) -> tuple[int, int]:
    """The key and the second word of a call."""
    mask = (1 << 64) - 1

    def mix(z: int) -> int:
        z = (z + _GOLDEN) & mask
        z = ((z ^ (z >> 30)) * _FIRST) & mask
        z = ((z ^ (z >> 27)) * _SECOND) & mask
        return z ^ (z >> 31)

    word = mix(mix(seed & mask) ^ (number & mask))
    return word & 0xFFFFFFFF, word >> 32


def random_bits(shape: tuple[int, ...], seed: int, number: int) -> tuple[Any, Any]:
    """The same bits with NumPy: two uint32 arrays of `shape`. The reference for `record`."""
    import numpy

    size = 1
    for extent in shape:
        size *= extent
    index = numpy.arange(size, dtype=numpy.uint64).reshape(shape)
    key, second = words(seed, number)
    low = index & numpy.uint64(0xFFFFFFFF)
    high = (index >> numpy.uint64(32)) ^ numpy.uint64(second)
    for _ in range(_ROUNDS):
        product = low * numpy.uint64(_MULTIPLIER)
        low = (product >> numpy.uint64(32)) ^ numpy.uint64(key) ^ high
        high = product & numpy.uint64(0xFFFFFFFF)
        key = (key + _WEYL) & 0xFFFFFFFF
    return low.astype(numpy.uint32), high.astype(numpy.uint32)
