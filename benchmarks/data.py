"""`data`: images a second from the DataLoaders of gemel and torch, with the same transforms."""

from __future__ import annotations

import sys
from statistics import median
from typing import Any, NamedTuple

import numpy

from benchmarks.driver import ROOT, agree, answer_of, environment_of, importable, interpreter_of
from benchmarks.machine import BUILD, Machine
from benchmarks.table import print_rows

FOLDER = BUILD / "data"
LIBRARIES = ("gemel", "torch")
NEEDS = {"gemel": ("gemel",), "torch": ("torch", "PIL")}
WORKERS = (0, 2)


class Pictures(NamedTuple):
    """A data set, the transforms of its pictures, and the tolerance for the sums of an epoch."""

    name: str
    title: str
    count: int
    batch: int
    #: The least bytes to read and write for each picture; 0 for files, which are decoded.
    traffic: int
    tolerance: float


DIGITS = Pictures("digits", "28 x 28 digits: to tensor, normalize", 5000, 256, 28 * 28 * 5, 1e-4)
COLOURS = Pictures(
    "colours",
    "32 x 32 x 3: border of 4 and random crop, random flip, to tensor, normalize",
    10000,
    128,
    32 * 32 * 3 * 5,
    2e-2,
)
FILES = Pictures(
    "files",
    "500 x 375 JPEG: short side 256, middle 224 x 224, to tensor, normalize",
    128,
    16,
    0,
    2e-2,
)


def photograph(draw: numpy.random.RandomState) -> Any:
    """A picture that has detail like a photograph, not like noise: its colours change slowly."""
    coarse = draw.randint(0, 256, (12, 16, 3)).astype("float32")
    smooth = numpy.kron(coarse, numpy.ones((32, 32, 1), "float32"))[:375, :500]
    for axis in (0, 1):
        for shift in (8, 4, 2):
            smooth = (smooth + numpy.roll(smooth, shift, axis)) / 2
    return (smooth + draw.normal(0, 6, smooth.shape)).clip(0, 255).astype("uint8")


def prepare() -> None:
    """Write the pictures if they are missing: arrays for two data sets, files for the third."""
    # Prefer an installed gemel to the source tree, whose core may not be compiled.
    sys.path[:] = [entry for entry in sys.path if entry not in ("", str(ROOT))] + [str(ROOT)]
    FOLDER.mkdir(parents=True, exist_ok=True)
    draw = numpy.random.RandomState(0)
    if not (FOLDER / "digits.npy").exists():
        try:
            from gemel.gluon.data.vision import MNIST5k

            digits, labels = MNIST5k()[:]
            digits = digits.asnumpy()
        except ImportError:
            digits = draw.randint(0, 256, (DIGITS.count, 28, 28, 1)).astype("uint8")
            labels = draw.randint(0, 10, DIGITS.count).astype("int32")
        numpy.save(FOLDER / "digits_labels.npy", labels)
        numpy.save(FOLDER / "digits.npy", digits)
    if not (FOLDER / "colours.npy").exists():
        numpy.save(FOLDER / "colours_labels.npy", draw.randint(0, 10, 10000).astype("int32"))
        numpy.save(FOLDER / "colours.npy", draw.randint(0, 256, (10000, 32, 32, 3)).astype("uint8"))
    for number in range(FILES.count):
        path = FOLDER / "files" / f"class{number % 4}" / f"{number:04d}.jpg"
        if not path.exists():
            from gemel import image

            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image.encoded(photograph(draw), 90))


def measure(
    pictures: Pictures, workers: int, libraries: list[str], rounds: int, epochs: int
) -> tuple[dict[str, list[float]], bool]:
    """The images a second of each process, and whether gemel ran and all sums agreed."""
    speeds: dict[str, list[float]] = {library: [] for library in libraries}
    sums: list[list[float]] = []
    sound = True
    for _ in range(rounds):
        for library in libraries:
            worker = [interpreter_of(library), "-m", "benchmarks.data_worker", library]
            command = [*worker, pictures.name, str(pictures.batch), str(workers), str(epochs)]
            answer = answer_of(command, environment_of(2))
            if isinstance(answer, str):
                print(f"{library} FAILED: {answer}\n")
                sound &= library != "gemel"
                continue
            sums.append(answer["sums"])
            same = agree(answer["sums"], sums[0], pictures.tolerance)
            sound &= same
            speeds[library].append(pictures.count / answer["seconds"] if same else 0.0)
    return speeds, sound


def floor_of(pictures: Pictures, machine: Machine | None) -> float:
    """The most images a second that this machine allows.

    The limit is the memory's bandwidth or, for files, decoding them on two cores.
    """
    if pictures.traffic:
        return machine.memory_gbs * 1e9 / pictures.traffic if machine else 0.0
    command = [sys.executable, "-m", "benchmarks.data_worker", "decode", "files", "1", "0", "1"]
    answer = answer_of(command, environment_of(1))
    return 0.0 if isinstance(answer, str) else 2 * pictures.count / float(answer["seconds"])


def run(rounds: int, quick: bool, only: str | None, machine: Machine | None) -> bool:
    """Measure all data sets and print a table. Returns whether something failed."""
    prepare()
    libraries = [
        library
        for library in LIBRARIES
        if (not only or library in only.split(","))
        and importable(interpreter_of(library), NEEDS[library])
    ]
    rows, failed = [], False
    for pictures in (DIGITS, COLOURS, FILES):
        floor = floor_of(pictures, machine)
        for workers in WORKERS:
            speeds, sound = measure(pictures, workers, libraries, rounds, 1 if quick else 3)
            failed |= not sound
            row = [f"{pictures.title}; batch {pictures.batch}", str(workers)]
            middle = {library: median(found) for library, found in speeds.items() if found}
            for library in libraries:
                row.append(f"{middle[library]:,.0f}" if middle.get(library) else "FAILED")
            peer = middle.get("torch")
            row.append(f"{middle['gemel'] / peer:.2f}" if peer and "gemel" in middle else "")
            row.append(f"{middle['gemel'] / floor:.2f}" if floor and "gemel" in middle else "")
            rows.append(row)
    print("## DataLoader, images a second, 2 cores\n")
    print_rows(["", "workers", *libraries, "x torch", "of the floor"], rows)
    return failed
