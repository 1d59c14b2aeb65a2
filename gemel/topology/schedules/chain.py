"""Chain: sums go along the ranks from the first to the last, and come back the same way.

Each rank adds what it has to what it gets, so that every element is added up in the order of the
ranks. Chunks follow each other: while the last ones go up, the first ones come down.
"""

from __future__ import annotations

import numpy

from gemel.links import Topology
from gemel.topology.schedule import Schedule, joined, steps


def chain(topology: Topology, chunks: int = 8) -> Schedule:
    """The sum of GPUs 0 to i is made at GPU i; the last one's goes back to all.

    Links in the middle carry the tensor once each way: as many bytes as around a ring. It takes
    2 (n - 1) messages before the first chunk is back.
    """
    places = topology.gpus
    up = numpy.arange(len(places) - 1)
    down = up[::-1] + 1
    rows = []
    for chunk in range(chunks):
        rows.append(steps(up, up + 1, chunk, add=True, channel=0))
        rows.append(steps(down, down - 1, chunk, add=False, channel=1))
    drawing = " -> ".join(places) + " and back" if len(places) <= 32 else ""
    shares = numpy.full(chunks, 1 / chunks)
    return Schedule("chain", places, len(places), shares, joined(rows), drawing)
