"""What a schedule computes: its steps on real arrays, in their order, without any clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from gemel.topology.schedule import Schedule, check_places

Array = NDArray[Any]


def all_reduce(schedule: Schedule, arrays: Sequence[Array]) -> list[Array]:
    """The sums of the arrays of all ranks, of one shape and dtype, as each rank gets them.

    The arrays given stay as they are. Raises `TopologyError` for another number of arrays,
    `ArgumentError` for lists and other things that are no arrays, `ShapeError` for shapes or dtypes
    that differ.

    >>> import numpy
    >>> from gemel import topology
    >>> pcie = topology.named("pcie4")
    >>> topology.all_reduce(topology.ring(pcie), [numpy.arange(3)] * 4)[2]
    array([0, 4, 8])
    """
    buffers = filled(schedule, arrays)
    rows, bounds = schedule.steps, schedule.bounds(arrays[0].size)
    for source, target, first, count, add, _ in zip(*(row.tolist() for row in rows), strict=True):
        part = slice(bounds[first], bounds[first + count])
        if add:
            buffers[target][part] += buffers[source][part]
        else:
            buffers[target][part] = buffers[source][part]
    return [flat.reshape(arrays[0].shape) for flat in buffers[: schedule.ranks]]


def filled(schedule: Schedule, arrays: Sequence[Array]) -> list[Array]:
    """A flat buffer for each place: a copy of a rank's array, or zeros for a helper."""
    check_places(schedule, arrays)
    helpers = len(schedule.places) - schedule.ranks
    flat = [numpy.array(array).ravel() for array in arrays]
    return flat + [numpy.zeros_like(flat[0]) for _ in range(helpers)]
