"""Random bits by counting: Philox2x32-10 (Salmon, Moraes, Dror, Shaw 2011).

The counter of an element is (low 32 bits of its index, high 32 bits of its index xor the second
word below); the key is the first word. Both words come from mixing the seed and the call number
with SplitMix64 (Steele, Lea, Flood 2014)::

    z = mix(seed + 0x9E3779B97F4A7C15)
    z = mix((z xor number) + 0x9E3779B97F4A7C15)       low half: key, high half: second word

So an element's bits depend only on the seed, the call number and the element's index.
"""

from __future__ import annotations

from typing import Any

MULTIPLIER, WEYL, ROUNDS = 0xD256D193, 0x9E3779B9, 10
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def words(seed: int, number: int) -> tuple[int, int]:
    """The key and the second word of a call."""
    mask = (1 << 64) - 1

    def mix(z: int) -> int:
        z = (z + GOLDEN) & mask
        z = ((z ^ (z >> 30)) * FIRST) & mask
        z = ((z ^ (z >> 27)) * SECOND) & mask
        return z ^ (z >> 31)

    word = mix(mix(seed & mask) ^ (number & mask))
    return word & 0xFFFFFFFF, word >> 32


def random_bits(shape: tuple[int, ...], seed: int, number: int) -> tuple[Any, Any]:
    """Two uint32 arrays of `shape`, by NumPy: the reference for `philox` of `codegen.lane`."""
    import numpy

    size = 1
    for extent in shape:
        size *= extent
    index = numpy.arange(size, dtype=numpy.uint64).reshape(shape)
    key, second = words(seed, number)
    low = index & numpy.uint64(0xFFFFFFFF)
    high = (index >> numpy.uint64(32)) ^ numpy.uint64(second)
    for _ in range(ROUNDS):
        product = low * numpy.uint64(MULTIPLIER)
        low = (product >> numpy.uint64(32)) ^ numpy.uint64(key) ^ high
        high = product & numpy.uint64(0xFFFFFFFF)
        key = (key + WEYL) & 0xFFFFFFFF
    return low.astype(numpy.uint32), high.astype(numpy.uint32)
