"""Sockets between the workers of an MPI job, so that waiting uses no CPU time.

MPI makes progress only while it is polled, and each poll takes about 60 us from the core that
computes. The kernel receives data on a socket by itself, and wakes the waiting thread when enough
has arrived. The workers exchange their addresses, and a random secret for the job, over MPI. Both
sides of a connection prove that they know the secret (HMAC, RFC 2104) before sending anything else.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gemel import _core
from gemel.errors import WorkersError
from gemel.kvstore.server.protocol import exactly, proof, proves, tune
from gemel.kvstore.waiting import Scratch

#: How many of this machine's IPv4 addresses are exchanged; they follow the port's two bytes.
MOST_ADDRESSES = 8
#: Seconds for opening all connections together, and for one attempt or greeting.
OPENING, TRY = 5.0, 1.0
SECRET_BYTES = 32
#: Bytes after which a receiver is woken (or all, if fewer remain), and the longest sleep.
ENOUGH, TRYING = 256 << 10, 0.1
#: Messages and greetings begin with their length. Longer ones than these are not from this job.
LENGTH = struct.Struct(">I")
MOST_MESSAGE, MOST_GREETING = 1 << 26, 1 << 10
#: The errors of a connection to something that does not belong to this job, or to nothing.
STRANGE = OSError, ValueError, KeyError, TypeError
#: The ioctl for the address of an interface (netdevice(7)), and its place in the answer.
SIOCGIFADDR, ADDRESS = 0x8915, slice(20, 24)

#: Values of ``GEMEL_SOCKETS``: any interface; no sockets.
ALL, NONE = "all", "none"

Sockets = dict[int, socket.socket]
#: What connections are used for; messages go to and from rank 0 only.
USES = "contents", "messages", "sums"


def _uses(lower: int, higher: int) -> list[str]:
    """The uses for which these two ranks have a connection."""
    return [use for use in USES if use != "messages" or lower == 0]


class Connections:
    """The connections of one rank: to every other rank for contents and for sums (those of the
    `courier`), and to rank 0 for messages."""

    def __init__(
        self, rank: int, size: int, contents: Sockets, messages: Sockets, sums: Sockets
    ) -> None:
        self.rank, self.size = rank, size
        ends = [-1 if other == rank else sums[other].detach() for other in range(size)]
        self.courier = _core.Courier(rank, ends)
        self._contents, self._messages = contents, messages
        self._ranks = {channel.fileno(): other for other, channel in messages.items()}
        self._coming = {other: bytearray() for other in messages}
        self._going = {other: bytearray() for other in messages}
        self._poll = select.poll()
        for channel in messages.values():
            self._poll.register(channel, select.POLLIN)
        for channel in (*contents.values(), *messages.values()):
            channel.setblocking(False)
        self._scratch = Scratch()

    # ---- messages

    def send(self, rank: int, message: bytes) -> None:
        """Start to send a message. A message to a rank that has gone is lost."""
        self._going[rank] += LENGTH.pack(len(message)) + message
        self._push(rank)

    def _push(self, rank: int) -> None:
        channel, left = self._messages.get(rank), self._going[rank]
        if channel is None:
            left.clear()
            return
        try:
            while left:
                del left[: channel.send(left)]
        except BlockingIOError:
            return
        except OSError:
            left.clear()

    def received(self, patience: float = 0.0) -> list[tuple[int, bytes]]:
        """Return the messages that have arrived, with the ranks that sent them.

        If there are none, sleep until one arrives, for at most `patience` seconds.
        """
        for rank, left in self._going.items():
            if left:
                self._push(rank)
        found: list[tuple[int, bytes]] = []
        for number, _ in self._poll.poll(patience * 1e3):
            rank = self._ranks[number]
            try:
                part = self._messages[rank].recv(1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                part = b""
            if not part:  # it ended or died: those that wait for it report it after the time limit
                self._poll.unregister(number)
                self._messages.pop(rank).close()
                continue
            self._coming[rank] += part
            found += [(rank, message) for message in _whole(self._coming[rank])]
        return found

    # ---- contents

    def summed(self, row: Any) -> Any:
        """Sum the rows of all ranks in rank order; the result overwrites the given row.

        Two ranks exchange their rows. With more, rank i sums piece i and sends it to all. Raises
        `WorkersError` when a worker is gone.
        """
        import numpy

        if self.size == 2:
            peer = 1 - self.rank
            other = self._scratch.take(row.nbytes).view(row.dtype)
            self.exchange({peer: row}, {peer: other})
            first, second = (row, other) if self.rank == 0 else (other, row)
            return numpy.add(first, second, out=row)
        ends = [row.size * rank // self.size for rank in range(self.size + 1)]
        pieces = [row[begin:end] for begin, end in zip(ends[:-1], ends[1:], strict=True)]
        own = pieces[self.rank]
        parts = self._scratch.take(self.size * own.nbytes).view(row.dtype)
        parts = parts.reshape(self.size, own.size)
        parts[self.rank] = own
        others = [rank for rank in range(self.size) if rank != self.rank]
        self.exchange({r: pieces[r] for r in others}, {r: parts[r] for r in others})
        own[...] = parts[0]
        for part in parts[1:]:
            own += part
        self.exchange(dict.fromkeys(others, own), {r: pieces[r] for r in others})
        return row

    def exchange(self, sends: Mapping[int, Any], receives: Mapping[int, Any]) -> None:
        """Send arrays to ranks and fill arrays with what ranks send; the calls of all ranks must
        match."""
        outward = {rank: _bytes(array) for rank, array in sends.items() if array.nbytes}
        inward = {rank: _bytes(array) for rank, array in receives.items() if array.nbytes}
        poll = select.poll()
        ranks = {self._contents[rank].fileno(): rank for rank in {*outward, *inward}}
        ready = [(number, select.POLLOUT) for number in ranks]
        while ranks:
            for number, events in ready:
                rank = ranks[number]
                if events & ~select.POLLOUT and rank in inward:
                    self._fill(rank, inward)
                if events & ~select.POLLIN and rank in outward:
                    self._empty(rank, outward)
                wanted = self._wanted(rank, outward, inward)
                if wanted:
                    poll.register(number, wanted)
                    continue
                del ranks[number]
                with contextlib.suppress(KeyError):
                    poll.unregister(number)
            # A system may ignore SO_RCVLOWAT, so after a timeout all connections are tried.
            ready = poll.poll(TRYING * 1e3) if ranks else []
            ready = ready or [(number, select.POLLIN | select.POLLOUT) for number in ranks]

    def _wanted(self, rank: int, outward: Mapping[int, Any], inward: Mapping[int, Any]) -> int:
        """The events to wait for on a connection; a receiver is woken when enough has arrived."""
        if rank in inward:
            enough = min(len(inward[rank]), ENOUGH)
            self._contents[rank].setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, enough)
        return (select.POLLIN if rank in inward else 0) | (select.POLLOUT if rank in outward else 0)

    def _fill(self, rank: int, inward: dict[int, Any]) -> None:
        with self._until_it_blocks(rank):
            while rank in inward:
                count = self._contents[rank].recv_into(inward[rank])
                if not count:
                    raise ConnectionError("the connection has ended")
                _shorten(inward, rank, count)

    def _empty(self, rank: int, outward: dict[int, Any]) -> None:
        with self._until_it_blocks(rank):
            while rank in outward:
                _shorten(outward, rank, self._contents[rank].send(outward[rank]))

    @contextlib.contextmanager
    def _until_it_blocks(self, rank: int) -> Iterator[None]:
        """Send or receive until it would block. Raises `WorkersError` if the worker is gone."""
        try:
            yield
        except BlockingIOError:
            return
        except OSError as error:
            raise WorkersError(f"kvstore: worker {rank} is gone ({error})") from None

    def close(self) -> None:
        """End all connections."""
        for channel in (*self._contents.values(), *self._messages.values()):
            channel.close()


def _bytes(array: Any) -> memoryview:
    return memoryview(array.reshape(-1).view("uint8"))


def _shorten(views: dict[int, Any], rank: int, count: int) -> None:
    if count == len(views[rank]):
        del views[rank]
    else:
        views[rank] = views[rank][count:]


def _whole(coming: bytearray) -> list[bytes]:
    """Remove and return the messages that are complete. Raises `WorkersError`."""
    found = []
    while len(coming) >= LENGTH.size:
        (length,) = LENGTH.unpack_from(coming)
        if length > MOST_MESSAGE:
            raise WorkersError(
                f"kvstore: a message of {length} bytes; at most {MOST_MESSAGE} are allowed"
            )
        end = LENGTH.size + length
        if len(coming) < end:
            break
        found.append(bytes(coming[LENGTH.size : end]))
        del coming[:end]
    return found


# ---- opening connections


def opened(
    machines: Sequence[int],
    rank: int,
    gathered: Callable[[Any], Any],
    broadcast: Callable[[Any], Any],
    interface: str = ALL,
) -> Connections | None:
    """Open connections between all ranks; returns None on all ranks if some connection fails.

    `gathered` returns the rows of all ranks, `broadcast` that of rank 0. All ranks have to call
    this. `interface` is the value of ``GEMEL_SOCKETS``. Raises `WorkersError` if there is no
    interface of that name.
    """
    import secrets  # one worker alone does not need it

    import numpy

    secret = numpy.frombuffer(secrets.token_bytes(SECRET_BYTES), "uint8").copy()
    secret = bytes(broadcast(secret))
    met: dict[str, Sockets] = {use: {} for use in USES}
    with contextlib.ExitStack() as stack:
        addresses = _addresses(interface)
        listener = _listener(len(machines)) if interface != NONE else None
        if listener is not None:
            stack.enter_context(listener)
        rows = [bytes(row) for row in gathered(_address_row(listener, addresses))]
        # If one rank has no sockets, the others do not wait for it.
        whole = all(row[:2] != bytes(2) for row in rows) and hasattr(select, "poll")
        if listener is not None and whole:
            try:
                door = _Door(machines, rank, secret, time.monotonic() + OPENING)
                door.connect(rows, met)
                door.accept(listener, met)
            except OSError:
                whole = False
    everywhere = bool(gathered(numpy.array([whole], "uint8")).all())
    if everywhere:
        return Connections(rank, len(machines), **met)
    for channels in met.values():
        for channel in channels.values():
            channel.close()
    return None


def _address_row(listener: socket.socket | None, addresses: Sequence[str]) -> Any:
    """A rank's port and addresses as a row of bytes; zeros without a listener."""
    import numpy

    row = numpy.zeros(2 + 4 * MOST_ADDRESSES, "uint8")
    if listener is not None:
        own = b"".join(map(socket.inet_aton, addresses[:MOST_ADDRESSES]))
        port = struct.pack(">H", listener.getsockname()[1])
        row[: 2 + len(own)] = numpy.frombuffer(port + own, "uint8")
    return row


