"""Which cases of long tables a short run takes.

`pytest --cases 2/3` runs the second third of each table of more than `LONG` cases, and everything
else. The three thirds together are all cases, and each case is always in the same third.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

#: A table of more cases is long.
LONG = 20


class Part(NamedTuple):
    """One of so many parts, counted from 1."""

    number: int
    count: int

    def __contains__(self, name: object) -> bool:
        """Whether this part has the case with this name. Hashes: neighbours are alike in tables."""
        return zlib.crc32(str(name).encode()) % self.count == self.number - 1


def part_of(text: str) -> Part:
    """The part that a text such as "2/3" names; raises `ValueError` for others."""
    number, _, count = text.partition("/")
    part = Part(int(number), int(count))
    if not 1 <= part.number <= part.count:
        raise ValueError(f"--cases takes NUMBER/COUNT, such as 2/3, not {text!r}")
    return part


def drawn(names: Sequence[str], part: Part) -> list[bool]:
    """For each test whether it runs: names are those of pytest, `file::function[case]`."""
    tables = [name.partition("[")[0] for name in names]
    sizes = Counter(tables)
    return [sizes[table] <= LONG or name in part for name, table in zip(names, tables, strict=True)]
