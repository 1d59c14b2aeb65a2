"""Vocabularies: the positions of words, and the words at positions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from gemel.errors import ArgumentError, ArrayIndexError

#: The position of the unknown token.
UNKNOWN = 0


class Vocabulary:
    """Tokens with positions: the unknown token, the reserved ones, and those of `counter`.

    Tokens that `counter` has at least `min_freq` times are ordered by frequency, and those of equal
    frequency by name. `most_freq_count` limits their number. Raises `ArgumentError` if `min_freq`
    is below 1, or if a reserved token is given twice or is the unknown token.

    >>> words = Vocabulary(Counter("ccbba"), min_freq=2, reserved_tokens=["<pad>"])
    >>> words.idx_to_token
    ['<unk>', '<pad>', 'b', 'c']
    >>> words.to_indices(["c", "z"])
    [3, 0]
    """

    def __init__(
        self,
        counter: Mapping[Any, int] | None = None,
        most_freq_count: int | None = None,
        min_freq: int = 1,
        unknown_token: Hashable = "<unk>",
        reserved_tokens: Sequence[Hashable] | None = None,
    ) -> None:
        if min_freq < 1:
            raise ArgumentError(f"Vocabulary: min_freq is {min_freq}; it must be 1 or more")
        first = [unknown_token, *(reserved_tokens or ())]
        if len(set(first)) < len(first):
            raise ArgumentError(
                "Vocabulary: reserved_tokens must be different from each other and from the "
                f"unknown token {unknown_token!r}, not {reserved_tokens!r}"
            )
        self._unknown_token = unknown_token
        self._reserved_tokens = None if reserved_tokens is None else list(reserved_tokens)
        self._idx_to_token: list[Any] = first
        self._token_to_idx = {token: at for at, token in enumerate(first)}
        by_name = sorted((counter or {}).items(), key=lambda item: item[0])
        frequent = sorted(by_name, key=lambda item: item[1], reverse=True)
        tokens = [token for token, count in frequent if count >= min_freq]
        for token in [t for t in tokens if t not in self._token_to_idx][:most_freq_count]:
            self._append(token)

    def _append(self, token: Any) -> None:
        self._token_to_idx[token] = len(self._idx_to_token)
        self._idx_to_token.append(token)

    def __len__(self) -> int:
        return len(self._idx_to_token)

    @property
    def token_to_idx(self) -> dict[Any, int]:
        """The position of each token."""
        return self._token_to_idx

    @property
    def idx_to_token(self) -> list[Any]:
        """The tokens in order of their positions."""
        return self._idx_to_token

    @property
    def unknown_token(self) -> Hashable:
        """What stands for all tokens that are not in the vocabulary; its position is 0."""
        return self._unknown_token

    @property
    def reserved_tokens(self) -> list[Any] | None:
        """The tokens that follow the unknown one, whatever the counts; None if not given."""
        return self._reserved_tokens

    def to_indices(self, tokens: Any) -> Any:
        """The position of a token, or of each in a list; 0 for unknown ones."""
        if isinstance(tokens, list):
            return [self._token_to_idx.get(token, UNKNOWN) for token in tokens]
        return self._token_to_idx.get(tokens, UNKNOWN)

    def to_tokens(self, indices: Any) -> Any:
        """The token at a position, or a list for a list. Raises `ArrayIndexError`."""
        several = isinstance(indices, list)
        for at in indices if several else [indices]:
            if not 0 <= at < len(self):
                raise ArrayIndexError(
                    f"to_tokens: {at} is not a position from 0 to {len(self) - 1}"
                )
        found = [self._idx_to_token[int(at)] for at in (indices if several else [indices])]
        return found if several else found[0]


__all__ = ["Vocabulary"]
