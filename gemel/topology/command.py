"""`python -m gemel topology`: named topologies, plans for them, and growth to many machines, as
text."""

from __future__ import annotations

import argparse

from gemel.errors import TopologyError
from gemel.machines import MOST_IN_FLEET, NAMES, NETWORKS, named
from gemel.topology.explaining import compare
from gemel.topology.growth import counts_up_to, growth, report
from gemel.topology.planner import Planner
from gemel.topology.units import read_bytes, show_bytes

DESCRIPTION = """\
Show how to sum gradients over given links, and how long that takes. Without options, list the
named topologies.

  python -m gemel topology --explain p3
  python -m gemel topology --explain 2xp3-25gbe --bytes 160MB
  python -m gemel topology --machines 1000 --bytes 100MB

The name of a cluster is a number, a machine and a network: 2xp3-25gbe.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--explain", metavar="NAME", help="show what the planner chooses on this topology, and why"
    )
    parser.add_argument("--draw", metavar="NAME", help="draw the nodes and links of this topology")
    parser.add_argument(
        "--bytes", metavar="SIZE", help="size of one tensor, such as 160MB (1 KB is 1,000 bytes)"
    )
    parser.add_argument(
        "--machines", metavar="N", type=int, help="compare the schedules on 2 to N machines"
    )
    parser.add_argument(
        "--network",
        help=f"network between the machines of --machines: {', '.join(NETWORKS)} (25gbe)",
    )


def run(given: argparse.Namespace) -> int:
    """Print what the options ask for; returns the exit status. Raises `GemelError`s."""
    nbytes = None if given.bytes is None else read_bytes(given.bytes)
    if nbytes is not None and nbytes < 1:
        raise TopologyError(
            f"--bytes {given.bytes}: such a tensor has nothing to sum; give at least 1 byte"
        )
    if given.network is not None and given.machines is None:
        raise TopologyError(
            f"--network {given.network}: it is for --machines; a cluster's name says its own, "
            "as in --explain 2xp3-25gbe"
        )
    if nbytes is not None and given.draw is not None and given.explain is given.machines is None:
        raise TopologyError(f"--bytes {given.bytes}: a drawing has no sizes; use --explain")
    if given.draw is not None:
        print(named(given.draw).drawing())
    if given.explain is not None:
        print(explained(given.explain, nbytes))
    if given.machines is not None:
        if not 2 <= given.machines <= MOST_IN_FLEET:
            raise TopologyError(
                f"--machines {given.machines}: give 2 or more, and at most {MOST_IN_FLEET}"
            )
        counts = counts_up_to(given.machines)
        network = "25gbe" if given.network is None else given.network
        print(report(growth(1e8 if nbytes is None else nbytes, counts, network)))
    if given.draw is given.explain is given.machines is None:
        print(listed(nbytes))
    return 0


def explained(name: str, nbytes: float | None) -> str:
    """The planner's table and drawings, or all schedules for one size, estimated and simulated."""
    planner = Planner(named(name))
    if nbytes is None:
        return planner.explain()
    compared = compare(planner.estimates, planner.routes, nbytes)
    return f"{planner.explain([nbytes])}\n\nall schedules for {show_bytes(nbytes)}:\n{compared}"


def listed(nbytes: float | None) -> str:
    """The named topologies and, if a size is given, the best schedule for it on each."""
    lines = []
    for name in NAMES:
        topology = named(name)
        if nbytes is None:
            lines.append(str(topology))
        else:
            choice = Planner(topology).choose(nbytes)
            lines.append(f"{name}: {choice.schedule.name}, {choice.seconds * 1e3:.3g} ms")
    return "\n".join(lines)
