"""Counting words."""

from __future__ import annotations

import re
from collections import Counter


def count_tokens_from_str(
    source_str: str,
    token_delim: str = " ",
    seq_delim: str = "\n",
    to_lower: bool = False,
    counter_to_update: Counter[str] | None = None,
) -> Counter[str]:
    r"""How often each token is in a text. The delimiters are regular expressions.

    With `counter_to_update`, the counts are added to it, and it is returned.

    >>> count_tokens_from_str("one two\ntwo")
    Counter({'two': 2, 'one': 1})
    """
    text = source_str.lower() if to_lower else source_str
    counter: Counter[str] = Counter() if counter_to_update is None else counter_to_update
    counter.update(filter(None, re.split(f"{token_delim}|{seq_delim}", text)))
    return counter


__all__ = ["count_tokens_from_str"]
