"""Operations by time, as a table."""

from __future__ import annotations

from typing import Any, NamedTuple

from gemel.errors import unknown_name
from gemel.profiler.records import Trace, device_name, kibibytes


class Row(NamedTuple):
    """All operations of one name on one device; times in microseconds."""

    name: str
    device: str
    times: int
    total: float
    minimum: float
    mean: float
    maximum: float
    bytes: int
    share: float  # fraction of the time of all operations


ORDERS = ("total", "times", "mean", "maximum", "minimum", "bytes", "name")
#: MXNet's names for some of them.
MXNETS = {"count": "times", "avg": "mean", "max": "maximum", "min": "minimum"}


def rows(trace: Trace, sort_by: str = "total", ascending: bool | None = None) -> list[Row]:
    """One row per name and device. Raises `UnknownNameError` for an unknown sort order.

    By default, names ascend and everything else descends; `ascending` overrides this.
    """
    sort_by = MXNETS.get(sort_by, sort_by) if isinstance(sort_by, str) else sort_by
    if sort_by not in ORDERS:
        raise unknown_name("order of the table", sort_by, (*ORDERS, *MXNETS))
    if ascending is None:
        ascending = sort_by == "name"
    groups: dict[tuple[str, int], list[Any]] = {}
    for operation in trace.finished():
        groups.setdefault((operation.name, operation.device), []).append(operation)
    everything = sum(o.duration for o in trace.finished()) or 1
    found = []
    for (name, device), members in groups.items():
        spans = [o.duration / 1000 for o in members]
        total = sum(spans)
        found.append(
            Row(
                name,
                device_name(device),
                len(members),
                total,
                min(spans),
                total / len(members),
                max(spans),
                sum(o.bytes for o in members),
                total * 1000 / everything,
            )
        )
    return sorted(found, key=lambda row: getattr(row, sort_by), reverse=not ascending)


def text(trace: Trace, sort_by: str = "total", ascending: bool | None = None) -> str:
    """The table as text, with the memory in use and the depth of the queue."""
    header = (
        "operation",
        "device",
        "count",
        "total ms",
        "min us",
        "mean us",
        "max us",
        "bytes",
        "",
    )
    lines = [header]
    for row in rows(trace, sort_by, ascending):
        lines.append(
            (
                row.name,
                row.device,
                str(row.times),
                f"{row.total / 1000:.3f}",
                f"{row.minimum:.1f}",
                f"{row.mean:.1f}",
                f"{row.maximum:.1f}",
                kibibytes(row.bytes),
                f"{row.share:.1%}",
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    shown = []
    for line in lines:
        left = [cell.ljust(width) for cell, width in zip(line[:2], widths[:2], strict=True)]
        right = [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
        shown.append("  ".join([*left, *right]).rstrip())
    return "\n".join([*shown, "", *_summary(trace)])


def _summary(trace: Trace) -> list[str]:
    peak = max((s.bytes for s in trace.samples), default=0)
    depth = max((s.pending for s in trace.samples), default=0)
    lines = [f"memory held: at most {kibibytes(peak)}; queue: at most {depth} operations"]
    if trace.dropped:
        lines.append(f"{trace.dropped} operations were not recorded: raise `capacity`")
    return lines


__all__ = ["Row", "rows", "text"]
