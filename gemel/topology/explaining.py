"""The planner's report: a table, the reasons, and drawings of rings and trees, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gemel.links import Topology
from gemel.topology.estimate import Estimate
from gemel.topology.routes import Routes
from gemel.topology.schedule import Schedule
from gemel.topology.simulator import simulate
from gemel.topology.units import show_bytes, show_seconds

#: The sizes shown by default: 1 KB to 256 MB.
SIZES = tuple(number * unit for unit in (1e3, 1e6) for number in (1, 4, 16, 64, 256))


def explain(
    topology: Topology,
    estimates: Sequence[Estimate],
    best: Callable[[float], Estimate],
    ranges: Sequence[tuple[float, Schedule]],
    sizes: Sequence[float],
) -> str:
    """For each size the chosen schedule, what takes its time, and the next best; then drawings."""
    rows: list[tuple[str, ...]] = [
        ("bytes", "schedule", "predicted", "GB/s", "rounds", "messages", "why", "next best")
    ]
    chosen: dict[str, Schedule] = {}
    for size in sizes:
        found = best(size)
        chosen[found.schedule.name] = found.schedule
        rows.append(_row(found, size, _second(estimates, found, size)))
    parts = [str(topology), table(rows), _said(ranges)]
    parts += [f"{name}:\n{_indented(s.drawing)}" for name, s in chosen.items() if s.drawing]
    return "\n\n".join(parts)


def compare(estimates: Sequence[Estimate], routes: Routes, nbytes: float) -> str:
    """All schedules for one size: predicted and simulated times."""
    rows = [("schedule", "predicted", "simulated", "rounds", "messages", "latency", "busiest link")]
    lines = []
    for estimate in estimates:
        cost, found = estimate.cost(nbytes), estimate.schedule
        real = simulate(found, routes, nbytes).seconds
        shown = (show_seconds(cost.seconds), show_seconds(real), str(estimate.rounds))
        share = f"{_percent(cost.latency, cost.seconds)}"
        lines.append((real, (found.name, *shown, f"{len(found)}", share, cost.busiest)))
    rows += [row for _, row in sorted(lines)]
    return table(rows)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as text with aligned columns; numbers are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = [all(map(_is_number, column[1:])) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, right, strict=True)
        lines.append("  ".join(f"{c:>{w}}" if r else f"{c:<{w}}" for c, w, r in cells).rstrip())
    return "\n".join(lines)


def _is_number(cell: str) -> bool:
    """Whether a cell is a number, perhaps with a unit, or the sign for a missing number."""
    return cell == "-" or (cell[:1].isdigit() and len(cell.split()) <= 2)


def _row(estimate: Estimate, size: float, second: tuple[str, float] | None) -> tuple[str, ...]:
    cost, schedule = estimate.cost(size), estimate.schedule
    why = f"{_percent(cost.latency, cost.seconds)} latency, most bytes over {cost.busiest}"
    after = f"{second[0]}: {second[1]:.2f} times" if second else "none"
    rate = f"{size / cost.seconds / 1e9:.2f}" if cost.seconds else "-"
    counts = f"{estimate.rounds}", f"{len(schedule)}"
    shown = show_seconds(cost.seconds)
    return show_bytes(size), schedule.name, shown, rate, *counts, why if cost.busiest else "", after


def _second(
    estimates: Sequence[Estimate], chosen: Estimate, size: float
) -> tuple[str, float] | None:
    """The best of the other schedules, and the ratio of its time to the chosen one's."""
    others = [(e.seconds(size), e.schedule.name) for e in estimates if e is not chosen]
    mine = chosen.seconds(size)
    if not others or not mine:
        return None
    seconds, name = min(others)
    return name, seconds / mine


def _said(ranges: Sequence[tuple[float, Schedule]]) -> str:
    """Format ranges as `up to 70 KB: cpu; from there on: ring`."""
    names = [schedule.name for _, schedule in ranges]
    if len(names) == 1:
        return f"{names[0]} is the fastest for all of these sizes."
    ends = [f"up to {show_bytes(size)}" for size, _ in ranges[1:]] + ["beyond"]
    return "; ".join(f"{end}: {name}" for end, name in zip(ends, names, strict=True)) + "."


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())
