"""`gpu`: operations and networks on a real GPU, beside torch, CuPy and JAX.

All libraries are in one process (`gpu_worker`), which takes turns between them. `gpu.txt` says what
is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.driver import peers_interpreter
from benchmarks.machine import ROOT
from benchmarks.table import print_rows

LIST = Path(__file__).with_name("gpu.txt")
LIBRARIES = ("gemel", "torch", "cupy", "jax")
#: A library that takes no part in a workload.
ABSENT = "-"
#: Results may differ by this much: float32 sums depend on the order in which they are added up.
TOLERANCE = 2e-3
#: float32.
ITEM_BYTES = 4
#: What the worker finds in its environment: a real GPU, no TF32, and memory left for each library.
SETTINGS = {
    "GEMEL_SIMULATED_GPUS": "0",
    "NVIDIA_TF32_OVERRIDE": "0",
    "CUPY_TF32": "0",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}


class Workload(NamedTuple):
    """A line of the list. `ways` has an expression for each library that takes part.

    `bytes` are those that a call reads and writes at least; `flops` those of a product. 0 is not
    known.
    """

    name: str
    inputs: dict[str, tuple[int, ...]]
    ways: dict[str, str]
    bytes: int = 0
    flops: int = 0


class Measured(NamedTuple):
    """The microseconds of a call in each round, by library, and why libraries have failed."""

    name: str
    us: dict[str, list[float]]
    failures: dict[str, str]

    def us_of(self, library: str | None) -> float | None:
        """The median over the rounds."""
        found = self.us.get(library or "")
        return median(found) if found else None

    @property
    def best_peer(self) -> str | None:
        """The fastest library that is not gemel."""
        peers = [name for name in self.us if name != "gemel"]
        return min(peers, key=lambda name: median(self.us[name]), default=None)


def workloads() -> list[Workload]:
    """All workloads, in the order of the list."""
    lines = LIST.read_text().splitlines()
    return [_workload(line) for line in lines if line and not line.startswith("#")]


def _workload(line: str) -> Workload:
    name, inputs, cost, *ways = (part.strip() for part in line.split("|"))
    pairs = (each.partition("=") for each in inputs.split())
    shapes = {given: _sizes(shape) for given, _, shape in pairs}
    named = {n: way or ways[0] for n, way in zip(LIBRARIES, ways, strict=True) if way != ABSENT}
    kind, _, amount = cost.partition(" ")
    if kind == "moves":
        first = next(iter(shapes.values()))
        return Workload(name, shapes, named, bytes=int(amount) * ITEM_BYTES * prod(first))
    if kind == "multiplies":
        return Workload(name, shapes, named, flops=2 * prod(_sizes(amount)))
    if kind:
        raise ValueError(f"{name}: the cost {cost!r} is neither 'moves N' nor 'multiplies AxBxC'")
    return Workload(name, shapes, named)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


def answers(rounds: int, seconds: float, only: str | None) -> Iterator[dict[str, Any]]:
    """What the worker says, one dictionary after the other: first about the GPU and the libraries,
    then a workload at a time."""
    environment = {**os.environ, **SETTINGS, "GEMEL_PEERS": peers_interpreter()}
    command = [sys.executable, "-m", "benchmarks.gpu_worker", str(rounds), str(seconds)]
    command.append(only or ",".join(LIBRARIES))
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        yield {"ended": f"the worker ended with status {process.returncode}"}


def row_of(
    measured: Measured, workload: Workload, copied: float, libraries: list[str]
) -> list[str]:
    """A line of the table. `copied` is the rate of a copy in bytes per microsecond, or 0."""
    row = [measured.name]
    for library in libraries:
        us = measured.us_of(library)
        failed = "FAILED" if library in measured.failures else ""
        row.append(failed if us is None else f"{us:.4g}")
    ours, peer = measured.us_of("gemel"), measured.us_of(measured.best_peer)
    row.append(f"{ours / peer:.2f}" if ours and peer else "")
    return [*row, reached(workload, ours, copied), reached(workload, peer, copied)]


def reached(workload: Workload, us: float | None, copied: float) -> str:
    """The TFLOP/s of a product, or the rate of memory as a share of a copy's."""
    if us is None:
        return ""
    if workload.flops:
        return f"{workload.flops / us / 1e6:.1f} TFLOP/s"
    return f"{workload.bytes / us / copied:.2f}" if workload.bytes and copied else ""


def report(found: list[Measured], libraries: list[str]) -> bool:
    """Print the table. Returns whether gemel failed."""
    known = {each.name: each for each in workloads()}
    copy = found[0] if found and found[0].us else None
    copied = known[copy.name].bytes / min(map(median, copy.us.values())) if copy else 0.0
    header = ["", *(f"{library}, us" for library in libraries)]
    header += ["x best peer", "gemel reaches", "best peer"]
    rows = [row_of(measured, known[measured.name], copied, libraries) for measured in found]
    print_rows(header, rows)
    if copied:
        print(
            f"Memory is copied at {copied / 1e3:.0f} GB/s, read and written; shares are of that.\n"
        )
    for measured in found:
        for library, failure in measured.failures.items():
            print(f"{measured.name}: {library} FAILED: {failure}\n")
    return any("gemel" in measured.failures for measured in found)


def run(rounds: int, seconds: float, only: str | None) -> bool:
    """Measure and print everything. Returns whether gemel failed."""
    found, libraries, ended = [], list[str](), ""
    for answer in answers(rounds, seconds, only):
        if "none" in answer:
            print(f"gpu: {answer['none']}")
            return False
        if "gpu" in answer:
            libraries = answer["libraries"]
            print(f"## {answer['gpu']}, float32 without TF32\n")
            for name, reason in answer["left_out"].items():
                print(f"{name}: {reason}, left out")
        elif "ended" in answer:
            ended = answer["ended"]
        else:
            found.append(Measured(**answer))
            if sys.stderr.isatty():
                print(f"\r\033[K{answer['name']}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    failed = report(found, libraries)
    if ended:
        print(f"FAILED: {ended}\n")
    return failed or bool(ended)


__all__ = ["LIBRARIES", "TOLERANCE", "Measured", "Workload", "report", "run", "workloads"]
