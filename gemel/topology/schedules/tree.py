"""Double binary tree: sums go up to the root, and back down, half of the tensor in each tree.

The leaves of one tree are inside the other, so that everybody sends and receives as much. Chunks
follow each other, so that all levels work at the same time. Sanders, Speck and Träff,
Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel Computing 35, 2009.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from gemel.links import Topology
from gemel.topology.rings import rings
from gemel.topology.schedule import Schedule, Steps, joined, numbered, steps


def tree(topology: Topology, chunks: int = 8, along: Sequence[str] | None = None) -> Schedule:
    """Two trees over the GPUs; each half of the tensor travels in `chunks` parts.

    GPUs that are near in the order of `along`, all of them, are mostly near in the trees. It is
    the first of `rings` unless it is given.
    """
    places = topology.gpus
    line = rings(topology, places)[0].order if along is None else along
    order = numbered(topology, places, line)
    parents = two_trees(len(order))
    rows = [
        _up_and_down([-1 if p < 0 else order[p] for p in parent], order, number, chunks)
        for number, parent in enumerate(parents)
    ]
    names = [places[number] for number in order]
    text = "\n".join(drawing(parent, names) for parent in parents) if len(names) <= 32 else ""
    shares = numpy.full(2 * chunks, 0.5 / chunks)
    name = f"tree, {chunks} chunks" if chunks > 1 else "tree"
    return Schedule(name, places, len(places), shares, joined(rows), text)


def two_trees(size: int) -> tuple[list[int], list[int]]:
    """The parents of 0 to size - 1 in two trees, -1 at the root.

    In the first, odd numbers are leaves. The second has the numbers turned round, or, for an odd
    size, moved by one, so that even ones are (all but one).
    """
    first = [_parent(number, size) for number in range(size)]
    if size % 2 == 0:
        second = [_mirrored(first[size - 1 - number], size) for number in range(size)]
    else:
        second = [_moved(first[(number - 1) % size], size) for number in range(size)]
    return first, second


def drawing(parents: Sequence[int], names: Sequence[str]) -> str:
    """A tree as text, children below their parent, one step to the right."""
    lines: list[str] = []

    def walk(number: int, depth: int) -> None:
        lines.append("   " * depth + names[number])
        for child in range(len(parents)):
            if parents[child] == number:
                walk(child, depth + 1)

    walk(list(parents).index(-1), 0)
    return "\n".join(lines)


def _parent(number: int, size: int) -> int:
    """By the lowest bit: 0 is above the highest power of two, that above the next lower, ..."""
    if number == 0:
        return -1
    bit = number & -number
    above = (number ^ bit) | (bit << 1)
    return above if above < size else number ^ bit


def _mirrored(number: int, size: int) -> int:
    return -1 if number < 0 else size - 1 - number


def _moved(number: int, size: int) -> int:
    return -1 if number < 0 else (number + 1) % size


def _up_and_down(parents: Sequence[int], order: Sequence[int], number: int, chunks: int) -> Steps:
    """The steps of one tree: each chunk goes up, the deepest first, then down."""
    place = dict(zip(order, parents, strict=True))

    def depth(node: int) -> int:
        return 0 if place[node] < 0 else 1 + depth(place[node])

    below = sorted((node for node in order if place[node] >= 0), key=depth, reverse=True)
    child = numpy.array(below, "int32")
    parent = numpy.array([place[node] for node in below], "int32")
    rows = []
    for chunk in range(number * chunks, (number + 1) * chunks):
        rows.append(steps(child, parent, chunk, add=True, channel=2 * number))
        rows.append(steps(parent[::-1], child[::-1], chunk, add=False, channel=2 * number + 1))
    return joined(rows)
