"""Predictions beside measurements, for the examples on asynchronous computation."""

from __future__ import annotations

import argparse
import sys
from typing import NamedTuple


class Row(NamedTuple):
    """One quantity: what a model of the engine says, and what was measured."""

    name: str
    predicted: float | None
    measured: float
    unit: str = "ms"

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.measured / self.predicted if self.predicted else None


def introduce(page: str | None, *flags: str) -> None:
    """What an example does with the command line: `--help` says what it shows, and its flags."""
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=page, formatter_class=shown)
    for flag in flags:
        parser.add_argument(flag, action="store_true", help="short rounds")
    parser.parse_args()


def show(title: str, rows: list[Row]) -> None:
    """Print a table of rows."""
    width = max(len(row.name) for row in rows)
    print(f"\n{title}")
    print(f"  {'':{width}}  predicted   measured")
    for row in rows:
        said = "" if row.predicted is None else f"{row.predicted:.4g}"
        ratio = "" if row.ratio is None else f"  x{row.ratio:.2f}"
        print(f"  {row.name:{width}}  {said:>9}  {row.measured:>9.4g} {row.unit}{ratio}")


def check(condition: bool, expectation: str) -> None:
    """Say whether an expectation was met; the process ends with 1 when one was not."""
    print(f"  {'as expected' if condition else 'NOT AS EXPECTED'}: {expectation}")
    if not condition:
        _missed.append(expectation)


_missed: list[str] = []


def finish() -> None:
    """The end of an example."""
    if _missed:
        sys.exit(1)
