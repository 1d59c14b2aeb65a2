"""The errors that a parameter server may answer with, by name."""

from __future__ import annotations

from gemel.errors import (
    JournalError,
    KeyShapeError,
    KVStoreError,
    LeftOutError,
    ProtocolError,
    RankTakenError,
    SecretError,
    UnknownKeyError,
    WorkerLostError,
    WorldError,
)

#: The errors that keep their type; any other error of a server becomes a `KVStoreError`.
ANSWERED: dict[str, type[KVStoreError]] = {
    kind.__name__: kind
    for kind in (
        ProtocolError,
        SecretError,
        WorldError,
        RankTakenError,
        WorkerLostError,
        LeftOutError,
        JournalError,
        KeyShapeError,
        UnknownKeyError,
    )
}

__all__ = ["ANSWERED"]
