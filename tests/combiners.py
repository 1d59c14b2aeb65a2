"""Reductions that carry several values along, for tests. The results do not depend on the order of
the elements: to the bit, if sums are exact."""

from __future__ import annotations

from math import inf
from typing import Any

from gemel.codegen.language.carry import reduced
from gemel.codegen.language.lane import Recorded, Recorder
from gemel.dtype import DType, bool_, int64
from gemel.ir.combiner import Combiner
from gemel.ops.extremes import Extreme


class Range(Combiner):
    """The difference of the largest and the smallest element."""

    rounds = False

    def initial(self, dtype: DType) -> Any:
        high = inf if dtype.kind == "f" else 2**dtype.digits - 1
        low = -high if dtype.kind == "f" else -(2**dtype.digits) if dtype.kind == "i" else 0
        return (dtype, high), (dtype, low)

    def update(self, xp: Any, state: Any, x: Any, position: Any) -> Any:
        return xp.minimum(state[0], x), xp.maximum(state[1], x)

    def combine(self, xp: Any, a: Any, b: Any) -> Any:
        return xp.minimum(a[0], b[0]), xp.maximum(a[1], b[1])

    def result(self, xp: Any, state: Any) -> Any:
        return state[1] - state[0]


class Moments(Combiner):
    """The number of elements x sum of squares - square of the sum; a number of its own dtype."""

    def initial(self, dtype: DType) -> Any:
        return (int64, 0), (dtype, 0), (dtype, 0)

    def update(self, xp: Any, state: Any, x: Any, position: Any) -> Any:
        count, total, squares = state
        return count + 1, total + x, squares + x * x

    def combine(self, xp: Any, a: Any, b: Any) -> Any:
        return tuple(x + y for x, y in zip(a, b, strict=True))

    def result(self, xp: Any, state: Any) -> Any:
        count, total, squares = state
        return count.cast(total.dtype) * squares - total * total


class LastPlace(Combiner):
    """The last position of an element above 0, and -1 if there is none; the values swap places at
    every step, and the dtype of one changes."""

    counts, rounds = True, False

    def initial(self, dtype: DType) -> Any:
        return (int64, -1), (int64, -1)

    def changes(self, xp: Any, state: Any, x: Any, position: Any) -> Any:
        return x > 0

    def update(self, xp: Any, state: Any, x: Any, position: Any) -> Any:
        return xp.maximum(state[1], position), state[0]

    def combine(self, xp: Any, a: Any, b: Any) -> Any:
        most = xp.maximum(xp.maximum(a[0], a[1]), xp.maximum(b[0], b[1]))
        return most, most

    def result(self, xp: Any, state: Any) -> Any:
        return xp.maximum(state[0], state[1])


COMBINERS: dict[str, Combiner] = {
    "argmax": Extreme(largest=True),
    "argmin": Extreme(largest=False),
    "range": Range(),
    "moments": Moments(),
    "last": LastPlace(),
}


def record(recorder: Recorder, name: str, value: Recorded) -> Recorded:
    """Records a reduction: one of the language's own, or one of these."""
    if name not in COMBINERS:
        return recorder.reduce(name, value)
    combiner = COMBINERS[name]
    kind = combiner.computed(value.dtype)
    if value.dtype is bool_ and kind is bool_:
        raise ValueError(f"{name} is not for bools")
    return reduced(recorder, combiner, value.cast(kind), name)
