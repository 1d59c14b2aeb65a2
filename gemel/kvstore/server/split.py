"""Which server keeps what: every worker computes the same rule, so nobody has to be asked."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import Any

from gemel.errors import ArgumentError

#: The most characters of a key, and of its name, which also has the type.
MOST_KEY = 1000
MOST_NAME = 1024


@dataclass(frozen=True)
class Piece:
    """Elements `begin` to `end - 1` of a key's flattened array, kept by one server."""

    number: int
    server: int
    begin: int
    end: int


def key_name(key: Any) -> str:
    """The key as text: 3 and "3" are different keys. Raises `ArgumentError` if it cannot be
    sent."""
    try:
        text = f"{key}"
        text.encode()
        if len(text) <= MOST_KEY:
            return f"{type(key).__name__}:{text}"
    except ValueError:  # half of a surrogate pair, or more digits than Python prints
        pass
    raise ArgumentError(
        f"kvstore: a key of type {type(key).__name__} cannot be sent to servers; a key must be "
        f"Unicode text, or a whole number, of at most {MOST_KEY} characters"
    )


def key_number(name: str, piece: int) -> int:
    """The number of a key's piece in messages: eight bytes of BLAKE2 (RFC 7693)."""
    digest = hashlib.blake2b(f"{name}/{piece}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def pieces_of(name: str, size: int, servers: int, most: int) -> list[Piece]:
    """The pieces of an array of `size` elements.

    The number of pieces is the smallest that keeps them near `most` elements, but at most the
    number of servers; their sizes differ by at most one element. The CRC-32 of the name selects the
    server of the first piece, and the others follow in order. So large arrays are spread evenly,
    small ones randomly.

    >>> [piece.end - piece.begin for piece in pieces_of("int:0", 10, servers=3, most=4)]
    [3, 3, 4]
    """
    count = max(1, min(servers, -(-size // max(1, most))))
    first = zlib.crc32(name.encode()) % servers
    edges = [size * number // count for number in range(count + 1)]
    return [
        Piece(number, (first + number) % servers, edges[number], edges[number + 1])
        for number in range(count)
    ]


__all__ = ["MOST_NAME", "Piece", "key_name", "key_number", "pieces_of"]
