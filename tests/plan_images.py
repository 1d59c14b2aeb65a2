"""Reads plan images and binds them to sizes, as docs/internals/plan-image.md describes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gemel.runtime.image import (
    HEADER,
    MAGIC,
    STRIDED,
    TEMPORARY,
    VERSION,
    Branching,
    Input,
    Item,
    Kept,
    Loop,
    Output,
    Parallel,
    Step,
    Temporary,
)

LIMIT = 1 << 63


def divided(a: int, b: int) -> int:
    return a // b if b else 0


def rest(a: int, b: int) -> int:
    return a % b if b else 0


OPERATIONS: tuple[Callable[[int, int], int], ...] = (
    int.__add__,
    int.__sub__,
    int.__mul__,
    divided,
    rest,
    min,
    max,
)
RELATIONS: tuple[Callable[[int, int], bool], ...] = (int.__eq__, int.__lt__, int.__le__)


class Bound(NamedTuple):
    """An image whose slots are replaced by numbers."""

    inputs: list[Input]
    outputs: list[Output]
    temporaries: list[Temporary]
    items: list[Item]
    offsets: list[int]
    workspace: int

    @property
    def cost(self) -> int:
        """Nanoseconds on one core."""
        return sum(map(cost, self.items))


def closed_over(program: Any) -> list[tuple[Any, Any]]:
    """The (shape, strides) of the arrays a program closes over: its last inputs."""
    arrays = [closed.array for closed in program.closed.inputs.values()]
    return [(array.shape, array._element_strides) for array in arrays]


def cost(item: Item) -> int:
    """Nanoseconds an item takes; for a branch, those of the slower side."""
    if isinstance(item, Step):
        return item.cost
    if isinstance(item, Branching):
        return max(sum(map(cost, item.then)), sum(map(cost, item.otherwise)))
    if isinstance(item, Loop):
        return item.rounds * sum(map(cost, item.items)) + sum(map(cost, item.after))
    return sum(cost(one) for part in item.parts for one in part)


class Read:
    """An image that has been read; its sizes are slot numbers."""

    def __init__(self, image: bytes) -> None:
        count = struct.unpack_from("<4q", image)[2]
        self.words = struct.unpack_from(f"<{count}q", image)
        self.bytes = image[8 * count :]
        assert self.words[:2] == (MAGIC, VERSION) and self.words[3] == len(self.bytes)
        self.at = HEADER
        self.name, self.target = self.text(), self.text()
        self.constants = self.many(self.word)
        self.free = self.word()
        self.program = self.many(lambda: self.take(3))
        self.guards = self.many(lambda: self.take(4))
        self.inputs = self.many(self.input)
        self.outputs = self.many(self.output)
        self.scalars, self.random = self.take(2)
        self.temporaries = self.many(lambda: Temporary(*self.take(3)))
        self.captured = self.many(self.blob)
        self.kernels = self.many(lambda: (self.text(), self.blob()))
        self.items = self.many(self.item)
        self.sites = self.many(self.site)
        assert self.at == count

    def word(self) -> int:
        self.at += 1
        return int(self.words[self.at - 1])

    def take(self, count: int) -> tuple[int, ...]:
        return tuple(self.word() for _ in range(count))

    def many(self, read: Callable[[], Any]) -> list[Any]:
        return [read() for _ in range(self.word())]

    def blob(self) -> bytes | None:
        offset, length = self.take(2)
        assert -1 <= length <= len(self.bytes) - offset
        return None if length < 0 else self.bytes[offset : offset + length]

    def text(self) -> str:
        return (self.blob() or b"").decode()

    def input(self) -> Input:
        dtype, flags, rank = self.take(3)
        shape = self.take(rank)
        return Input(dtype, shape, self.take(rank) if flags & STRIDED else None, flags & ~STRIDED)

    def output(self) -> Output:
        kind, dtype, space, index, rank = self.take(5)
        shape = self.take(rank)
        if not kind:
            return Output(dtype, shape)
        return Output(dtype, shape, self.take(rank), self.word(), space, index)

    def item(self) -> Item:
        kind = self.word()
        if kind == 1:
            condition = self.take(3)
            return Branching(condition, self.many(self.item), self.many(self.item))  # type: ignore[arg-type]
        if kind == 2:
            return Parallel(self.many(lambda: self.many(self.item)))
        if kind in (3, 5):
            rounds = self.word()
            windows = self.many(lambda: (self.take(3), *self.take(2)))
            if kind == 3:
                return Loop(rounds, windows, self.many(self.item))  # type: ignore[arg-type]
            held = self.take(3)
            return Loop(rounds, windows, self.many(self.item), held, self.many(self.item))  # type: ignore[arg-type]
        if kind == 4:
            lists = [self.many(self.word) for _ in range(3)]
            return Kept(*lists, self.many(self.item))  # type: ignore[arg-type]
        assert kind == 0
        kernel, buffers = self.word(), self.many(lambda: self.take(3))
        integers, (extent, chunk) = self.many(self.word), self.take(2)
        scalars, cost = self.many(lambda: self.take(3)), self.word()
        failure = (self.text(), self.text())
        found = failure if failure[0] else None
        label = self.text(), self.many(self.word)
        return Step(kernel, buffers, integers, extent, chunk, scalars, cost, found, label)

    def site(self) -> tuple[int, list[int], list[int], list[int]]:
        return self.word(), self.many(self.word), self.many(self.word), self.many(self.word)

    # --- binding ----------------------------------------------------------------------------

    def values(self, arrays: Sequence[tuple[Any, Any]]) -> list[int] | None:
        """The slots' values for arrays of these (shape, strides), or None if they do not fit."""
        free: dict[int, int] = {}
        first, after = len(self.constants), len(self.constants) + self.free
        for given, (shape, strides) in zip(self.inputs, arrays, strict=True):
            if len(given.shape) != len(shape):
                return None
            pairs = [*zip(given.shape, shape, strict=True)]
            if given.strides is not None:
                long = zip(given.strides, strides, shape, strict=True)
                pairs += [(slot, stride) for slot, stride, extent in long if extent > 1]
            for slot, value in pairs:
                known = self.constants[slot] if slot < first else free.setdefault(slot, value)
                if known != value:
                    return None
        values = [*self.constants, *(free.get(slot, 0) for slot in range(first, after))]
        for operation, left, right in self.program:
            assert max(left, right) < len(values)
            values.append(OPERATIONS[operation](values[left], values[right]))
            if not -LIMIT <= values[-1] < LIMIT:
                return None
        for relation, left, right, answer in self.guards:
            if RELATIONS[relation](values[left], values[right]) != answer:
                return None
        return values

    def bind(self, arrays: Sequence[tuple[Any, Any]]) -> Bound | None:
        """The plan for arrays of these (shape, strides), or None if they do not fit."""
        values = self.values(arrays)
        if values is None:
            return None
        temporaries = [t._replace(size=values[t.size]) for t in self.temporaries]
        offsets, workspace = placed(temporaries)
        return Bound(
            [bound_layout(given, values) for given in self.inputs],
            [bound_layout(o, values) for o in self.outputs],
            temporaries,
            [bound_item(item, values) for item in self.items],
            offsets,
            workspace,
        )


