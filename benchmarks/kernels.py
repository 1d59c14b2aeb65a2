"""`kernels`: single operations, compared with every other library that has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.driver import Result
from benchmarks.machine import Machine, measure_machine
from benchmarks.shapes import Shape
from benchmarks.table import best_peer, cores, print_rows, ratio
from benchmarks.turns import Effort, installed, measure

LIST = Path(__file__).with_name("kernels.txt")
LIBRARIES = ("gemel", "torch", "onnxruntime", "openvino", "jax", "numpy")
#: Groups in which NumPy takes part.
NUMPY = ("products", "memory")


class Row(NamedTuple):
    """An operation from the list."""

    group: str
    name: str
    shape: Shape


#: Rows, and what was measured of each library.
Found = list[tuple[Row, dict[str, Result]]]


def value_of(text: str) -> Any:
    """The value of a setting: a name, a number, or a list of numbers."""
    numbers = [int(part) for part in text.split(",") if part.isdecimal()]
    return text if not numbers else numbers if "," in text else numbers[0]


def rows_of(line: str) -> list[Row]:
    """The operations of a line of the list."""
    group, name, kind, sizes, given, batches, ways = (part.strip() for part in line.split("|"))
    settings = {key: value_of(value) for key, value in (pair.split("=") for pair in given.split())}
    if kind.startswith("conv"):
        settings.setdefault("groups", 1)
    tolerance = 2e-2 if kind.endswith("bfloat16") else 2e-3
    found = []
    for gradients in {"forward": (False,), "gradients": (True,), "both": (False, True)}[ways]:
        for batch in batches.split() or [""]:
            arrays = [size.replace("N", batch).split("x") for size in sizes.split()]
            shape = Shape(
                kind,
                tuple(tuple(map(int, size)) for size in arrays),
                settings,
                gradients,
                tolerance,
            )
            full = name + f", batch {batch}" * bool(batch)
            found.append(Row(group, full, shape))
    return found


def rows() -> list[Row]:
    """All operations, in the order of the list."""
    lines = (line for line in LIST.read_text().splitlines() if line and line[0] != "#")
    return [row for line in lines for row in rows_of(line)]


class Goal(NamedTuple):
    """A goal for the median, over some rows, of gemel's time as a ratio to the best peer's."""

    title: str
    chosen: Callable[[Row], bool]
    peers: tuple[str, ...]
    bound: float | None
    #: Whether the time also includes what runs before the call (torch's forward pass).
    whole: bool = False


#: gemel's pooling is compared with the fastest copy of any library.
COPIES = (("pool", ("gemel",)), ("copy", LIBRARIES))


def network(row: Row) -> bool:
    """Whether a row is a layer of ResNet-18 or LeNet."""
    return row.group in ("resnet18", "lenet")


GOALS = (
    Goal(
        "layers of ResNet-18 and LeNet, forward x best of torch and ONNX Runtime",
        lambda row: network(row) and not row.shape.gradients,
        ("torch", "onnxruntime"),
        0.95,
    ),
    Goal(
        "their gradients x torch",
        lambda row: network(row) and row.shape.gradients,
        ("torch",),
        0.9,
    ),
    Goal(
        "their forward pass in training and gradients x torch",
        lambda row: network(row) and row.shape.gradients,
        ("torch",),
        None,
        whole=True,
    ),
    Goal("other convolutions x best peer", lambda row: row.group == "others", LIBRARIES[1:], None),
    Goal(
        "64x64 products x NumPy",
        lambda row: row.shape.kind == "matmul",
        ("numpy",),
        1.0,
    ),
    Goal("bfloat16 x torch", lambda row: row.group == "bfloat16", ("torch",), None),
    Goal("attention x best peer", lambda row: row.shape.kind == "attention", LIBRARIES[1:], None),
    Goal(
        "encoder layer x best of OpenVINO, ONNX Runtime, JAX",
        lambda row: row.group == "encoder",
        ("openvino", "onnxruntime", "jax"),
        0.95,
    ),
    Goal(
        "LSTM, inference x best of ONNX Runtime and torch",
        lambda row: row.shape.kind == "lstm",
        ("onnxruntime", "torch"),
        0.95,
    ),
    Goal("LSTM, training x torch", lambda row: row.shape.kind == "lstm_train", ("torch",), 0.8),
    Goal(
        "row gather, x**2, transposes x NumPy",
        lambda row: row.shape.kind in ("take", "square", "transpose"),
        ("numpy",),
        1.0,
    ),
)


def sound(results: dict[str, Result], names: Sequence[str]) -> list[Result]:
    """The results of these libraries that exist and are right."""
    return [results[name] for name in names if name in results and not results[name].failure]


def ratios(goal: Goal, found: Found) -> list[float]:
    """gemel's times as ratios to the best peer's, for each row that the goal is about."""

    def time(result: Result) -> float:
        return result.done_us + result.issue_us * goal.whole

    measured = [results for row, results in found if goal.chosen(row)]
    pairs = [(sound(each, ("gemel",)), sound(each, goal.peers)) for each in measured]
    return [time(ours[0]) / min(map(time, peers)) for ours, peers in pairs if ours and peers]


def cells(
    row: Row, results: dict[str, Result], names: list[str], machine: Machine | None, threads: int
) -> list[str]:
    """A table row: each library's milliseconds, and gemel's relative to floor and best peer."""
    times = []
    for name in names:
        result = results.get(name)
        text = (
            "" if result is None else "FAILED" if result.failure else f"{result.done_us / 1e3:.4g}"
        )
        times.append(text)
    ours, peer = sound(results, ("gemel",)), best_peer(list(results.values()))
    share = floor = ""
    if ours and machine is not None:
        floor_us = row.shape.floor_us(machine, threads)
        floor, share = f"{floor_us / 1e3:.3g}", f"{100 * floor_us / ours[0].done_us:.0f} %"
    beside = ratio(ours[0].done_us, peer.done_us if peer else None) if ours else ""
    return [row.name, *times, floor, share, beside]


def print_group(found: Found, machine: Machine | None, threads: int) -> None:
    """Print the rows of one group, with separate tables for forward passes and gradients."""
    for gradients in (False, True):
        chosen = [(row, each) for row, each in found if row.shape.gradients == gradients]
        if not chosen:
            continue
        names = [name for name in LIBRARIES if any(name in each for _, each in chosen)]
        print(f"## {chosen[0][0].group}{', gradients' * gradients}, {cores(threads)}, ms\n")
        header = ["", *names, "floor", "of floor", "x best peer"]
        print_rows(header, [cells(row, each, names, machine, threads) for row, each in chosen])


def print_goals(found: Found, threads: int) -> None:
    """Print the medians and the goals."""
    table = []
    for goal in GOALS:
        all_ = ratios(goal, found)
        if all_:
            bound = "" if goal.bound is None else f"{goal.bound:.2f}"
            table.append([goal.title, f"{median(all_):.2f}", f"{max(all_):.2f}", bound])
    kinds = {row.shape.kind: results for row, results in found}
    pool, copies = (sound(kinds.get(kind, {}), names) for kind, names in COPIES)
    if pool and copies:
        times = pool[0].done_us / min(copy.done_us for copy in copies)
        table.append(["max pool 2x2 x the quickest copy", f"{times:.2f}", f"{times:.2f}", "1.50"])
    print(f"## medians, {cores(threads)}\n")
    print_rows(["", "median", "largest", "goal"], table)


def failures(found: Found) -> bool:
    """Print which libraries failed where. Returns whether gemel is among them."""
    ours = False
    for row, results in found:
        for result in results.values():
            if result.failure:
                print(f"{row.name}: {result.name} FAILED: {result.failure}\n")
                ours |= result.ours
    return ours


def run(
    effort: Effort,
    only: str | None,
    machine: Machine | None,
    groups: list[str] | None = None,
) -> bool:
    """Measure and print everything, or some groups. Returns whether gemel failed in any."""
    listed = [row for row in rows() if groups is None or row.group in groups]
    libraries = installed(LIBRARIES, only)
    failed = False
    for threads in effort.threads:
        found: Found = []
        for group in dict.fromkeys(row.group for row in listed):
            chosen = [row for row in listed if row.group == group]
            names = [name for name in libraries if name != "numpy" or group in NUMPY]
            measured = measure([row.shape for row in chosen], names, threads, effort)
            found += zip(chosen, measured, strict=True)
            machine = machine and machine.or_better(measure_machine())
            print_group(found[-len(chosen) :], machine, threads)
        print_goals(found, threads)
        failed |= failures(found)
    return failed
