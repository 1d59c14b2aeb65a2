"""What can go wrong between workers and parameter servers, each with a type of its own."""

from __future__ import annotations

from gemel.errors import GemelError, ShapeError, UnknownNameError


class KVStoreError(GemelError, RuntimeError):
    """Workers and servers cannot go on; the message names the rank, the server and the key."""


class ProtocolError(KVStoreError):
    """Bytes from the network that are no message, or one that is refused."""


class SecretError(KVStoreError):
    """The other end does not know the secret of this job."""


class PortTakenError(KVStoreError):
    """A server's port is in use."""


class WorldError(KVStoreError):
    """Workers and servers disagree on who takes part, or on how."""


class RankTakenError(WorldError):
    """Another worker has this rank."""


class ServerLostError(KVStoreError, ConnectionError):
    """A server could not be reached within the time limit."""


class WorkerLostError(KVStoreError):
    """A worker was silent, and nobody took its place within the time limit."""


class LeftOutError(KVStoreError):
    """The job went on without this worker; started again, it joins with the current parameters."""


class WaitLimitError(KVStoreError, TimeoutError):
    """An answer did not come within the time limit."""


class JournalError(KVStoreError):
    """A server's files are damaged, or of another job."""


class KeyShapeError(KVStoreError, ShapeError):
    """A key has another shape or dtype on one worker than on the others."""


class UnknownKeyError(KVStoreError, UnknownNameError):
    """A key nobody has given a first value."""


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

__all__ = [
    "ANSWERED",
    "JournalError",
    "KVStoreError",
    "KeyShapeError",
    "LeftOutError",
    "PortTakenError",
    "ProtocolError",
    "RankTakenError",
    "SecretError",
    "ServerLostError",
    "UnknownKeyError",
    "WaitLimitError",
    "WorkerLostError",
    "WorldError",
]
