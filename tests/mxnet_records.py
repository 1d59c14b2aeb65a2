"""The records in mxnet_data/records.rec."""

from __future__ import annotations

MAGIC = bytes.fromhex("0a23d7ce")
#: With the magic number at and beside multiples of 4, at either end, and twice in a row.
RECORDS = (
    b"",
    b"a",
    b"abcd",
    MAGIC,
    MAGIC * 3,
    b"abcd" + MAGIC,
    b"ab" + MAGIC + b"cd",
    MAGIC + b"abc",
    b"abcd" + MAGIC + MAGIC[:3],
    bytes(range(256)) * 5 + MAGIC + bytes(range(251)),
)
