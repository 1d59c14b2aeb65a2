"""`programs`: whole imperative programs, as ratios to the library they are usually written for.

Array programs are one text, which NumPy and gemel run. Dynamic programs, whose sizes or graphs
change from step to step, are written for gemel and for torch.
"""

from __future__ import annotations

import sys
from statistics import median
from typing import Any

from benchmarks import programs_array
from benchmarks.driver import agree, importable, in_turns, interpreter_of
from benchmarks.table import cores, print_rows

#: The dynamic programs: functions of `programs_gemel` and `programs_torch`.
DYNAMIC = {
    "trees": "recursive network, 20 trees in each epoch",
    "new_trees": "the same, trees that were never seen",
    "generation": "64 words from a transformer, keys and values kept",
    "learner": "100 steps of Q-learning, batches of 32",
}
#: The tolerance of results: float32 sums depend on the order in which they are added up.
TOLERANCE = 5e-3


def run(rounds: int, quick: bool, only: list[str] | None) -> bool:
    """Measure and print everything. Returns whether a result of gemel was wrong."""
    failed = False
    for threads in (1, 2):
        for peer, names in (("numpy", tuple(programs_array.PROGRAMS)), ("torch", tuple(DYNAMIC))):
            wanted = [name for name in names if only is None or name in only]
            if wanted and importable(interpreter_of(peer), (peer,)):
                failed |= _compare(peer, wanted, threads, rounds, 0.1 if quick else 0.5)
    sys.stdout.flush()
    return failed


def _compare(peer: str, names: list[str], threads: int, rounds: int, seconds: float) -> bool:
    """Print a table. Returns whether a result of gemel differs from that of its peer."""
    given = dict.fromkeys((peer, "gemel"), (peer, ",".join(names), seconds))
    answers: dict[str, list[Any]] = in_turns("benchmarks.programs_worker", given, threads, rounds)
    if not all(answers.values()):
        return True
    rows, ratios, failed = [], [], False
    for name in names:
        theirs, ours = ([each[name] for each in answers[library]] for library in (peer, "gemel"))
        same = all(agree(each[1], theirs[0][1], TOLERANCE) for each in ours)
        failed |= not same
        base, found = (median(each[0] for each in answer) for answer in (theirs, ours))
        ratios.append(found / base)
        rows.append([_title(name), f"{base:.3g}", f"{found / base:.2f}" + "!" * (not same)])
    print(f"## programs beside {peer}, {cores(threads)}\n")
    print_rows(["", f"{peer}, ms", "gemel x"], rows)
    print(f"median {median(ratios):.2f}, largest {max(ratios):.2f}\n")
    return failed


def _title(name: str) -> str:
    return DYNAMIC.get(name) or programs_array.PROGRAMS[name].__doc__.rstrip(".")  # type: ignore[union-attr]


__all__ = ["DYNAMIC", "run"]
