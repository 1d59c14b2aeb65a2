"""Growth: the time of schedules on more and more machines, and where one overtakes another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gemel.errors import TopologyError
from gemel.links import Topology
from gemel.machines import MOST_IN_FLEET, fleet, whole
from gemel.spec import is_several
from gemel.topology.estimate import Estimate
from gemel.topology.explaining import table
from gemel.topology.rings import Ring
from gemel.topology.routes import Routes
from gemel.topology.schedule import Schedule
from gemel.topology.schedules import (
    hierarchical,
    one_device,
    pieces,
    ring,
    servers,
    tree,
)
from gemel.topology.simulator import simulate
from gemel.topology.units import show_bytes, show_seconds

#: One of this many machines is also a server.
SERVED = 10
#: The numbers of chunks that a tree may use; the best one is taken.
CHUNKS = (1, 4, 16)


class Growth(NamedTuple):
    """The simulated seconds of each schedule for each number of machines; nan where it does not
    apply."""

    nbytes: float
    machines: tuple[int, ...]
    seconds: dict[str, tuple[float, ...]]

    def table(self) -> str:
        """A table of the times, one row for each number of machines, with the best schedule."""
        rows = [("machines", *self.seconds, "best")]
        for place, count in enumerate(self.machines):
            times = [column[place] for column in self.seconds.values()]
            cells = ["-" if math.isnan(time) else show_seconds(time) for time in times]
            rows.append((str(count), *cells, _fastest(self, place)))
        return table(rows)


class Crossing(NamedTuple):
    """On `fewer` machines `before` is faster than `after`, on `more` it is slower.

    `leads`: these are the fastest of all schedules, on `fewer` and on `more` machines.
    """

    fewer: int
    more: int
    before: str
    after: str
    leads: bool

    def __str__(self) -> str:
        note = ", the fastest now" if self.leads else ""
        return f"{self.fewer} to {self.more} machines: {self.after} overtakes {self.before}{note}"


def growth(
    nbytes: float,
    machines: Sequence[int],
    network: str = "25gbe",
    per_rack: int = 40,
    uplink: float = 400.0,
) -> Growth:
    """Simulate every schedule for a tensor of `nbytes` on fleets of several sizes.

    Each machine counts as one device, which has already summed its own GPUs' gradients. Fleets are
    those of `fleet`: racks of `per_rack` machines, whose uplinks have `uplink` gigabits per second.
    A tree has the number of chunks for which its estimate is the lowest.

    >>> from gemel import topology
    >>> found = topology.growth(1e6, [2, 4, 8])
    >>> round(found.seconds["pieces"][-1] * 1e3, 2)  # ms on 8 machines
    0.61
    """
    counts = machines if is_several(machines) else [machines]
    machines = [whole("growth", "machines", each) for each in counts]
    if not machines or min(machines) < 2 or max(machines) > MOST_IN_FLEET:
        raise TopologyError(
            f"growth: {machines} machines; give 2 or more, and at most {MOST_IN_FLEET}"
        )
    columns: dict[str, list[float]] = {name: [] for name in SCHEDULES}
    for count in machines:
        topology = fleet(count, per_rack, network, uplink)
        routes = Routes(topology)
        for name, variants in SCHEDULES.items():
            found = variants(topology)
            if len(found) > 1:
                found.sort(key=lambda schedule: Estimate(schedule, routes).seconds(nbytes))
            time = simulate(found[0], routes, nbytes).seconds if found else math.nan
            columns[name].append(time)
    times = {name: tuple(column) for name, column in columns.items()}
    return Growth(nbytes, tuple(machines), times)


def crossings(found: Growth) -> list[Crossing]:
    """Where one schedule overtakes another as machines are added."""
    rows = []
    for i in range(len(found.machines) - 1):
        best = _fastest(found, i), _fastest(found, i + 1)
        for pair in itertools.permutations(found.seconds, 2):
            (a, later_a), (b, later_b) = (found.seconds[name][i : i + 2] for name in pair)
            if a < b and later_a > later_b or (pair == best and math.isnan(b)):
                fewer, more = found.machines[i : i + 2]
                rows.append(Crossing(fewer, more, *pair, leads=pair == best))
    return rows


def counts_up_to(machines: int, per_rack: int = 40) -> list[int]:
    """The counts 2, 4, 8, ... up to a rack, then 1, 3, 9, ... racks, and finally `machines`."""
    found = [2**power for power in range(1, 64) if 2**power < min(machines, per_rack)]
    racks = 1
    while racks * per_rack < machines:
        found.append(racks * per_rack)
        racks *= 3
    return [*found, machines]


def plot(found: Growth, width: int = 64, height: int = 18) -> str:
    """Plot time (upwards) against machines (to the right), on logarithmic axes, one letter per
    schedule.

    Where several schedules share a place, the letter of the fastest one is shown.
    """
    letters = dict(zip(found.seconds, "abcdefghijkl", strict=False))
    points = [
        (math.log10(count), math.log10(time), letters[name])
        for name, column in found.seconds.items()
        for count, time in zip(found.machines, column, strict=True)
        if time > 0
    ]
    if not points:
        return "(nothing to plot)"
    left, wide = min(x for x, _, _ in points), max(x for x, _, _ in points)
    low, high = min(y for _, y, _ in points), max(y for _, y, _ in points)
    field = [[" "] * width for _ in range(height)]
    for x, y, letter in sorted(points, key=lambda point: -point[1]):
        column = round((x - left) / (wide - left or 1) * (width - 1))
        row = round((high - y) / (high - low or 1) * (height - 1))
        field[row][column] = letter
    ends = {0: show_seconds(10**high), height - 1: show_seconds(10**low)}
    lines = [f"{ends.get(i, ''):>9} |{''.join(row).rstrip()}" for i, row in enumerate(field)]
    few, many = str(found.machines[0]), str(found.machines[-1])
    lines.append(" " * 10 + "+" + "-" * width)
    lines.append(" " * 11 + few + f"{many:>{width - len(few)}}")
    lines.append("; ".join(f"{letter}: {name}" for name, letter in letters.items()))
    return "\n".join(lines)


def report(found: Growth) -> str:
    """The table, the plot and the crossings."""
    lines = [f"{show_bytes(found.nbytes)} of gradients, simulated", found.table(), plot(found)]
    changes = "\n".join(map(str, crossings(found))) or "none"
    return "\n\n".join([*lines, f"crossings:\n{changes}"])


def _fastest(found: Growth, place: int) -> str:
    times = {name: column[place] for name, column in found.seconds.items()}
    return min((name for name in times if times[name] >= 0), key=lambda name: times[name])


def _in_racks(topology: Topology) -> list[Schedule]:
    groups = topology.machines
    if len(groups) < 2 or len(groups[0]) < 2 or len(set(map(len, groups))) > 1:
        return []
    # For pieces, no rack's switch and no core switch is a bottleneck here, so rings would be
    # slower.
    return [hierarchical(topology, inside="pieces", between="pieces")]


#: The schedules to compare: a function from a topology to variants, an empty list if none fits.
#: Machines are numbered rack by rack, so their order makes a good ring.
SCHEDULES: dict[str, Callable[[Topology], list[Schedule]]] = {
    "one device": lambda topology: [one_device(topology)],
    "servers": lambda topology: [servers(topology, topology.gpus[::SERVED])],
    "pieces": lambda topology: [pieces(topology)],
    "ring": lambda topology: [ring(topology, along=[Ring(topology.gpus, 1.0)])],
    "tree": lambda topology: [tree(topology, chunks, topology.gpus) for chunks in CHUNKS],
    "hierarchical": _in_racks,
}
