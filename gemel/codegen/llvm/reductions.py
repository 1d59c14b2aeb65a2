"""Accumulators: the state of each kind of reduction, its step, and how states are joined.

A state is a list of LLVM values: one value, or for argmax and argmin the extreme and its position.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import accumulate, pairwise
from typing import Any

from gemel import dtype as dtypes
from gemel.codegen.llvm.assembly import I8, I64, Builder, Constant, Value, widened
from gemel.codegen.llvm.expression import Printer, extreme
from gemel.codegen.llvm.memory import lane_numbers
from gemel.codegen.llvm.registers import constant, shuffle_mask, splat
from gemel.dtype import DType
from gemel.errors import CompileError

State = list[Value]
Join = Callable[[Builder, State, State], State]

_UNSET = (1 << 63) - 1
#: The number of steps in a block of sums.
BLOCK = 64


def _limits(dtype: DType) -> tuple[float | int, float | int]:
    if dtype.kind == "f":
        return float("-inf"), float("inf")
    bits = 8 * dtype.itemsize
    if dtype.kind == "i":
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return (0, 1) if dtype.kind == "b" else (0, (1 << bits) - 1)


class Accumulator:
    """One reduction of values of `dtype`: sum, prod, max, min, any, all, argmax or argmin; or most,
    which is the floating-point max of all values that are not NaN (`largest`)."""

    def __init__(self, kind: str, dtype: DType) -> None:
        # Bools are compared as bytes, for which every target has comparisons.
        self.widens = dtype.kind == "b" and kind in ("argmax", "argmin")
        self.kind = kind
        self.dtype = dtypes.uint8 if self.widens else dtype
        self.positions = kind.startswith("arg")
        self.blocked = kind == "sum" and dtype.kind == "f"
        low, high = _limits(self.dtype)
        identities: dict[str, Any] = {
            "sum": 0, "prod": 1, "max": low, "most": low, "min": high, "any": False, "all": True,
            "logsum": low, "argmax": low, "argmin": high,
        }  # fmt: skip
        if kind not in identities:
            raise CompileError(f"unknown reduction {kind!r}; there are {', '.join(identities)}")
        self.neutral = identities[kind]

    def identity(self, lanes: int) -> State:
        """The state before any value."""
        first = constant(self.dtype, self.neutral, lanes)
        return [first, constant(dtypes.int64, _UNSET, lanes)] if self.positions else [first]

    def value(
        self, builder: Builder, value: Value, position: Value, mask: Value | None, step: int
    ) -> State:
        """One value as a state; the identity in lanes that the mask excludes.

        `position` is the flat position of the first lane, `step` the distance to the next lane's.
        """
        if self.widens:
            value = builder.zext(value, widened(I8, value.type.lanes))
        state = [value]
        if self.positions:
            lanes = value.type.lanes
            positions = splat(builder, position, lanes)
            if lanes > 1 and step:
                positions = builder.add(positions, lane_numbers(lanes))
            state.append(positions)
        if mask is None:
            return state
        neutral = self.identity(mask.type.lanes)
        return [builder.select(mask, a, b) for a, b in zip(state, neutral, strict=True)]

    def join(self, builder: Builder, a: State, b: State) -> State:
        """Two states joined. In max and min the newer value comes first, which is one
        instruction."""
        if self.positions:
            return self._join_positions(builder, a, b)
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

    def step(self, builder: Builder, state: State, value: State) -> State:
        """The state after one more value, whose position is after all earlier ones."""
        if not self.positions:
            return self.join(builder, state, value)
        sign = ">" if self.kind == "argmax" else "<"
        if self.dtype.kind == "f":
            # Greater, or NaN on either side.
            better = builder.fcmp_unordered(sign, value[0], state[0])
        else:
            signed = self.dtype.kind == "i"
            better = (builder.icmp_signed if signed else builder.icmp_unsigned)(
                sign, value[0], state[0]
            )
        if better.type.lanes == 1:
            return self._replaced(builder, better, state, value)
        # A better value is rare. Positions are updated only then, since that takes most of the
        # time.
        return builder.where_any(
            better, state, lambda: self._replaced(builder, better, state, value)
        )

    def _replaced(self, builder: Builder, better: Value, state: State, value: State) -> State:
        """The state with better values in place of the old ones; but a NaN stays."""
        if self.dtype.kind == "f":
            better = builder.and_(better, builder.fcmp_ordered("ord", state[0], state[0]))
        return [builder.select(better, new, old) for new, old in zip(value, state, strict=True)]

    def _join_positions(self, builder: Builder, a: State, b: State) -> State:
        """The more extreme of the two, or the first of equals; NaN is the most extreme."""
        sign = ">" if self.kind == "argmax" else "<"
        earlier = builder.icmp_signed("<", b[1], a[1])
        if self.dtype.kind == "f":
            nan_a = builder.fcmp_unordered("uno", a[0], a[0])
            nan_b = builder.fcmp_unordered("uno", b[0], b[0])
            better = builder.fcmp_ordered(sign, b[0], a[0])
            better = builder.or_(
                better, builder.and_(nan_b, builder.fcmp_ordered("ord", a[0], a[0]))
            )
            same = builder.fcmp_ordered("==", a[0], b[0])
            same = builder.or_(same, builder.and_(nan_a, nan_b))
        else:
            signed = self.dtype.kind == "i"
            compare = builder.icmp_signed if signed else builder.icmp_unsigned
            better = compare(sign, b[0], a[0])
            same = builder.icmp_signed("==", a[0], b[0])
        better = builder.or_(better, builder.and_(same, earlier))
        return [builder.select(better, new, old) for new, old in zip(b, a, strict=True)]

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

    def result(self, builder: Builder, state: State) -> Value:
        """The reduction's value."""
        if not self.positions:
            return state[0]
        # If nothing was more extreme than the identity, all values equal it: the first one wins.
        lanes = state[1].type.lanes
        unset = builder.icmp_signed("==", state[1], constant(dtypes.int64, _UNSET, lanes))
        return builder.select(unset, constant(dtypes.int64, 0, lanes), state[1])


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
    first = list(accumulate((1 + kind.positions for kind in kinds), initial=0))
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
