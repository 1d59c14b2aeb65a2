"""`networks`: training steps and inference of small networks, as ratios to torch.

networks_gemel.py and networks_torch.py define each network under the same name.
"""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from benchmarks.driver import agree, has_torch, in_turns
from benchmarks.operations import Input
from benchmarks.table import beside_torch, cores, print_rows
from benchmarks.turns import show

LIBRARIES = ("gemel", "torch")
#: The tolerance of losses and results, relative to their size.
TOLERANCE = 1e-3


class Network(NamedTuple):
    """A network: the class of that name in the files of both libraries, and what it is given.

    It is trained towards `target`: classes if the target has a limit, else numbers. Without a
    target it is used for inference only.
    """

    name: str
    inputs: tuple[Input, ...]
    target: Input | None


def floats(*shape: int) -> Input:
    """Standard normal numbers."""
    return Input("", shape, 0)


def whole(limit: int, *shape: int) -> Input:
    """Whole numbers below `limit`."""
    return Input("", shape, limit)


NETWORKS = (
    Network("GPT", (whole(1000, 8, 128),), whole(1000, 8, 128)),
    Network("ViT", (floats(16, 3, 32, 32),), whole(10, 16)),
    Network("Bert", (whole(2000, 16, 64), whole(2, 16, 64)), whole(2, 16)),
    Network("UNet", (floats(4, 3, 64, 64),), floats(4, 3, 64, 64)),
    Network("Generator", (floats(32, 100, 1, 1),), floats(32, 3, 32, 32)),
    Network("Discriminator", (floats(32, 3, 32, 32),), floats(32, 1)),
    Network("ConvNeXt", (floats(8, 3, 96, 96),), whole(10, 8)),
    Network("ResNet20", (floats(32, 3, 32, 32),), whole(10, 32)),
    Network("InvertedResiduals", (floats(8, 3, 96, 96),), whole(10, 8)),
    Network("StyleTransfer", (floats(2, 3, 96, 96),), floats(2, 3, 96, 96)),
    Network("Video", (floats(2, 3, 16, 32, 32),), whole(10, 2)),
    Network("WaveNet", (whole(256, 4, 1024),), whole(256, 4, 1024)),
    Network("TextConvolutions", (whole(5000, 32, 60),), whole(2, 32)),
    Network("Mixer", (floats(16, 3, 32, 32),), whole(10, 16)),
    Network("BidirectionalGRU", (whole(2000, 32, 40),), whole(20, 32)),
    Network(
        "GraphConvolutions",
        (floats(3000, 128), whole(3000, 20_000), whole(3000, 20_000)),
        whole(10, 3000),
    ),
    Network("Recommender", (whole(100_000, 512), whole(50_000, 512)), floats(512, 1)),
    Network("Decoder", (floats(1, 1, 256), *[floats(2, 1, 8, 200, 32)] * 2), None),
)

#: What torch does, and the ways in which gemel does the same.
GROUPS = {
    "step": ("imperative", "hybridized", "compiled"),
    "inference": ("imperative inference", "inference"),
}
#: For each way of gemel what torch does.
WAYS = {way: other for other, ways in GROUPS.items() for way in ways}
TRAINING = GROUPS["step"]
#: The columns of the table: torch's milliseconds, and ratios to it.
HEADER = ["", *(name for other in GROUPS for name in (f"torch's {other}, ms", *GROUPS[other]))]

#: What each process of a library found: {way: [us, figures]}.
Answers = dict[str, list[dict[str, list[float]]]]


def run(rounds: int, seconds: float, processor: bool, groups: list[str] | None = None) -> bool:
    """Measure and print everything, or some networks. Returns whether gemel failed in any."""
    if not has_torch("networks"):
        return False
    chosen = [each for each in NETWORKS if groups is None or each.name in groups]
    failed = False
    for threads in (1,) if processor else (1, 2):
        found = []
        for network in chosen:
            show(f"{network.name}, {threads} threads")
            given = (network.name, threads, seconds, int(processor))
            arguments = dict.fromkeys(LIBRARIES, given)
            found.append(in_turns("benchmarks.networks_worker", arguments, threads, rounds))
        show("")
        failed |= compare(threads, dict(zip(chosen, found, strict=True)))
    return failed


def compare(threads: int, answers: dict[Network, Answers]) -> bool:
    """Print a table. Returns whether a result of gemel differs from torch's or is missing."""
    rows, failures = [], {}
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    for network, found in answers.items():
        if reason := failure(found):
            rows.append([network.name, "FAILED", *[""] * (len(HEADER) - 2)])
            failures[network.name] = reason
            continue
        us = {way: figures(found, way) for way in WAYS if way in found["gemel"][0]}
        for way, (own, other) in us.items():
            ratios[way].append(own / other)
        rows.append([network.name, *cells(us)])
    print(f"## networks, {cores(threads)}\n")
    print_rows(HEADER, rows)
    for name, reason in failures.items():
        print(f"{name} FAILED: {reason}\n")
    for way, each in ratios.items():
        if each:
            print(f"{way}: {beside_torch(each)}")
    print()
    return bool(failures)


def failure(found: Answers) -> str:
    """Why a network failed, or an empty text if gemel's losses and results agree with torch's."""
    missing = [library for library, answers in found.items() if not answers]
    if missing:
        return f"no answer from {' and '.join(missing)}"
    first = found["torch"][0]
    wrong = {
        way: None
        for answer in found["gemel"]
        for way, values in answer.items()
        if not agree(values[1:], first[WAYS[way]][1:], TOLERANCE)
    }
    return f"other figures than torch's: {', '.join(wrong)}" if wrong else ""


def figures(found: Answers, way: str) -> tuple[float, float]:
    """The microseconds of gemel and torch in one way: the medians over the processes."""
    own = median(answer[way][0] for answer in found["gemel"])
    return own, median(answer[WAYS[way]][0] for answer in found["torch"])


def cells(us: dict[str, tuple[float, float]]) -> list[str]:
    """The cells of a row, from the microseconds of gemel and torch in each way."""
    row = []
    for ways in GROUPS.values():
        found = [us[way] for way in ways if way in us]
        if not found:
            row += [""] * (1 + len(ways))
            continue
        row += [f"{found[0][1] / 1e3:.3g}", *(f"{own / other:.2f}" for own, other in found)]
    return row


__all__ = ["NETWORKS", "TRAINING", "WAYS", "Network", "compare", "run"]
