"""Tables of results."""

from __future__ import annotations

from statistics import median

from benchmarks.driver import Result


def best_peer(results: list[Result]) -> Result | None:
    """The fastest contender that is not gemel."""
    peers = [result for result in results if not result.ours and not result.failure]
    return min(peers, key=lambda result: result.done_us, default=None)


def print_rows(header: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table, its first column aligned left, the others right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    rule = ["-" * widths[0]] + ["-" * (width - 1) + ":" for width in widths[1:]]
    for row in [header, rule, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("| " + " | ".join(cells) + " |")
    print()


def cores(threads: int) -> str:
    """The number of cores that these threads run on, as text."""
    return "1 core" if threads == 1 else f"{threads} cores"


def beside_torch(ratios: list[float], what: str = "time") -> str:
    """The median of ratios to torch's time, and how many of them are above 1, as text."""
    above = sum(each > 1 for each in ratios)
    return f"median {median(ratios):.2f} of torch's {what}; {above} of {len(ratios)} above 1"


def ratio(value: float, base: float | None) -> str:
    """`value` divided by `base`, as text."""
    return "" if base is None or base == 0 else f"{value / base:.2f}"


def print_results(
    title: str,
    results: list[Result],
    unit: str,
    scale: float,
    floor_us: float | None = None,
    issue: bool = False,
) -> None:
    """Print one workload. `scale` turns microseconds per call into `unit`."""
    print(f"## {title}\n")
    peer = best_peer(results)
    header = ["contender", unit, "range"]
    header += [f"issue, {unit}"] if issue else []
    header += ["x best peer"]
    header += ["x floor"] if floor_us is not None else []
    rows = []
    failed = [result for result in results if result.failure]
    for result in sorted((r for r in results if not r.failure), key=lambda r: r.done_us):
        low, high = min(result.done) * scale, max(result.done) * scale
        row = [result.name, f"{result.done_us * scale:.4g}", f"{low:.3g}-{high:.3g}"]
        row += [f"{result.issue_us * scale:.3g}"] if issue else []
        row += [ratio(result.done_us, peer.done_us if peer else None)]
        row += [ratio(result.done_us, floor_us)] if floor_us is not None else []
        rows.append(row)
    for result in failed:
        rows.append([result.name, "FAILED"] + [""] * (len(header) - 2))
    if floor_us is not None:
        rows.append(["floor", f"{floor_us * scale:.4g}"] + [""] * (len(header) - 2))
    print_rows(header, rows)
    for result in failed:
        print(f"{result.name} FAILED: {result.failure}\n")
