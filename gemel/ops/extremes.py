"""Reductions that carry several values along: their formulas (`ir.combiner`)."""

from __future__ import annotations

from math import inf
from typing import Any

from gemel.dtype import DType, bool_, int64, limits, uint8
from gemel.ir.combiner import Combiner

_NOWHERE = (1 << 63) - 1


class Extreme(Combiner):
    """The largest (or smallest) element and its position: the first of equals; NaN is beyond all.

    Few elements change these values: on average, log(n) of n random ones.
    """

    counts, rounds = True, False

    def __init__(self, largest: bool) -> None:
        self.largest = largest

    def computed(self, dtype: DType) -> DType:
        """Bools as bytes, for which every processor has comparisons."""
        return uint8 if dtype is bool_ else dtype.compute

    def result_dtype(self, dtype: DType) -> DType:
        """A position's."""
        return int64

    def initial(self, dtype: DType) -> Any:
        """The least element (or greatest), nowhere."""
        least, most = (-inf, inf) if dtype.kind == "f" else limits(dtype)
        return (dtype, least if self.largest else most), (int64, _NOWHERE)

    def changes(self, xp: Any, state: Any, x: Any, position: Any) -> Any:
        """Whether x is beyond it; also if one of them is NaN."""
        return ~(x <= state[0]) if self.largest else ~(x >= state[0])

    def update(self, xp: Any, state: Any, x: Any, position: Any) -> Any:
        """x and its position; but a NaN stays."""
        known, place = state
        if x.dtype.kind != "f":
            return x, position
        stays = xp.isnan(known)
        return xp.where(stays, known, x), xp.where(stays, place, position)

    def combine(self, xp: Any, a: Any, b: Any) -> Any:
        """The more extreme of both; of equals, the first."""
        (first, before), (second, after) = a, b
        better = second > first if self.largest else second < first
        same = first == second
        if first.dtype.kind == "f":
            none = xp.isnan(first), xp.isnan(second)
            better = better | none[1] & ~none[0]
            same = same | none[0] & none[1]
        taken = better | same & (after < before)
        return xp.where(taken, second, first), xp.where(taken, after, before)

    def result(self, xp: Any, state: Any) -> Any:
        """The position; 0 if no element went beyond the initial value, since all are equal then."""
        _, place = state
        return xp.where(place == _NOWHERE, 0, place)


__all__ = ["Extreme"]
