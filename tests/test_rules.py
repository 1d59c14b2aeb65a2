"""The sentences of docs/internals/engine.md are numbered, and each is checked by some test."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "internals" / "engine.md"
CITATION = re.compile(r"(?:#|//) engine\.md ([0-9, ]+)$", re.MULTILINE)


def test_every_rule_is_cited_and_every_citation_is_a_rule():
    rules = [int(n) for n in re.findall(r"^([0-9]+)\. ", PAGE.read_text(), re.MULTILINE)]
    assert rules == list(range(1, len(rules) + 1))
    cited = set()
    for path in (*TESTS.glob("*.py"), *TESTS.glob("cpp/*.cc")):
        for group in CITATION.findall(path.read_text()):
            cited |= {int(number) for number in group.split(",")}
    assert cited <= set(rules)
    assert not set(rules) - cited, "rules that no test cites"
