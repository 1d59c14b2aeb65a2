"""`operations`: operations of networks and their gradients, compiled, as ratios to torch."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.driver import agree, has_torch, in_turns
from benchmarks.table import beside_torch, cores, print_rows

LIST = Path(__file__).with_name("operations.txt")
LIBRARIES = ("gemel", "torch")
#: The tolerance of results: float32 sums depend on the order in which they are added up.
TOLERANCE = 2e-3


class Input(NamedTuple):
    """An input array: float32, or whole numbers below `limit` if that is not 0."""

    name: str
    shape: tuple[int, ...]
    limit: int


class Operation(NamedTuple):
    """A line of the list. `ways` has the expression for each library."""

    name: str
    inputs: list[Input]
    ways: dict[str, str]
    with_gradient: bool


def operations() -> list[Operation]:
    """All operations, in the order of the list."""
    found = []
    for line in LIST.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name, inputs, *ways = (part.strip() for part in line.split("|"))
        given = [_input(each) for each in inputs.split()]
        expressions = dict(zip(LIBRARIES, ways, strict=True))
        found.append(Operation(name.lstrip("- "), given, expressions, name[0] != "-"))
    return found


def _input(text: str) -> Input:
    name, _, rest = text.partition("=")
    shape, _, limit = rest.partition("<")
    return Input(name, tuple(map(int, shape.split("x"))), int(limit or 0))


def run(rounds: int, seconds: float, processor: bool) -> bool:
    """Measure and print everything. Returns whether a result of gemel was wrong."""
    if not has_torch("operations"):
        return False
    failed = False
    for threads in (1,) if processor else (1, 2):
        given = dict.fromkeys(LIBRARIES, (threads, seconds, int(processor)))
        answers = in_turns("benchmarks.operations_worker", given, threads, rounds)
        failed |= _compare(threads, answers)
    return failed


#: {library: [{operation: [[us, figures], the same with gradients]}]}
Answers = dict[str, list[dict[str, list[list[float]]]]]


def _compare(threads: int, answers: Answers) -> bool:
    """Print a table. Returns whether a result of gemel differs from torch's."""
    if not all(answers.values()):
        return True
    rows, ratios, failed = [], [], False
    for operation in operations():
        row = [operation.name]
        for way in range(1 + operation.with_gradient):
            ours, theirs = ([a[operation.name][way] for a in answers[n]] for n in LIBRARIES)
            same = all(agree(each[1:], theirs[0][1:], TOLERANCE) for each in ours)
            failed |= not same
            own, other = (median(each[0] for each in found) for found in (ours, theirs))
            ratios.append(own / other)
            row += [f"{own:.4g}", f"{own / other:.2f}" + "!" * (not same)]
        rows.append(row + [""] * (5 - len(row)))
    print(f"## operations, {cores(threads)}\n")
    print_rows(["", "us", "x torch", "with gradients, us", "x torch"], rows)
    print(f"{beside_torch(ratios)}\n")
    return failed


__all__ = ["Operation", "operations", "run"]
