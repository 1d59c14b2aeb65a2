"""What the workers and servers of a job have to know, from arguments or the environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gemel import config
from gemel.errors import WorldError, unknown_name

#: What to do when a worker has been silent for too long.
RULES = ("replace", "leave_out")
#: The least bytes of a secret.
SHORTEST_SECRET = 8


@dataclass(frozen=True)
class Limits:
    """Time limits in seconds, and how many bytes of requests a worker may have in flight.

    `silent`: how long a worker or a link may send nothing before it counts as dead. `replace`: how
    long after that a worker may take to be replaced, or to join at the start. `reach`: how long a
    server may be unreachable before it counts as lost. `wait`: how long a worker waits for an
    answer; this should be more than the other three.
    """

    silent: float = 10.0
    replace: float = 30.0
    wait: float = 60.0
    reach: float = 30.0
    room: int = 512 << 20

    def __post_init__(self) -> None:
        for name in ("silent", "replace", "wait", "reach", "room"):
            if not getattr(self, name) > 0:
                raise WorldError(
                    f"kvstore: the limit {name} is {getattr(self, name)}; it must be more than 0"
                )


@dataclass(frozen=True)
class ServerSettings:
    """How one server serves: where, for how many workers, and by which rule.

    `rule` is ``"replace"`` (the other workers wait until one that died is replaced) or
    ``"leave_out"`` (rounds end without it). `folder` is the place of the journal; without one, a
    server that dies loses everything. A snapshot follows after `log_bytes` of journal.
    """

    workers: int
    secret: bytes
    host: str = "127.0.0.1"
    port: int = 0
    folder: Path | None = None
    rule: str = "replace"
    limits: Limits = Limits()
    log_bytes: int = 256 << 20
    durable: bool = False

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise unknown_name("rule for workers that die", self.rule, RULES)
        if not 0 < self.workers <= 1 << 16:
            raise WorldError(
                f"kvstore: a server for {self.workers} workers; give --workers 1 to {1 << 16}"
            )
        if not 0 <= self.port < 1 << 16:
            raise WorldError(
                f"kvstore: there is no port {self.port}; use 1 to 65535, or 0 for any free port"
            )
        if self.log_bytes < 1:
            raise WorldError(
                f"kvstore: a snapshot after {self.log_bytes} bytes of log; give 1 or more"
            )
        _checked(self.secret)


@dataclass(frozen=True)
class WorkerSettings:
    """Where a worker's servers are, and its rank among how many workers.

    An array of more than `piece` elements is split into pieces for several servers.
    """

    servers: tuple[tuple[str, int], ...]
    rank: int
    workers: int
    secret: bytes
    limits: Limits = Limits()
    piece: int = 1 << 18
    staleness: int = 8

    def __post_init__(self) -> None:
        _checked(self.secret)
        if not self.servers:
            raise WorldError("kvstore: there are no servers; set GEMEL_SERVERS=host:port,...")
        if not 0 <= self.rank < self.workers:
            raise WorldError(f"kvstore: rank {self.rank} of {self.workers} workers")
        if self.staleness < 0 or self.piece < 1:
            raise WorldError(
                "kvstore: staleness must be at least 0, and a piece at least 1 element"
            )


def from_environment() -> WorkerSettings:
    """A worker's settings, as `python -m gemel launch` sets them in the environment.

    GEMEL_SERVERS=host:port,host:port  GEMEL_RANK=0  GEMEL_NUM_WORKERS=3  GEMEL_SECRET=...

    `gemel.config` lists the others. Raises `WorldError` if one is missing.
    """
    needed = (config.SERVERS, config.RANK, config.NUM_WORKERS, config.SECRET)
    for variable in needed:
        if variable.read() == variable.default:
            raise WorldError(
                f"kvstore: {variable.name} is not set ({variable.doc}); start the program with "
                "python -m gemel launch --servers 2 --workers 3 train.py, or set "
                f"{', '.join(each.name for each in needed)}"
            )
    return WorkerSettings(
        tuple(address(text) for text in config.SERVERS.read().split(",") if text),
        config.RANK.read(),
        config.NUM_WORKERS.read(),
        config.SECRET.read().encode(),
        Limits(
            silent=config.SILENT_SECONDS.read(),
            wait=config.WAIT_SECONDS.read(),
            reach=config.REACH_SECONDS.read(),
        ),
        config.PIECE.read(),
        config.STALENESS.read(),
    )


def address(text: str) -> tuple[str, int]:
    """The host and port of "host:port". Raises `WorldError`."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise WorldError(f"kvstore: {text!r} is not an address of a server, such as 10.0.0.7:9700")
    return host.strip("[]"), int(port)


def _checked(secret: bytes) -> None:
    if len(secret) < SHORTEST_SECRET:
        raise WorldError(
            f"kvstore: a job's secret must have at least {SHORTEST_SECRET} bytes, not "
            f"{len(secret)}; python -c 'import secrets; print(secrets.token_hex())' prints one "
            "for GEMEL_SECRET"
        )


__all__ = ["Limits", "ServerSettings", "WorkerSettings", "address", "from_environment"]
