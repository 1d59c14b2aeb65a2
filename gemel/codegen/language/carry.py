"""What a loop carries beyond a sum or an extreme: any values, as part of a program.

A `Carry` holds the formulas of an `ir.combiner.Combiner`, for elements of one dtype, as
instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from gemel import dtype as dtypes
from gemel.codegen.language.lane import Lane, Recorded, Recorder, naming
from gemel.codegen.language.program import Instruction
from gemel.codegen.language.values import in_kind
from gemel.dtype import DType
from gemel.errors import FormulaError
from gemel.ir.combiner import Combiner


class Fragment(NamedTuple):
    """Instructions whose first `given` positions are arguments, and the positions of results."""

    code: tuple[Instruction, ...]
    given: int
    results: tuple[int, ...]

    def __repr__(self) -> str:
        steps = [f"%{i} = {step!r}; " for i, step in enumerate(self.code) if i >= self.given]
        return "".join(steps) + ", ".join(f"%{i}" for i in self.results)


class Carry(NamedTuple):
    """The values that a reduction carries along.

    `initial`: the dtype of each value, and what it is before any element. `update` takes the
    values, an element and its position (int64) and returns the values after it; `combine` takes the
    values of two states. `changes`, if it is not None, takes what `update` does and says whether
    the values change at all. `counts` and `rounds` are those of `Combiner`.
    """

    initial: tuple[tuple[DType, Any], ...]
    changes: Fragment | None
    update: Fragment
    combine: Fragment
    counts: bool
    rounds: bool

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The dtypes of its values."""
        return tuple(dtype for dtype, _ in self.initial)

    def __repr__(self) -> str:
        words = " counting" * self.counts + " in blocks" * self.rounds
        first = ", ".join(f"{dtype} {value!r}" for dtype, value in self.initial)
        parts = {"changes": self.changes, "update": self.update, "combine": self.combine}
        told = [f"\n    {name} {part!r}" for name, part in parts.items() if part is not None]
        return f"({first}){words}{''.join(told)}"


@lru_cache(maxsize=256)
def carry_of(combiner: Combiner, dtype: DType) -> Carry:
    """The formulas for elements that are computed in `dtype`. Raises `FormulaError`."""
    initial = tuple((kind, in_kind(number, kind)) for kind, number in combiner.initial(dtype))
    kinds = [kind for kind, _ in initial]
    count = len(kinds)

    def changed(xp: Lane, *given: Recorded) -> Any:
        return (combiner.changes(xp, given[:count], *given[count:]),)

    def updated(xp: Lane, *given: Recorded) -> Any:
        return combiner.update(xp, given[:count], *given[count:])

    def combined(xp: Lane, *given: Recorded) -> Any:
        return combiner.combine(xp, given[:count], given[count:])

    element = (*kinds, dtype, dtypes.int64)
    rare = combiner.changes is not None
    changes = _fragment(changed, element, [dtypes.bool_]) if rare else None
    update, combine = _fragment(updated, element, kinds), _fragment(combined, kinds * 2, kinds)
    return Carry(initial, changes, update, combine, combiner.counts, combiner.rounds)


def _fragment(
    function: Callable[..., Any], given: Sequence[DType], kinds: Sequence[DType]
) -> Fragment:
    """A formula of values of these dtypes, whose results are of the dtypes `kinds`."""
    recorder = Recorder()
    found = function(Lane(recorder), *[recorder.argument(dtype) for dtype in given])
    values = _values(recorder, found)
    if len(values) != len(kinds):
        raise FormulaError(f"a formula returns {len(values)} values, but there are {len(kinds)}")
    results = [value.cast(kind).position for value, kind in zip(values, kinds, strict=True)]
    return Fragment(tuple(recorder.code), len(given), tuple(results))


def _values(recorder: Recorder, found: Any) -> list[Recorded]:
    if not isinstance(found, (tuple, list)):
        raise FormulaError(
            f"a formula of carried values must return a tuple of them, not {found!r}"
        )
    return [Lane(recorder).value(value) for value in found]


def reduced(
    recorder: Recorder, combiner: Combiner, value: Recorded, name: str = "reduce"
) -> Recorded:
    """Records a reduction of `value` over the inner dimensions, and what its result is computed
    by. `name` is the operation's, for errors."""
    with naming(name):
        carry = carry_of(combiner, value.dtype)
        first = recorder.append("reduce", carry.dtypes[0], (value,), carry)
        others = enumerate(carry.dtypes[1:], start=1)
        more = (recorder.append("carried", dtype, (first,), number) for number, dtype in others)
        lane = Lane(recorder)
        return lane.value(combiner.result(lane, (first, *more)))


def of_one(
    recorder: Recorder, combiner: Combiner, value: Recorded, name: str = "reduce"
) -> Recorded:
    """Records the result of such a reduction of a single element."""
    lane = Lane(recorder)
    with naming(name):
        carry = carry_of(combiner, value.dtype)
        state = tuple(recorder.constant(number, dtype) for dtype, number in carry.initial)
        place = recorder.constant(0, dtypes.int64)
        found = combiner.update(lane, state, value, place)
        after = [lane.cast(v, dtype) for v, dtype in zip(found, carry.dtypes, strict=True)]
        if combiner.changes is not None:
            changed = combiner.changes(lane, state, value, place)
            after = [lane.where(changed, a, b) for a, b in zip(after, state, strict=True)]
        return lane.value(combiner.result(lane, tuple(after)))


__all__ = ["Carry", "Fragment", "carry_of", "of_one", "reduced"]
