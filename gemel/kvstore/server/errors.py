"""What a parameter server may say that has gone wrong, by name."""

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

#: The errors a server may answer with, by name; whatever else it says is a `KVStoreError`.
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
