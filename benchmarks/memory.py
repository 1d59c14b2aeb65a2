"""`memory`: the memory that training takes, for the networks of `networks`, beside torch.

It is the growth of the process from the first step to its peak: results kept for the backward pass,
gradients, the optimizer's states, and whatever the library needs for itself.
"""

from __future__ import annotations

from benchmarks.driver import agree, has_torch, in_turns
from benchmarks.networks import NETWORKS, TOLERANCE, TRAINING, Network
from benchmarks.operations import Input
from benchmarks.table import beside_torch, print_rows
from benchmarks.turns import show

#: The batches are so many times as large as those of `networks`.
TIMES = 4
THREADS = 2

#: Megabytes and losses of each process, by library and way.
Answers = dict[tuple[str, str], list[list[float]]]


def larger(network: Network, times: int) -> Network:
    """The network for a batch so many times as large."""

    def grown(given: Input) -> Input:
        first, *others = given.shape
        return given._replace(shape=(times * first, *others))

    target = grown(network.target) if network.target else None
    return network._replace(inputs=tuple(map(grown, network.inputs)), target=target)


def run(rounds: int, groups: list[str] | None = None) -> bool:
    """Measure and print all networks, or some. Returns whether gemel failed in any."""
    if not has_torch("memory"):
        return False
    answers: dict[str, Answers] = {}
    for network in NETWORKS:
        if network.target is None or (groups is not None and network.name not in groups):
            continue
        show(network.name)
        answers[network.name] = {}
        for library, way in (*(("gemel", way) for way in TRAINING), ("torch", "step")):
            arguments = {library: (network.name, way, TIMES)}
            found = in_turns("benchmarks.memory_worker", arguments, THREADS, rounds)
            answers[network.name][library, way] = found[library]
    show("")
    return compare(answers)


def compare(answers: dict[str, Answers]) -> bool:
    """Print a table. Returns whether a result of gemel differs from torch's or is missing."""
    rows, failed = [], False
    shares: dict[str, list[float]] = {way: [] for way in TRAINING}
    for name, found in answers.items():
        losses = {key: each[0][1:] for key, each in found.items() if each}
        torch = losses.get(("torch", "step"), [])
        if any(not agree(losses.get(key, []), torch, TOLERANCE) for key in found):
            rows.append([name, "FAILED", *[""] * 2 * len(TRAINING)])
            failed = True
            continue
        # A first process compiles what later ones find in the cache.
        least = {key: min(each[0] for each in found[key]) for key in found}
        other = least["torch", "step"]
        for way in TRAINING:
            shares[way].append(least["gemel", way] / other)
        own = [least["gemel", way] for way in TRAINING]
        rows.append([name, *(f"{each:.0f}" for each in (*own, other))])
        rows[-1] += [f"{each / other:.2f}" for each in own]
    print(f"## memory of training, {TIMES} times the batch of `networks`\n")
    header = ["", *(f"{way}, MB" for way in TRAINING), "torch, MB"]
    print_rows([*header, *(f"{way} x torch" for way in TRAINING)], rows)
    for way, each in shares.items():
        if each:
            print(f"{way}: {beside_torch(each, 'memory')}")
    print()
    return failed


__all__ = ["compare", "larger", "run"]