def bound_layout(layout: Any, values: Sequence[int]) -> Any:
    """An input or output with numbers for slots."""
    shape = tuple(values[slot] for slot in layout.shape)
    if layout.strides is None:
        return layout._replace(shape=shape)
    found = layout._replace(shape=shape, strides=tuple(values[slot] for slot in layout.strides))
    return found._replace(offset=values[layout.offset]) if isinstance(layout, Output) else found


def bound_item(item: Item, values: Sequence[int]) -> Item:
    """An item with numbers for slots; the integers that a message names are filled in."""

    def address(given: Any) -> tuple[int, int, int]:
        return given[0], given[1], values[given[2]]

    def items(found: Sequence[Item]) -> list[Item]:
        return [bound_item(one, values) for one in found]

    if isinstance(item, Branching):
        return Branching(address(item.condition), items(item.then), items(item.otherwise))
    if isinstance(item, Parallel):
        return Parallel([items(part) for part in item.parts])
    if isinstance(item, Kept):
        return item._replace(items=items(item.items))
    if isinstance(item, Loop):
        windows = [(address(place), values[step], period) for place, step, period in item.windows]
        held = None if item.condition is None else address(item.condition)
        return Loop(values[item.rounds], windows, items(item.items), held, items(item.after))
    integers = [values[slot] for slot in item.integers]
    failure = item.failure
    if failure is not None:
        text = failure[1]
        for position, value in enumerate(integers):
            text = text.replace(f"{{{position}}}", str(value))
        failure = (failure[0], text)
    label, sizes = item.label
    return item._replace(
        buffers=[address(buffer) for buffer in item.buffers],
        integers=integers,
        extent=values[item.extent],
        chunk=values[item.chunk],
        cost=values[item.cost],
        failure=failure,
        label=(label, [values[slot] for slot in sizes]),
    )


def placed(temporaries: Sequence[Temporary]) -> tuple[list[int], int]:
    """The offsets of the temporaries, and the size of the workspace they need."""

    def end(index: int) -> int:
        return -(-(offsets[index] + temporaries[index].size) // 64) * 64

    order = sorted(range(len(temporaries)), key=lambda i: (-temporaries[i][0], temporaries[i][1]))
    offsets = [0] * len(temporaries)
    known: list[int] = []
    for index in order:
        size, first, last = temporaries[index]
        alive = (p for p in known if temporaries[p][1] <= last and first <= temporaries[p][2])
        offset = 0
        for other in sorted(alive, key=offsets.__getitem__):
            if offset + -(-size // 64) * 64 <= offsets[other]:
                break
            offset = max(offset, end(other))
        offsets[index] = offset
        known.append(index)
    return offsets, max(map(end, range(len(temporaries))), default=0)


__all__ = ["TEMPORARY", "Bound", "Read"]
