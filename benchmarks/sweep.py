"""`sweep`: operations on random shapes and their floors, so that no shape is special.

Sizes are drawn log-uniformly, from a fixed seed. A shape is kept if a core with 100 GFLOP/s and
10 GB/s would need between 20 us and 5 ms for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from math import exp, log, prod
from random import Random
from typing import NamedTuple

from benchmarks.driver import Result
from benchmarks.machine import Machine, measure_machine
from benchmarks.shapes import Shape
from benchmarks.table import print_rows, ratio
from benchmarks.turns import Effort, installed, measure

SEED = 7
#: A fictitious machine that bounds the work of a shape, so that the shapes are the same everywhere.
NOMINAL = Machine(1, 100, 100, 10, 10, 10, 10)
LEAST_US, MOST_US = 20, 5000


class Drawn(NamedTuple):
    """A kind of shapes: its name, the ranges in words, and a function that draws a shape."""

    name: str
    ranges: str
    draw: Callable[[Random], Shape]


def between(random: Random, least: int, most: int) -> int:
    """A whole number from this range, log-uniformly."""
    return min(most, int(exp(random.uniform(log(least), log(most + 1)))))


def several(random: Random, *ranges: tuple[int, int]) -> list[int]:
    return [between(random, *each) for each in ranges]


def matmul(random: Random) -> Shape:
    m, k, n = several(random, *[(8, 2048)] * 3)
    return Shape("matmul", ((m, k), (k, n)))


def batched(random: Random) -> Shape:
    b, m, k, n = several(random, (2, 512), *[(4, 256)] * 3)
    return Shape("matmul", ((b, m, k), (b, k, n)))


def conv(random: Random) -> Shape:
    batch, inside, out, height, width = several(
        random, (1, 32), (1, 512), (4, 512), (7, 128), (7, 128)
    )
    kernel, stride = random.choice((1, 3, 3, 5, 7)), random.choice((1, 1, 2))
    settings = {"stride": stride, "pad": random.choice((0, kernel // 2)), "groups": 1}
    return Shape("conv", ((batch, inside, height, width), (out, inside, kernel, kernel)), settings)


def gradients(random: Random) -> Shape:
    return conv(random)._replace(gradients=True)


def reduction(random: Random) -> Shape:
    sizes = several(random, *[(2, 4096)] * random.choice((2, 3)))
    how = random.choice(("sum", "mean", "max", "var"))
    return Shape("reduce", (tuple(sizes),), {"how": how, "axis": random.randrange(len(sizes))})


def softmax(random: Random) -> Shape:
    return Shape("softmax", (tuple(several(random, (8, 65536), (4, 8192))),))


def attention(random: Random) -> Shape:
    batch, heads, queries, keys = several(random, (1, 16), (1, 16), (16, 1024), (16, 1024))
    width = random.choice((16, 32, 64, 64, 128))
    lead = (batch, heads)
    sizes = (*lead, queries, width), (*lead, keys, width), (*lead, keys, width)
    return Shape("attention", sizes)


KINDS = (
    Drawn("matmul", "m, k, n of 8 to 2048", matmul),
    Drawn("batched matmul", "2 to 512 times m, k, n of 4 to 256", batched),
    Drawn(
        "conv",
        "batch 1 to 32, channels 1 to 512 and 4 to 512, space 7 to 128, kernel 1, 3, 5, 7, "
        "stride 1, 2",
        conv,
    ),
    Drawn("conv gradients", "the same", gradients),
    Drawn("reduction", "sum, mean, max, var along one of 2 or 3 axes of 2 to 4096", reduction),
    Drawn("softmax", "8 to 65536 rows of 4 to 8192", softmax),
    Drawn(
        "attention", "batch, heads 1 to 16, queries, keys 16 to 1024, width 16 to 128", attention
    ),
)


def drawn(kind: Drawn) -> Iterator[Shape]:
    """The random shapes of a kind, the same in each run."""
    random = Random(f"{SEED} {kind.name}")
    while True:
        shape = kind.draw(random)
        fits = shape.kind != "conv" or min(shape.result) > 0
        if fits and LEAST_US <= shape.floor_us(NOMINAL, 1) <= MOST_US:
            yield shape


def text(shape: Shape) -> str:
    """The sizes and settings of a shape."""
    sizes = " ".join("x".join(map(str, size)) for size in shape.sizes)
    return " ".join([sizes, *(f"{key}={value}" for key, value in shape.settings.items())])


def kinds(shape: Shape) -> Iterator[str]:
    """The classes that a product or a convolution belongs to, by several of its sizes."""

    def within(name: str, value: int, *bounds: int) -> str:
        most = next((bound for bound in bounds if value <= bound), None)
        return f"{name} > {bounds[-1]}" if most is None else f"{name} <= {most}"

    first, second = shape.sizes[:2] if len(shape.sizes) > 1 else (*shape.sizes, ())
    if shape.kind == "conv":
        yield f"kernel {second[-1]} by {shape.settings['stride']}"
        yield within("filters", second[0], 16, 64)
        yield within("channels", second[1], 3, 16)
        yield within("places", prod(shape.result[2:]), 64, 256)
        yield within("width", shape.result[3], 8, 16, 32)
    elif shape.kind == "matmul":
        for name, value in zip("mkn", (*first[-2:], second[-1]), strict=True):
            yield within(name, value, 8, 32)


def print_kinds(shares: list[tuple[Shape, float]]) -> None:
    """Print the shares of the floor by class, to show which classes are far from it."""
    found: dict[str, list[float]] = {}
    for shape, share in shares:
        for kind in kinds(shape):
            found.setdefault(kind, []).append(share)
    parts = {kind: [lowest(own, part) for part in (0.5, 0.1)] for kind, own in found.items()}
    rows = [
        [kind, str(len(found[kind])), *(f"{100 * part:.0f} %" for part in parts[kind])]
        for kind in sorted(found)
    ]
    if rows:
        print_rows(["", "shapes", "median", "worst tenth"], rows)


def lowest(shares: list[float], part: float) -> float:
    """The quantile `part` of the shares, from 0 to 1."""
    return sorted(shares)[int(part * (len(shares) - 1))]


def print_worst(
    kind: Drawn, found: list[tuple[Shape, dict[str, Result]]], machine: Machine, threads: int
) -> list[str]:
    """Print the ten shapes of a kind that are farthest from the floor, and the shares by class.

    Returns a row for the table of all kinds.
    """
    shares, rows = [], []
    kept = [each for each in found if "gemel" in each[1] and not each[1]["gemel"].failure]
    for shape, results in kept:
        floor, ours = shape.floor_us(machine, threads), results["gemel"].done_us
        beside = results.get("torch")
        against = ratio(ours, beside.done_us) if beside and not beside.failure else ""
        shares.append(floor / ours)
        rows.append((floor / ours, [text(shape), f"{ours:.4g}", f"{floor:.4g}", against]))
    print(
        f"## {kind.name}, {threads} thread{'s' * (threads > 1)}: the ten farthest from the floor\n"
    )
    print(f"{kind.ranges}\n")
    worst = [[row[0], f"{100 * share:.0f} %", *row[1:]] for share, row in sorted(rows)[:10]]
    print_rows(["", "of floor", "gemel, us", "floor, us", "x torch"], worst)
    print_kinds([(shape, share) for (shape, _), share in zip(kept, shares, strict=True)])
    parts = (0.5, 0.1, 0)
    figures = [f"{100 * lowest(shares, part):.0f} %" if shares else "failed" for part in parts]
    ratios = [float(row[-1]) for _, row in rows if row[-1]]
    return [kind.name, str(len(shares)), *figures, f"{lowest(ratios, 0.5):.2f}" if ratios else ""]


def run(
    effort: Effort,
    count: int,
    beside: str | None,
    machine: Machine | None,
    groups: list[str] | None = None,
) -> bool:
    """Measure and print `count` shapes of each kind, or of the kinds in `groups`.

    Returns whether gemel failed in one.
    """
    if machine is None:
        raise SystemExit("the floors need a C++ compiler")
    libraries = installed(("gemel", *([beside] if beside else [])), None)
    failed = False
    for threads in effort.threads:
        table = []
        for kind in (kind for kind in KINDS if groups is None or kind.name in groups):
            shapes = list(islice(drawn(kind), count))
            measured = measure(shapes, libraries, threads, effort, "numpy")
            machine = machine.or_better(measure_machine())
            table.append(
                print_worst(kind, list(zip(shapes, measured, strict=True)), machine, threads)
            )
            for shape, results in zip(shapes, measured, strict=True):
                failure = results["gemel"].failure
                if failure:
                    print(f"{kind.name} {text(shape)}: FAILED: {failure}\n")
                    failed = True
        print(f"## share of the floor's rate, {threads} thread{'s' * (threads > 1)}\n")
        print_rows(["", "shapes", "median", "worst tenth", "worst", "x torch, median"], table)
    return failed
