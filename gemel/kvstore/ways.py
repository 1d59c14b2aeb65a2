"""The all-reduce algorithms ("ways") for sums over several workers, and the choice among them.

Rank 0 chooses for each group of requests, and the others follow. The costs are measured when the
workers join (`gemel.kvstore.measuring`); all workers have the same table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gemel.errors import UnknownNameError, WorkersError, unknown_name
from gemel.links import Link, Node, Topology

if TYPE_CHECKING:
    from gemel.kvstore.agreement import Request
    from gemel.topology import Schedule

#: Without measurements, if all rows have at most this many bytes, each worker gets and adds all.
SMALL_BYTES = 256 << 10
#: A way later in the list is chosen only if it is faster by this fraction.
ALIKE = 0.05
#: The factor on the time of a schedule by messages: its messages go through the interpreter, which
#: the program needs too, but the program did nothing during the measurement.
MESSAGES = 1.2
#: With more workers than this there is no schedule with a message for each pair of workers.
MOST_PAIRS = 64
#: Waiting less than this many seconds is not worth starting early: a group of its own takes as much
#: time of the core, which is computing meanwhile.
CHEAP = 1e-3
#: The least seconds of a group that is agreed on, most of which is CPU time; and the factor by
#: which another way has to be faster than sockets to be worth it.
GROUP, MUCH = 3e-4, 2.0
#: The same for sums without agreement (`step_schedules`): a plan step and an operation.
BUCKET = 3e-4
#: Without agreement, waiting less than this many seconds is not worth starting early.
ALONE = 2e-3
#: The most buckets of a step, and the size of a bucket in bytes if nothing was measured.
MOST_BUCKETS, BUCKET_BYTES = 64, 4 << 20
#: Each block is a plan step and an operation on every worker; a ninth would hide 1.4 % more.
MOST_BLOCKS = 8
#: The table's row for sums by sockets without agreement. They need operations and a thread, but not
#: the interpreter.
COURIER = "courier"
#: The ways that only several workers have. One worker accepts their names, so that a job need not
#: change its settings to run alone.
OF_SEVERAL = frozenset({"lines", "chain", "ring", "tree", "direct", "hierarchical"})
#: Rules that leave the choice to the measurements.
IN_ORDER, ANY = "ranks", "any"


class Way(NamedTuple):
    """An all-reduce algorithm: by MPI's own collectives, or by the messages of a `schedule`.

    `in_order`: every element is summed in the order of ranks, so that its bits depend on nothing
    else.
    """

    name: str
    in_order: bool
    text: str
    schedule: Schedule | None = None


def ways_of(machines: Sequence[int], sockets: bool = False) -> dict[str, Way]:
    """The ways for workers on these machines, by name; those that keep the order come first.

    `machines` has the number of the machine of each rank. `sockets` says whether all workers
    are connected by them (`gemel.kvstore.sockets`). They come first among equally fast ways,
    because waiting for a socket leaves the core to others.
    """
    from gemel import topology  # it needs NumPy

    size = len(machines)
    found = [Way("lines", True, "by sockets: rank i sums piece i and sends it to all")]
    found = found if sockets else []
    found += [
        Way("gather", True, "every worker gets all arrays and sums them"),
        Way("pieces", True, "rank i sums piece i and sends it to all, by two calls of MPI"),
        Way("mpi", size < 3, "MPI's own all-reduce"),
    ]
    if size > 1:
        links = links_of(machines)
        made = [topology.chain(links), topology.ring(links), topology.tree(links, 4)]
        if size <= MOST_PAIRS:
            made.append(topology.pieces(links))
        groups = links.machines
        if len(groups) > 1 and len(groups[0]) > 1 and len(set(map(len, groups))) == 1:
            made.append(topology.hierarchical(links, "pieces", "pieces"))
        names = {"tree, 4 chunks": "tree", "pieces": "direct"}
        for schedule in made:
            name = names.get(schedule.name, schedule.name.partition(",")[0])
            text = f"the schedule {schedule.name!r}, by messages"
            found.append(Way(name, topology.keeps_order(schedule), text, schedule))
    found.sort(key=lambda way: not way.in_order)
    return {way.name: way for way in found}


def links_of(machines: Sequence[int]) -> Topology:
    """A topology whose GPUs are the ranks. Only distances matter; the speeds are made up."""
    kinds = sorted(set(machines))
    nodes = [Node(f"rank {rank}", "gpu", one) for rank, one in enumerate(machines)]
    nodes += [Node(f"machine {one}", "switch", one) for one in kinds]
    links = [Link(f"rank {rank}", f"machine {one}", 10.0) for rank, one in enumerate(machines)]
    if len(kinds) > 1:
        nodes.append(Node("network", "switch", -1))
        links += [Link(f"machine {one}", "network", 1.0) for one in kinds]
    return Topology("workers", nodes, links)


class Table:
    """The measured seconds of each way, by name: pairs (bytes, seconds) with growing sizes.

    `waiting` is the part of this time in which the core was free; by default all of it.
    """

    def __init__(
        self,
        measured: dict[str, list[tuple[float, float]]] | None = None,
        waiting: dict[str, list[tuple[float, float]]] | None = None,
    ) -> None:
        self.measured = measured or {}
        self.waited = self.measured if waiting is None else waiting
        #: A cache of predicted waiting times, by rule and number of bytes.
        self.follows: dict[tuple[str, float], float | None] = {}

    def seconds(self, name: str, nbytes: float) -> float | None:
        """The expected time of a way: linear between the measured sizes and beyond them."""
        return self._of(self.measured, name, nbytes)

    def waiting(self, name: str, nbytes: float) -> float | None:
        """The part of that time in which the core is free to compute."""
        return self._of(self.waited, name, nbytes)

    @staticmethod
    def _of(
        measured: dict[str, list[tuple[float, float]]], name: str, nbytes: float
    ) -> float | None:
        points = measured.get(name)
        if not points:
            return None
        if nbytes <= points[0][0] or len(points) == 1:
            size, seconds = points[0]
            return seconds * max(1.0, nbytes / size)
        after = next((n for n in range(1, len(points)) if points[n][0] >= nbytes), len(points) - 1)
        (low, begin), (high, end) = points[after - 1], points[after]
        slope = max((end - begin) / (high - low), 0.0)
        if nbytes > high:  # even if the clock was noisy
            return end + max(slope, end / high / 2) * (nbytes - high)
        return begin + slope * (nbytes - low)

    def reach(self, name: str) -> float:
        """The largest size a way was tried with; 0 if it was not tried."""
        points = self.measured.get(name)
        return points[-1][0] if points else 0.0


class Ways:
    """The ways of a job's workers, the rule of each store, and the measurements."""

    def __init__(self, machines: Sequence[int], sockets: bool = False) -> None:
        self.machines = tuple(machines)
        self.known = ways_of(machines, sockets)
        self.table = Table()
        self.seconds = 0.0
        self._rules: dict[int, str] = {}

    def check(self, rule: str) -> str:
        """Return a valid rule. Raises `UnknownNameError` for an unknown way, or `WorkersError`."""
        if not isinstance(rule, str):
            raise self._unknown(rule)
        if rule not in (IN_ORDER, ANY):
            self._steps(rule)
        return rule

    def set_rule(self, store: int, rule: str) -> None:
        """Set the rule of a store."""
        self._rules[store] = self.check(rule)

    def rule(self, store: int) -> str:
        """The rule of a store."""
        return self._rules.get(store, IN_ORDER)

    def group(self, request: Request) -> str:
        """A text that is equal for requests that may be sent together: the name of their way, or
        empty.

        In the order of ranks all ways give the same bits, so the way is chosen by the size of the
        whole group. With other rules, the way depends on the size of the array, because its bits
        must not depend on what is sent with it. MPI's own all-reduce adds in an order that depends
        on the length, so an array that uses it is sent alone.
        """
        rule = self.rule(request.store)
        if request.kind != "sum" or rule == IN_ORDER:
            return ""
        name = self.choose(rule, request.bytes)
        return f"{name} {request.place}" if name == "mpi" else name

    def way(self, group: str, nbytes: int) -> Way:
        """The way for a group of requests that have this many bytes together."""
        return self.known[group.partition(" ")[0] or self.choose(IN_ORDER, nbytes)]

    def choose(self, rule: str, nbytes: float) -> str:
        """The way for this many bytes under a rule."""
        if rule not in (IN_ORDER, ANY):
            return next(name for most, name in self._steps(rule) if nbytes <= most)
        allowed = [name for name, way in self.known.items() if way.in_order or rule == ANY]
        # If some ways were tried with such a size, those that were not are left out.
        least = min(nbytes, max(self.table.reach(name) for name in allowed))
        costs = [
            (name, seconds * (MESSAGES if self.known[name].schedule else 1.0))
            for name in allowed
            if (seconds := self.table.seconds(name, nbytes)) is not None
            and self.table.reach(name) >= least
        ]
        if not costs:
            size = len(self.machines)
            return "gather" if size <= 2 or nbytes * size <= SMALL_BYTES else "pieces"
        limit = min(seconds for _, seconds in costs) * (1 + ALIKE)
        return next(name for name, seconds in costs if seconds <= limit)

    def waiting(self, rule: str, nbytes: float) -> float | None:
        """Seconds of waiting for this many bytes under a rule; None without measurements."""
        follows = self.table.follows
        if (rule, nbytes) not in follows:
            follows[rule, nbytes] = self.table.waiting(self.choose(rule, nbytes), nbytes)
        return follows[rule, nbytes]

    def blocks(self, rule: str, nbytes: float) -> int:
        """The number of blocks, computed one after another, into which to split this many bytes.

        The waiting of all blocks but the last is hidden behind the computation of the next ones,
        and each block costs a small group. With n blocks, t seconds of waiting and s seconds per
        block, the cost is t/n + n s, which is least for n = sqrt(t/s). The result is 1 if t is too
        small, if nothing was measured, or if splitting could change the bits.
        """
        alone = self.bucket(rule, nbytes) is not None
        way = self._carrier() if alone else self.choose(rule, nbytes)
        whole, small = self.table.waiting(way, nbytes), self.table.seconds(way, 1)
        if rule != IN_ORDER or whole is None or small is None:
            return 1
        whole -= self.table.waiting(way, 1) or 0.0  # each block waits for this, however small it is
        if whole < (ALONE if alone else CHEAP):
            return 1
        each = BUCKET if alone or way == "lines" else max(small, GROUP)
        return max(1, min(MOST_BLOCKS, round(math.sqrt(whole / each))))

    def bucket(self, rule: str, nbytes: float) -> float | None:
        """The size of a bucket for a step of this many bytes (`gemel.kvstore.step_schedules`).

        None if the sums have to be agreed on, because another way is so much faster than sockets
        that the agreement pays.
        """
        if "lines" not in self.known or rule not in (IN_ORDER, "lines"):
            return None
        carrier = self._carrier()
        tried = min(nbytes, self.table.reach(carrier))
        taken, best = (self.table.seconds(n, tried) for n in (carrier, self.choose(rule, tried)))
        if taken is None or best is None:
            return None if self.table.measured else float(BUCKET_BYTES)
        if rule == IN_ORDER and taken > MUCH * best + GROUP:
            return None
        whole = self.table.waiting(carrier, nbytes) or 0.0
        if whole < ALONE:
            return math.inf
        return nbytes / max(1, min(MOST_BUCKETS, round(math.sqrt(whole / BUCKET))))

    def _carrier(self) -> str:
        """The table's row for sums by the courier."""
        return COURIER if COURIER in self.table.measured else "lines"

    def _steps(self, rule: str) -> list[tuple[float, str]]:
        """Parse `gather:65536,ring` to pairs of a largest number of bytes and a way."""
        found = []
        parts = rule.split(",")
        for number, part in enumerate(parts):
            name, _, limit = part.strip().partition(":")
            if name in (IN_ORDER, ANY):
                raise WorkersError(
                    f"kvstore: the schedule {rule!r}: {name!r} chooses a way by itself; give it "
                    "alone, or ways, as in gather:65536,ring"
                )
            if name in OF_SEVERAL and len(self.machines) == 1:
                name = "gather"  # nothing is sent
            if name not in self.known:
                raise self._unknown(name)
            if (number < len(parts) - 1) != limit.isdecimal():
                raise WorkersError(
                    f"kvstore: the schedule {rule!r}: every way but the last needs the largest "
                    "number of bytes it is used for, as in gather:65536,ring"
                )
            found.append((float(limit) if limit else float("inf"), name))
        return found

    def _unknown(self, name: object) -> UnknownNameError:
        others = OF_SEVERAL if len(self.machines) == 1 else ()
        return unknown_name("schedule", name, (IN_ORDER, ANY, *self.known, *others))

    def repeatable(self, rule: str) -> str:
        """A rule that makes the same choices as this one, even if other times are measured."""
        steps: list[tuple[int, str]] = []
        for power in range(8, 31):
            name = self.choose(rule, 2**power)
            if steps and steps[-1][1] == name:
                steps.pop()
            steps.append((2**power, name))
        parts = [f"{name}:{size}" for size, name in steps[:-1]]
        return ",".join([*parts, steps[-1][1]])

    def explain(self, rule: str, sizes: Sequence[float] = ()) -> str:
        """A report: the measurements, the choice for each size under a rule, the expected times.

        A way that was not tried with a size, while others were, is shown with a dash.
        """
        from gemel.topology.explaining import table  # they need NumPy
        from gemel.topology.units import show_bytes, show_seconds

        measured = {size for points in self.table.measured.values() for size, _ in points}
        most = max(measured, default=0.0)
        shown = sorted(set(sizes) or measured or {4096.0, float(1 << 20)})
        rows = [("way", "order of ranks", *map(show_bytes, shown), "what it is")]
        texts = {
            name: ("kept" if one.in_order else "-", one.text) for name, one in self.known.items()
        }
        if COURIER in self.table.measured:
            texts[COURIER] = "kept", "by sockets, for sums that need no agreement"
        for name, (order, text) in texts.items():
            tried = self.table.reach(name)
            times = [
                self.table.seconds(name, size) if tried >= min(size, most) else None
                for size in shown
            ]
            cells = ["-" if seconds is None else show_seconds(seconds) for seconds in times]
            rows.append((name, order, *cells, text))
        chosen = [self.choose(rule, size) for size in shown]
        rows.append((f"chosen by {rule!r}", "", *chosen, ""))
        blocks = [str(self.blocks(rule, size)) for size in shown]
        rows.append(("blocks of rows", "", *blocks, "in which a gradient of a product is sent"))
        count, places = len(self.machines), len(set(self.machines))
        plural = ["" if number == 1 else "s" for number in (count, places)]
        head = f"{count} worker{plural[0]} on {places} machine{plural[1]}"
        how = f"measured in {show_seconds(self.seconds)}" if measured else "nothing was measured"
        return f"{head}; {how}\n\n{table(rows)}\n\n{self._promise(rule)}"

    def _promise(self, rule: str) -> str:
        """Whether sums have the same bits in each run, and why these ways were chosen."""
        if rule == IN_ORDER:
            return (
                "The fastest of the ways that keep the order of ranks: sums have the same bits in "
                "every run, and those of the same number of devices in one process."
            )
        if rule == ANY:
            return (
                "The fastest of all ways. Another run may measure other times and get other bits; "
                f"to repeat this run's bits: schedule {self.repeatable(rule)}"
            )
        return "As set: sums have the same bits in every run of the same number of workers."


__all__ = ["ANY", "IN_ORDER", "Table", "Way", "Ways", "links_of", "ways_of"]
