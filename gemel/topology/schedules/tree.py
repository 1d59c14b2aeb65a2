"""Double binary tree: sums go up to the root and back down, with half of the tensor in each tree.

The leaves of one tree are inner nodes of the other, so that all GPUs send and receive the same
amount. Chunks are pipelined, so that all levels work at the same time. Sanders, Speck and Träff,
Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel Computing 35, 2009.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from gemel.links import Topology
from gemel.topology.rings import rings
from gemel.topology.schedule import (
    Schedule,
    Steps,
    check_chunks,
    joined,
    numbered,
    ranks_of,
    steps,
)


def tree(topology: Topology, chunks: int = 8, along: Sequence[str] | None = None) -> Schedule:
    """Two trees over the GPUs; each half of the tensor is sent in `chunks` parts.

    GPUs that are close in the order of `along`, which has all of them, are mostly close in the
    trees. By default it is the first of `rings`. Raises `TopologyError` if there is no GPU, or no
    chunk.
    """
    check_chunks("tree", chunks)
    places = ranks_of(topology)
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
    """The parents of nodes 0 to size - 1 in two trees, -1 at the root.

    In the first tree, odd numbers are leaves. The second one reverses the numbers or, if the size
    is odd, shifts them by one, so that all even numbers but one are leaves.
    """
    first = [_parent(number, size) for number in range(size)]
    if size % 2 == 0:
        second = [_mirrored(first[size - 1 - number], size) for number in range(size)]
    else:
        second = [_moved(first[(number - 1) % size], size) for number in range(size)]
    return first, second


def drawing(parents: Sequence[int], names: Sequence[str]) -> str:
    """A tree as text, children below their parent and indented by one step."""
    lines: list[str] = []

    def walk(number: int, depth: int) -> None:
        lines.append("   " * depth + names[number])
        for child in range(len(parents)):
            if parents[child] == number:
                walk(child, depth + 1)

    walk(list(parents).index(-1), 0)
    return "\n".join(lines)


def _parent(number: int, size: int) -> int:
    """The parent by the lowest set bit: 0 is above the highest power of two, which is above the
    next."""
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
    """The steps of one tree: each chunk goes up, from the deepest level first, and then down."""
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
