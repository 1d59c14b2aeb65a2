"""The inside of compiled programs: the steps of their plans by time."""

from __future__ import annotations

from typing import NamedTuple

from gemel.profiler.records import Trace


class StepRow(NamedTuple):
    """All runs of the steps of a program that compute the same; times in microseconds."""

    program: str
    label: str  # what it computes: operations, and the specs of the results
    times: int  # the runs of all these steps
    total: float
    longest: float
    share: float  # fraction of the time of all of this program's steps

    @property
    def mean(self) -> float:
        """The mean microseconds of a run."""
        return self.total / self.times


class StepReport(list[StepRow]):
    """Steps of programs, the longest total first; prints as a table."""

    def __str__(self) -> str:
        if not self:
            return "no program was run"
        lines = [("program", "count", "total ms", "mean us", "max us", "", "step")]
        for row in self:
            times = f"{row.total / 1000:.3f}", f"{row.mean:.1f}", f"{row.longest:.1f}"
            lines.append((row.program, str(row.times), *times, f"{row.share:.1%}", row.label))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = []
        for program, *figures, label in lines:
            cells = [cell.rjust(width) for cell, width in zip(figures, widths[1:-1], strict=True)]
            shown.append("  ".join([program.ljust(widths[0]), *cells, label]))
        return "\n".join(shown)


def steps(trace: Trace) -> StepReport:
    """The report on a trace. Steps of a program that compute the same form one row."""
    names = {operation.number: operation.name for operation in trace.operations}
    groups: dict[tuple[str, str], list[float]] = {}
    for step in trace.steps:
        key = names.get(step.operation, "?"), step.label
        groups.setdefault(key, []).append(step.duration / 1000)
    whole: dict[str, float] = {}
    for (program, _), spans in groups.items():
        whole[program] = whole.get(program, 0.0) + sum(spans)
    found = [
        StepRow(program, label, len(spans), sum(spans), max(spans), sum(spans) / whole[program])
        for (program, label), spans in groups.items()
    ]
    return StepReport(sorted(found, key=lambda row: -row.total))


__all__ = ["StepReport", "StepRow", "steps"]
