"""`ufuncs`: array functions run imperatively, as ratios to NumPy; also those of torch and JAX."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.driver import agree, importable, in_turns, interpreter_of
from benchmarks.table import cores, print_rows

LIST = Path(__file__).with_name("ufuncs.txt")
SIZES = (1_000, 1_000_000)
LIBRARIES = ("numpy", "gemel", "torch", "jax")
#: The tolerance of results: float32 sums depend on the order in which they are added up.
TOLERANCE = 1e-3


class Function(NamedTuple):
    """A line of the list. `ways` has the expressions by library; missing ones equal NumPy's."""

    name: str
    ways: dict[str, str]

    def written(self, library: str) -> str:
        """The expression for a library."""
        return self.ways.get(library) or self.ways["numpy"]


def functions() -> list[Function]:
    """All functions, in the order of the list."""
    found = []
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            name, *ways = (part.strip() for part in line.split("|"))
            found.append(Function(name, dict(zip(("numpy", "torch", "jax"), ways, strict=False))))
    return found


def compare(size: int, threads: int, answers: dict[str, list[Any]]) -> tuple[list[float], bool]:
    """Print a table. Returns gemel's ratios to NumPy, and whether its results were right."""
    rows, ratios, sound = [], [], True
    libraries = [library for library, found in answers.items() if found]
    for function in functions():
        right = answers["numpy"][0][function.name][1]
        row, base = [function.name], 0.0
        for library in libraries:
            found = [answer[function.name] for answer in answers[library]]
            us = median(each[0] for each in found)
            base = base or us
            same = all(agree(each[1], right, TOLERANCE) for each in found)
            same |= library == "jax" and function.name == "astype"  # JAX has no float64
            sound &= same or library != "gemel"
            row.append(
                (f"{us:.4g}" if library == "numpy" else f"{us / base:.2f}") + "!" * (not same)
            )
            if library == "gemel":
                ratios.append(us / base)
        rows.append(row)
    print(f"## functions of {size:,} float32, {cores(threads)}\n")
    print_rows(["", "numpy, us", *(f"{library} x" for library in libraries[1:])], rows)
    return ratios, sound


def run(rounds: int, quick: bool, only: str | None) -> bool:
    """Measure and print everything. Returns whether a result of gemel was wrong."""
    wanted = ("numpy", *only.split(",")) if only else LIBRARIES
    libraries = [
        name for name in LIBRARIES if name in wanted and importable(interpreter_of(name), (name,))
    ]
    failed = False
    for threads in (1, 2):
        together: list[float] = []
        for size in SIZES:
            given = dict.fromkeys(libraries, (size, 0.005 if quick else 0.02))
            answers = in_turns("benchmarks.ufuncs_worker", given, threads, rounds)
            if not answers["numpy"] or not answers.get("gemel"):
                return True
            ratios, sound = compare(size, threads, answers)
            failed |= not sound
            together += ratios
        over = sum(ratio > 1.5 for ratio in together)
        print(
            f"gemel to NumPy, {threads} core{'s' * (threads > 1)}: median {median(together):.2f}, "
            f"largest {max(together):.2f}, {over} of {len(together)} above 1.5\n"
        )
    sys.stdout.flush()
    return failed


__all__ = ["Function", "functions", "run"]
