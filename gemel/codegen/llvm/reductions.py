"""Accumulators: the state of each kind of reduction, its step, and how states are joined.

A state is a list of LLVM values: one value, or as many as a `Carry` has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate, pairwise
from math import inf
from typing import Any

from gemel.codegen.language.carry import Carry, Fragment
from gemel.codegen.llvm.assembly import I64, Builder, Constant, Value
from gemel.codegen.llvm.expression import Printer, extreme
from gemel.codegen.llvm.memory import lane_numbers
from gemel.codegen.llvm.registers import constant, shuffle_mask, splat
from gemel.codegen.target import Target
from gemel.dtype import DType, limits
from gemel.errors import CompileError

State = list[Value]
Join = Callable[[Builder, State, State], State]

#: The number of steps in a block of sums.
BLOCK = 64


class Accumulator:
    """One reduction of values of `dtype`: sum, prod, max, min, any or all; or most, which is the
    floating-point max of all values that are not NaN (`largest`)."""

    #: Whether `update` uses positions.
    counts = False

    def __init__(self, kind: str, dtype: DType) -> None:
        self.kind = kind
        self.dtype = dtype
        self.dtypes: tuple[DType, ...] = (dtype,)
        self.blocked = kind == "sum" and dtype.kind == "f"
        self.neutral = neutral(kind, dtype)

    def identity(self, lanes: int) -> State:
        """The state before any value."""
        return [constant(self.dtype, self.neutral, lanes)]

    def update(
        self,
        builder: Builder,
        state: State,
        value: Value,
        position: Value | None = None,
        mask: Value | None = None,
        step: int = 0,
    ) -> State:
        """The state after one more value; as it was in lanes that the mask excludes.

        `position` is the flat position of the first lane, `step` the distance to the next lane's.
        """
        if mask is not None:
            (none,) = self.identity(mask.type.lanes)
            value = builder.select(mask, value, none)
        return self.join(builder, state, [value])

    def join(self, builder: Builder, a: State, b: State) -> State:
        """Two states joined. In max and min the newer value comes first, which is one
        instruction."""
        floating = self.dtype.kind == "f"
        boolean = self.dtype.kind == "b"
        if self.kind == "sum":
            return [(builder.fadd if floating else builder.add)(a[0], b[0])]
        if self.kind == "prod":
            return [(builder.fmul if floating else builder.mul)(a[0], b[0])]
        if self.kind == "any" or (self.kind == "max" and boolean):
            return [builder.or_(a[0], b[0])]
        if self.kind == "all" or (self.kind == "min" and boolean):
            return [builder.and_(a[0], b[0])]
        if self.kind == "logsum":
            return [Printer(builder, a[0].type.lanes).expand("logaddexp", self.dtype, a[0], b[0])]
        if self.kind == "most":
            return [builder.select(builder.fcmp_ordered(">", b[0], a[0]), b[0], a[0])]
        name = "greater" if self.kind == "max" else "less"
        return [extreme(builder, self.dtype, name, b[0], a[0])]

    def across(self, builder: Builder, state: State) -> State:
        """All lanes of a vector state joined, halving it repeatedly."""
        if self.kind in ("max", "min") and self.dtype.kind == "f" and state[0].type.lanes > 1:
            return [self._extreme_across(builder, state[0])]
        return self._by_halves(builder, state, self.join)

    def _by_halves(self, builder: Builder, state: State, join: Join) -> State:
        lanes = state[0].type.lanes
        while lanes > 1:
            lanes //= 2
            low = [_part(builder, value, 0, lanes) for value in state]
            high = [_part(builder, value, lanes, lanes) for value in state]
            state = join(builder, low, high)
        return state

    def _extreme_across(self, builder: Builder, value: Value) -> Value:
        """The greatest (or least) lane; NaN is tested once for all lanes together."""

        def join(builder: Builder, a: State, b: State) -> State:
            return [builder.select(builder.fcmp_ordered(sign, a[0], b[0]), a[0], b[0])]

        sign = ">" if self.kind == "max" else "<"
        some = builder.any(builder.fcmp_unordered("uno", value, value))
        found = self._by_halves(builder, [value], join)[0]
        return builder.select(some, constant(self.dtype, float("nan"), 1), found)


class CarryAccumulator(Accumulator):
    """One reduction that carries the values of a `Carry`."""

    def __init__(self, carry: Carry, target: Target, branches: bool) -> None:
        self.carry, self.target, self.branches = carry, target, branches
        self.kind, self.dtypes, self.dtype = "", carry.dtypes, carry.dtypes[0]
        self.counts, self.blocked = carry.counts, carry.rounds

    def identity(self, lanes: int) -> State:
        return [constant(dtype, value, lanes) for dtype, value in self.carry.initial]

    def update(
        self,
        builder: Builder,
        state: State,
        value: Value,
        position: Value | None = None,
        mask: Value | None = None,
        step: int = 0,
    ) -> State:
        lanes = state[0].type.lanes
        given = [*state, value]
        if self.counts and position is not None:
            positions = splat(builder, position, lanes)
            apart = lanes > 1 and step
            given.append(builder.add(positions, lane_numbers(lanes)) if apart else positions)
        else:
            given.append(Constant(I64, 0))

        def updated() -> State:
            found = self._run(builder, self.carry.update, given)
            if changed is None:
                return found
            return [builder.select(changed, a, b) for a, b in zip(found, state, strict=True)]

        changed = mask
        if self.carry.changes is None:
            return updated()
        (changed,) = self._run(builder, self.carry.changes, given)
        if mask is not None:
            changed = builder.and_(changed, mask)
        if lanes == 1 or not self.branches:
            return updated()
        # A change is rare, and updating takes most of the time.
        return builder.where_any(changed, state, updated)

    def join(self, builder: Builder, a: State, b: State) -> State:
        return self._run(builder, self.carry.combine, [*a, *b])

    def _run(self, builder: Builder, fragment: Fragment, given: Sequence[Value]) -> State:
        lanes = given[0].type.lanes
        printer = Printer(builder, lanes, self.target)
        values = printer.emit(fragment.code, given=dict(enumerate(given)))
        return [splat(builder, values[position], lanes) for position in fragment.results]


def accumulator(kind: object, dtype: DType, target: Target, branches: bool) -> Accumulator:
    """The accumulator for the attribute of a reduction or scan of values of `dtype`. `branches`:
    rows are so long that most vectors change nothing that changes rarely."""
    if isinstance(kind, Carry):
        return CarryAccumulator(kind, target, branches)
    return Accumulator(str(kind), dtype)


def neutral(kind: str, dtype: DType) -> Any:
    """What a reduction or scan of this kind starts with. Raises `CompileError`."""
    low, high = (-inf, inf) if dtype.kind == "f" else limits(dtype)
    identities: dict[str, Any] = {
        "sum": 0, "prod": 1, "max": low, "most": low, "min": high, "any": False, "all": True,
        "logsum": low,
    }  # fmt: skip
    if kind not in identities:
        raise CompileError(f"unknown reduction {kind!r}; there are {', '.join(identities)}")
    return identities[kind]


def _part(builder: Builder, value: Value, start: int, count: int) -> Value:
    if count == 1:
        return builder.extract_element(value, Constant(I64, start))
    which = shuffle_mask(tuple(range(start, start + count)))
    poison = Constant(value.type, "poison")
    return builder.shuffle_vector(value, poison, which)


def joined(builder: Builder, reduction: Accumulator, states: list[State]) -> State:
    """Several states as one, pair by pair."""
    while len(states) > 1:
        half = (len(states) + 1) // 2
        states = [
            reduction.join(builder, states[i], states[i + half])
            if i + half < len(states)
            else states[i]
            for i in range(half)
        ]
    return states[0]


def flatten(states: list[State]) -> list[Value]:
    """The values of states, one after another: what a loop carries."""
    return [value for state in states for value in state]


def unflatten(values: list[Value], like: list[State]) -> list[State]:
    """The states that `flatten` made these values from; `like` has their form."""
    source = iter(values)
    return [[next(source) for _ in state] for state in like]


def in_blocks(
    builder: Builder,
    kinds: list[Accumulator],
    loop: Callable[..., list[Value]],
    stop: Value,
    step: int,
    carried: list[Value],
    body: Callable[[Value, list[Value]], list[Value]],
    levels: int,
) -> list[Value]:
    """Runs `loop` from 0 to `stop`. Its states (of these kinds) start anew after every `BLOCK`
    steps: the finished block is joined to the earlier blocks, and these to blocks of blocks."""
    lanes = [value.type.lanes for value in carried]
    first = list(accumulate((len(kind.dtypes) for kind in kinds), initial=0))
    none = flatten([kind.identity(lanes[i]) for kind, i in zip(kinds, first, strict=False)])
    count = len(none)

    def both(totals: list[Value], parts: list[Value]) -> list[Value]:
        joins = zip(kinds, pairwise(first), strict=True)
        return flatten([kind.join(builder, totals[a:b], parts[a:b]) for kind, (a, b) in joins])

    def join(index: Value, parts: list[list[Value]], level: int) -> list[list[Value]]:
        """The states of each level; where a block ends, its state is joined to the level above."""
        before, last = builder.block, Constant(I64, step * (BLOCK**level - 1))
        ended = builder.icmp_signed("==", builder.and_(index, last), last)
        with builder.if_then(ended, likely=False):
            found = [none, both(parts[1], parts[0]), *parts[2:]]
            if level < levels:
                found[1:] = join(index, found[1:], level + 1)
            inside = builder.block
        return [
            [builder.phi(a.type, (a, before), (b, inside)) for a, b in zip(*pair, strict=True)]
            for pair in zip(parts, found, strict=True)
        ]

    def parted(values: list[Value]) -> list[list[Value]]:
        return [values[i : i + count] for i in range(0, len(values), count)]

    def once(index: Value, held: list[Value]) -> list[Value]:
        now, *before = parted(held)
        return flatten(join(index, [body(index, now), *before], 1))

    total, *before = parted(loop(0, stop, step, [*carried, *none * levels], once))
    return reduce(lambda parts, totals: both(totals, parts), before, total)
