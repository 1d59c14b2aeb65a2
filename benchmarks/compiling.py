"""`compile`: the time to the first result, with an empty and with a full cache on disk."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.contenders import BY_NAME
from benchmarks.driver import (
    Answer,
    agree,
    answer_of,
    contenders_of,
    environment_of,
    interpreter_of,
)
from benchmarks.table import print_rows, ratio
from benchmarks.workloads import Workload

NORMS = Workload("norms", sizes=(64,), batch=32, threads=2, tolerance=2e-2)
CHAIN = Workload("chain", sizes=(64,), threads=2)
PICTURE = Workload("picture", sizes=(3, 224, 224), threads=2, count=1, tolerance=1e-3)

#: The cases: their titles and workloads.
CASES: tuple[tuple[str, Workload], ...] = (
    ("one operation", Workload("op", sizes=(64, 64), threads=2)),
    ("mlp 512-256-128-2", Workload("net", sizes=(512, 256, 128, 2), threads=2)),
    *((f"{n} recorded, backward", CHAIN._replace(count=n)) for n in (100, 1000, 10000)),
    *((f"{n} x Dense, BatchNorm, trained", NORMS._replace(count=n)) for n in (10, 40, 160)),
    ("rnn over 40 lengths", Workload("rnn", sizes=(16, 32), batch=8, threads=2, count=40)),
    ("ResNet-18, one picture", PICTURE),
    ("40 batch sizes", Workload("batches", sizes=(64, 128, 10), threads=2, count=40)),
)
#: Pairs of cases, and how many times as much work the second is as the first.
GROWTHS = ((3, 4, 10), (5, 7, 16))


class Firsts(NamedTuple):
    """The times that the processes of one contender measured, in milliseconds.

    `cold` is the first result with an empty cache on disk, `cached` with a full one, and `again` is
    the median of later results.
    """

    name: str
    cold: list[float]
    cached: list[float]
    again: list[float]
    kernels: int | None = None
    values: tuple[float, ...] = ()
    failure: str = ""


def start(name: str, workload: Workload, folder: Path) -> Answer | str:
    """Run a process with its caches in `folder`. Returns its answer, or why there is none."""
    environment = {
        **environment_of(workload.threads),
        "GEMEL_CACHE": str(folder / "gemel"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [interpreter_of(name), "-m", "benchmarks.first", name]
    return answer_of([*command, json.dumps(workload._asdict())], environment)


def add_round(found: Firsts, workload: Workload) -> Firsts:
    """Add the times of two more processes. The second uses the caches that the first filled."""
    with tempfile.TemporaryDirectory() as folder:
        for kept in (False, True):
            answer = start(found.name, workload, Path(folder))
            if isinstance(answer, str):
                return found._replace(failure=answer)
            values = tuple(map(float, answer["values"]))
            if found.values and not agree(list(values), list(found.values), workload.tolerance):
                return found._replace(failure="results differ from process to process")
            found = found._replace(values=values, again=[*found.again, median(answer["ms"][1:])])
            if kept:
                found = found._replace(cached=[*found.cached, answer["ms"][0]])
            else:
                found = found._replace(
                    cold=[*found.cold, answer["ms"][0]], kernels=answer["kernels"]
                )
    return found


def measure(workload: Workload, names: list[str], rounds: int) -> list[Firsts]:
    """Measure all contenders in turn, and mark those whose results are wrong.

    Results are compared with those of a peer or, if all peers failed or are missing, of gemel.
    """
    results = {name: Firsts(name, [], [], []) for name in names}
    for _ in range(rounds):
        for name, found in results.items():
            if not found.failure:
                results[name] = add_round(found, workload)
    sound = [r for r in results.values() if not r.failure]
    reference = min(sound, key=lambda r: BY_NAME[r.name].ours, default=None)
    checked = []
    for found in results.values():
        right = [] if reference is None else list(reference.values)
        if not found.failure and not agree(list(found.values), right, workload.tolerance):
            found = found._replace(failure=f"{list(found.values)} differ from {right}")
        checked.append(found)
    return checked


def print_case(title: str, results: list[Firsts]) -> None:
    """Print one case: medians in milliseconds."""
    print(f"## {title}\n")
    peers = [r for r in results if not BY_NAME[r.name].ours and not r.failure]
    best = min((median(r.cached) for r in peers), default=None)
    rows = []
    for found in results:
        if found.failure:
            rows.append([found.name, "FAILED", "", "", "", ""])
            continue
        figures = [median(times) for times in (found.cold, found.cached, found.again)]
        kernels = "" if found.kernels is None else str(found.kernels)
        texts = [f"{figure:.4g}" for figure in figures]
        rows.append([found.name, *texts, kernels, ratio(figures[1], best)])
    header = ["contender", "first, ms", "cached", "again", "kernels", "cached x best peer"]
    print_rows(header, rows)
    for found in results:
        if found.failure:
            print(f"{found.name} FAILED: {found.failure}\n")


def print_growths(results: list[list[Firsts]]) -> None:
    """Print how many times as long the larger of two cases takes, for gemel only."""
    rows = []
    for less, more, times in GROWTHS:
        for a in results[less]:
            b = next((r for r in results[more] if r.name == a.name), a)
            if a.failure or b.failure or not BY_NAME[a.name].ours:
                continue
            pairs = ((a.cold, b.cold), (a.cached, b.cached), (a.again, b.again))
            grown = [f"{median(after) / median(before):.1f}" for before, after in pairs]
            title = f"{a.name}: {CASES[more][0]} / {CASES[less][0]}"
            rows.append([title, f"{times}", *grown])
    print("## growth\n")
    print_rows(["case", "work", "first", "cached", "again"], rows)


def run(rounds: int, quick: bool, only: str | None) -> bool:
    """Measure and print all cases. Returns whether gemel failed in one."""
    found: list[list[Firsts]] = []
    for title, workload in CASES:
        names = contenders_of(workload.kind, quick)
        if only:
            names = [name for name in names if name in only.split(",")]
        found.append(measure(workload, names, rounds))
        print_case(title, found[-1])
    print_growths(found)
    return any(r.failure and BY_NAME[r.name].ours for results in found for r in results)