def _listener(backlog: int) -> socket.socket | None:
    try:
        return socket.create_server(("", 0), backlog=2 * backlog)
    except OSError:
        return None


def _addresses(interface: str) -> list[str]:
    """The IPv4 addresses of this machine's interfaces, or of one interface; loopback comes last."""
    found, names = [], []
    with contextlib.suppress(OSError):
        if sys.platform == "linux":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                names = [name for _, name in socket.if_nameindex()]
                for name in names if interface in (ALL, NONE) else [interface]:
                    asked = struct.pack("256s", name.encode())
                    with contextlib.suppress(OSError):  # an interface without an address
                        answer = fcntl.ioctl(probe, SIOCGIFADDR, asked)
                        found.append(socket.inet_ntoa(answer[ADDRESS]))
        elif interface in (ALL, NONE):
            known = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
            found = [str(entry[4][0]) for entry in known]
    if not found and interface not in (ALL, NONE):
        raise WorkersError(
            f"GEMEL_SOCKETS={interface}: this machine has no interface of this name with an IPv4 "
            f"address; use one of {', '.join(names)}, or {ALL}, or {NONE}"
        )
    return sorted(set(found), key=lambda address: address.startswith("127."))


class _Door:
    """Connects one rank to those below it and accepts those above it, until a deadline."""

    def __init__(self, machines: Sequence[int], rank: int, secret: bytes, until: float) -> None:
        self._machines, self._rank = machines, rank
        self._secret, self._until = secret, until

    def _left(self) -> float:
        left = min(TRY, self._until - time.monotonic())
        if left <= 0:
            raise TimeoutError("timed out while connecting")
        return left

    def connect(self, rows: Sequence[bytes], met: dict[str, Sockets]) -> None:
        """Connect to all lower ranks at the addresses in their rows. Raises `OSError`."""
        for other in range(self._rank):
            for use in _uses(other, self._rank):
                met[use][other] = self._connected(other, rows[other], use)

    def _connected(self, other: int, row: bytes, use: str) -> socket.socket:
        (port,) = struct.unpack(">H", row[:2])
        addresses = [socket.inet_ntoa(row[at : at + 4]) for at in range(2, len(row), 4)]
        near = self._machines[other] == self._machines[self._rank]
        addresses = [
            one for one in addresses if one != "0.0.0.0" and (near or not one.startswith("127."))
        ]
        if near:
            addresses.reverse()
        for address in addresses:
            with contextlib.suppress(*STRANGE):
                channel = socket.create_connection((address, port), self._left())
                try:
                    self._ask(channel, other, use)
                    return channel
                except BaseException:
                    channel.close()
                    raise
        raise ConnectionError(f"worker {other} cannot be reached")

    def _ask(self, channel: socket.socket, other: int, use: str) -> None:
        """Prove to each other that both know the secret, and that the other is the intended
        rank."""
        greeting = {"from": self._rank, "to": other, "use": use}
        challenge = _heard(channel)["challenge"]
        shown = proof(self._secret, "asks", challenge, greeting)
        _say(channel, {**greeting, "proof": shown})
        if not proves(_heard(channel)["proof"], proof(self._secret, "answers", shown, greeting)):
            raise ConnectionError("another program answered")
        tune(channel)

    def accept(self, listener: socket.socket, met: dict[str, Sockets]) -> None:
        """Wait for all higher ranks. Raises `OSError` if they have not connected in time."""
        higher = range(self._rank + 1, len(self._machines))
        missing = {(other, use) for other in higher for use in _uses(self._rank, other)}
        while missing:
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError("not all workers have connected")
            listener.settimeout(left)
            channel, _ = listener.accept()
            try:
                channel.settimeout(self._left())
                other, use = self._answer(channel, missing)
            except STRANGE:
                channel.close()
                continue
            met[use][other] = channel
            missing.discard((other, use))

    def _answer(self, channel: socket.socket, missing: set[tuple[int, str]]) -> tuple[int, str]:
        import secrets  # as in `opened`

        challenge = secrets.token_hex(SECRET_BYTES)
        _say(channel, {"challenge": challenge})
        said = _heard(channel)
        greeting = {"from": said["from"], "to": self._rank, "use": said["use"]}
        shown = proof(self._secret, "asks", challenge, greeting)
        if not proves(said["proof"], shown) or (said["from"], said["use"]) not in missing:
            raise ConnectionError("a stranger")
        _say(channel, {"proof": proof(self._secret, "answers", shown, greeting)})
        tune(channel)
        return said["from"], said["use"]


def _say(channel: socket.socket, values: dict[str, Any]) -> None:
    text = json.dumps(values).encode()
    channel.sendall(LENGTH.pack(len(text)) + text)


def _heard(channel: socket.socket) -> dict[str, Any]:
    """Receive a greeting. Raises `OSError` or `ValueError`."""
    (length,) = LENGTH.unpack(exactly(channel, LENGTH.size))
    if length > MOST_GREETING:
        raise ConnectionError(f"a greeting of {length} bytes")
    found = json.loads(exactly(channel, length))
    if not isinstance(found, dict) or not isinstance(found.get("challenge", ""), str):
        raise ValueError("no greeting")
    return found


__all__ = ["Connections", "opened"]
