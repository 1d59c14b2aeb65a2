"""How often a worker has summed and initialized each key, to compare it with the other workers'."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

#: How many keys an error about different tallies names.
MOST_NAMED = 3


class Tally:
    """What each thread of this worker has begun: a thread that waits for the other workers cannot
    know how far the others are."""

    def __init__(self) -> None:
        self._own = threading.local()

    def add(self, kind: str, keys: Sequence[Any], values: Iterable[Sequence[Any]]) -> None:
        """Count the arrays of these keys; `kind` is what happens to them, such as "sum"."""
        firsts = [arrays[0] for arrays in values]
        step = kind, tuple(keys), tuple((first.shape, first._code) for first in firsts)
        counts: dict[Hashable, int] = self._own.__dict__.setdefault("counts", {})
        if step not in counts:
            known: dict[Hashable, list[str]] = self._own.__dict__.setdefault("texts", {})
            known[step] = [_text(kind, *pair) for pair in zip(keys, firsts, strict=True)]
        counts[step] = counts.get(step, 0) + 1

    def text(self) -> str:
        """The tally of this thread; equal texts mean equal tallies, in whatever order."""
        found: Counter[str] = Counter()
        for step, count in self._own.__dict__.get("counts", {}).items():
            for text in self._own.texts[step]:
                found[text] += count
        return json.dumps(sorted(found.items()))


def _text(kind: str, key: Any, value: Any) -> str:
    extents = ", ".join(map(str, value.shape))
    return f"{kind} of {value.dtype.name} ({extents}) for key {key!r}"


def apart(rank: int, texts: Sequence[str]) -> str:
    """Say of a worker how often it did what workers did not equally often."""
    tallies = [dict(json.loads(text)) for text in texts]
    names = sorted({name for tally in tallies for name in tally})
    differ = [name for name in names if len({tally.get(name, 0) for tally in tallies}) > 1]
    counts = (f"{name} {tallies[rank].get(name, 0)} times" for name in differ[:MOST_NAMED])
    return " and a ".join(counts)


__all__ = ["Tally", "apart"]
