"""Chain: sums go along the ranks from the first to the last, and come back the same way.

Each rank adds its own part to what it receives, so every element is summed in the order of the
ranks. Chunks are pipelined: while the last ones go up, the first ones already come back.
"""

from __future__ import annotations

import numpy

from gemel.links import Topology
from gemel.topology.schedule import Schedule, check_chunks, joined, ranks_of, steps


def chain(topology: Topology, chunks: int = 8) -> Schedule:
    """GPU i computes the sum of GPUs 0 to i; the sum of the last GPU is sent back to all.

    Links in the middle carry the tensor once each way, as many bytes as in a ring. The first chunk
    is back after 2 (n - 1) messages. Raises `TopologyError` if there is no GPU, or no chunk.
    """
    check_chunks("chain", chunks)
    places = ranks_of(topology)
    up = numpy.arange(len(places) - 1)
    down = up[::-1] + 1
    rows = []
    for chunk in range(chunks):
        rows.append(steps(up, up + 1, chunk, add=True, channel=0))
        rows.append(steps(down, down - 1, chunk, add=False, channel=1))
    drawing = " -> ".join(places) + " and back" if len(places) <= 32 else ""
    shares = numpy.full(chunks, 1 / chunks)
    return Schedule("chain", places, len(places), shares, joined(rows), drawing)
