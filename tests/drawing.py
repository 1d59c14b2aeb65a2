"""Chooses the cases of long tables that a short run takes.

`pytest --cases 2/3` runs the second third of each table with more than `LONG` cases, and all other
tests. The three thirds together are all cases, and each case is always in the same third. Tables of
errors run whole: their cases take no time, and each checks a message of its own.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

#: Tables with more cases than this are long.
LONG = 12


class Part(NamedTuple):
    """Part `number` of `count`, counted from 1."""

    number: int
    count: int

    def __contains__(self, name: object) -> bool:
        """Whether this part has the named case. Cases are hashed, since neighbours are alike."""
        return zlib.crc32(str(name).encode()) % self.count == self.number - 1


def part_of(text: str) -> Part:
    """The part that a text such as "2/3" names; raises `ValueError` for other texts."""
    number, _, count = text.partition("/")
    part = Part(int(number), int(count))
    if not 1 <= part.number <= part.count:
        raise ValueError(f"--cases takes NUMBER/COUNT, such as 2/3, not {text!r}")
    return part


def drawn(tests: Mapping[str, bool], part: Part) -> list[bool]:
    """For each test whether it runs.

    The keys are pytest's names, `file::function[case]`; the values whether its table runs whole.
    """
    tables = [name.partition("[")[0] for name in tests]
    sizes = Counter(tables)
    return [
        whole or sizes[table] <= LONG or name in part
        for (name, whole), table in zip(tests.items(), tables, strict=True)
    ]
