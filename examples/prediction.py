"""Helpers of the examples: tables of predictions next to measurements, and checks."""

from __future__ import annotations

import argparse
import sys
from typing import NamedTuple


class Row(NamedTuple):
    """One quantity: its predicted value, if there is a prediction, and the measured value."""

    name: str
    predicted: float | None
    measured: float
    unit: str = "ms"

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.measured / self.predicted if self.predicted else None


def introduce(page: str | None, *flags: str) -> None:
    """Parse the command line. `--help` prints `page`, the example's docstring, and its flags."""
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=page, formatter_class=shown)
    for flag in flags:
        parser.add_argument(
            flag, action="store_true", help="a smaller version, to see that it runs"
        )
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
    """Print whether an expectation was met. `finish` exits with 1 if one was not."""
    print(f"  {'as expected' if condition else 'NOT AS EXPECTED'}: {expectation}")
    if not condition:
        _missed.append(expectation)


_missed: list[str] = []


def finish() -> None:
    """End the example: exit with 1 if an expectation was not met."""
    if _missed:
        sys.exit(1)
