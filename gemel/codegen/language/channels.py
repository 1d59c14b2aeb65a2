"""Nests without their axis of channels: between images with channels last and with channels first.

Where channels come first, each is a plane; where they are last, an image consists of pixels of
three or four elements. A vector along such a short axis would be nearly empty, and one along a
plane would read every third element. So the nest is written again without the axis, with operands
of their own for each channel. Those of a pixel are interleaved: together they are whole vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gemel.codegen.language.order import always
from gemel.codegen.language.program import CHOOSING, INDEX, INPUT, OUTPUT
from gemel.codegen.language.values import Recorded
from gemel.extent import same_for_all
from gemel.ir.layout import Layout
from gemel.ops.shape import MOST_INTERLEAVED

if TYPE_CHECKING:
    from gemel.codegen.language.nest import Nest

#: The most channels, and the most instructions for all of them.
MOST_CHANNELS, MOST_STEPS = 4, 64
#: The fewest places of a plane: with fewer, vectors are nearly empty.
LEAST_PLACES = 8
#: What reads or writes elsewhere than at the position, or fails.
ELSEWHERE = (*CHOOSING, "scatter_add", "check")


def by_channel(nest: Nest, dimensions: list[int]) -> Nest | None:
    """The same nest without an axis of channels; None if it has none between pixels and planes.

    `dimensions` are its dimensions longer than 1, none of them reduced. A nest without the axis
    serves one number of channels.
    """
    if nest.has(*ELSEWHERE) or any(role == INDEX for _, role, _, _ in nest.operands):
        return None
    operands = [strides for _, _, _, strides in nest.operands]
    if sum(any(always(strides[axis], 1, -1) for strides in operands) for axis in dimensions) < 2:
        return None  # all that have neighbours have them along one axis
    most = min(MOST_CHANNELS, MOST_STEPS // len(nest.recorder.code))
    for axis, along, size in _axes(nest, dimensions):
        kinds = [_kind(nest, operand, axis, along) for operand in nest.operands]
        if {"plane", "pixel"} <= {*kinds} and "" not in kinds:
            # Guards hold the answers only if there are planes and pixels.
            suits = 1 < nest.shape[axis] <= most and size >= LEAST_PLACES
            return _without(nest, axis, along, kinds) if suits else None
    return None


def _axes(nest: Nest, dimensions: list[int]) -> Iterator[tuple[int, int, int]]:
    """What may be the axis of channels, the last dimension along a plane, and its number of
    places."""
    yield dimensions[-1], dimensions[-2], nest.merged(dimensions[:-1])[-1][0]
    for number in range(len(dimensions) - 1):
        loops = nest.merged(dimensions[number + 1 :])
        if len(loops) == 1:
            yield dimensions[number], dimensions[-1], loops[0][0]
            return


def _kind(nest: Nest, operand: tuple[Any, ...], axis: int, along: int) -> str:
    """How an operand lies: a ``plane`` for each channel, or ``pixel`` after pixel; the ``same``
    everywhere in a plane; empty for other ways."""
    _, role, _, strides = operand
    if always(strides[along], 1) or (role == INPUT and always(strides[along], -1)):
        return "plane"
    if always(strides[axis], 1) and strides[along] == nest.shape[axis]:
        return "pixel"
    return "same" if role == INPUT and always(strides[along], 0) else ""


def _without(nest: Nest, axis: int, along: int, kinds: list[str]) -> Nest:
    """The nest written once for each channel."""
    channels = int(nest.shape[axis])
    found = nest.empty((*nest.shape[:axis], 1, *nest.shape[axis + 1 :]))
    numbers: dict[int, int] = {}
    for channel in range(channels):
        for number, (place, role, dtype, strides) in enumerate(nest.operands):
            if channel and always(strides[axis], 0):
                continue  # all channels read the same
            assert place is not None
            offset = place.layout.offset + channel * strides[axis]
            moved = place.at(Layout(place.shape, place.strides, offset))
            if kinds[number] == "pixel":
                strides = (*strides[:along], channels, *strides[along + 1 :])
            numbers[number] = len(found.operands)
            found.operands.append((moved, role, dtype, strides))
        values: list[Recorded] = []
        for step in nest.recorder.code:
            attribute = step.attribute if step.operand is None else numbers[step.operand]
            arguments = tuple(values[position] for position in step.arguments)
            values.append(found.recorder.append(step.name, step.dtype, arguments, attribute))
    return found


def interleaved_along(nest: Nest, strides: list[Any]) -> dict[int, tuple[int, int]]:
    """The operands that are interleaved along the vector, with their turns and the number of those
    that lie together: all outputs, and inputs. `strides` are those along the vector."""
    # The results of a row's reductions are written after the row's own elements.
    if nest.has("reduce"):
        return {}
    outputs = [i for i, (_, role, _, _) in enumerate(nest.operands) if role == OUTPUT]
    found = sorted(_turns(nest, strides))
    kept = [turns for turns in found if turns == outputs]
    inputs = [turns for turns in found if turns[0] not in outputs and not nest.has("scan")]
    for count in {len(turns) for turns in inputs}:
        alike = [turns for turns in inputs if len(turns) == count]
        # Kernels find the inputs that lie together by the order of each turn's inputs.
        if all([*column] == sorted(column) for column in zip(*alike, strict=True)):
            kept += alike
    return {i: (n, len(turns)) for turns in kept for n, i in enumerate(turns)}


def _turns(nest: Nest, strides: list[Any]) -> Iterator[list[int]]:
    """Operands of one role whose elements alternate along the vector, by their turn."""
    known: dict[Any, list[tuple[int, Any]]] = {}
    for i, (place, role, dtype, along) in enumerate(nest.operands):
        step = strides[i] if type(strides[i]) is int else 0
        if place is not None and 1 < step <= MOST_INTERLEAVED:
            key = id(place.buffer), role, dtype, along, step
            known.setdefault(key, []).append((i, place.layout.offset))
    for (*_, step), alike in known.items():
        for start in range(0, len(alike) - len(alike) % step, step):
            part = alike[start : start + step]
            if all(same_for_all(part[0][1] + n, offset) for n, (_, offset) in enumerate(part)):
                yield [i for i, _ in part]
