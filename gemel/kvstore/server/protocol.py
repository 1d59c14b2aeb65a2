"""The messages of workers and parameter servers: a typed header, then raw bytes.

All numbers are big-endian. A message is a header of 64 bytes, `ndim` extents of 8 bytes each, and
`length` bytes: the elements of an array in C order (little-endian), or JSON, or nothing. Nothing
from the network is unpickled or executed, and every length is checked before memory is allocated.

    bytes   field      meaning
    0-3     magic      b"GKV1"
    4       version    1
    5       kind       a `Kind`
    6       dtype      an index into DTYPES, or 255 where there is no array
    7       ndim       number of extents, at most 8
    8-15    tag        a request's number, which its answer repeats
    16-23   key        which array (see `split.key_number`)
    24-31   sequence   how many pushes of this key the worker has made, this one included
    32-39   length     bytes that follow the extents
    40-63   numbers    three float64: learning rate, scale of the gradient, weight decay
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

from gemel.errors import DTypeError, ProtocolError, ShapeError

if TYPE_CHECKING:
    import numpy

MAGIC = b"GKV1"
VERSION = 1
HEADER = struct.Struct(">4sBBBBQQQQddd")
EXTENT = struct.Struct(">Q")
MOST_DIMENSIONS = 8
#: The most bytes of an array in one message.
MOST_BYTES = 1 << 30
#: The most bytes of text in one message.
MOST_TEXT = 1 << 20
#: The most bytes of a message from a sender that has not yet proved that it knows the secret.
MOST_UNKNOWN = 1 << 10
NO_DTYPE = 255
DTYPES = (
    *("float32", "float64", "float16", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
)
NONCE_BYTES = 32
#: A socket option that the module socket has no name for (linux/tcp.h).
TCP_RTO_MAX_MS = 44


class Kind(IntEnum):
    """The kind of a message."""

    CHALLENGE = 1
    HELLO = 2
    WELCOME = 3
    DECLARE = 4
    INIT = 5
    PUSH = 6
    PULL = 7
    OPTIMIZER = 8
    HEARTBEAT = 9
    ACTIVATE = 10
    LEAVE = 11
    LEFT_OUT = 12
    DONE = 13
    VALUE = 14
    ERROR = 15
    COMPARE = 16
    STATE = 17
    RESTORE = 18


#: Kinds that carry an array, and those that carry JSON.
ARRAYS = frozenset((Kind.INIT, Kind.PUSH, Kind.VALUE, Kind.RESTORE))
TEXTS = frozenset(
    (Kind.HELLO, Kind.WELCOME, Kind.DECLARE, Kind.OPTIMIZER, Kind.DONE, Kind.ERROR, Kind.LEFT_OUT)
    + (Kind.CHALLENGE, Kind.COMPARE)
)
#: Kinds that a stranger may send to a server, and receive from one.
STRANGERS = frozenset((Kind.CHALLENGE, Kind.HELLO, Kind.WELCOME, Kind.ERROR))

Numbers = tuple[float, float, float]


@dataclass(frozen=True)
class Message:
    """One message; `body` is JSON, or the bytes of an array of `shape` and `dtype`."""

    kind: Kind
    tag: int = 0
    key: int = 0
    sequence: int = 0
    shape: tuple[int, ...] = ()
    dtype: str = ""
    numbers: Numbers = (0.0, 0.0, 0.0)
    body: Any = field(default=b"", repr=False)
    length: int = -1

    @property
    def size(self) -> int:
        """The number of bytes of the body."""
        return len(self.body)

    def array(self) -> numpy.ndarray[Any, Any]:
        """The array it carries; it shares the memory of the body."""
        import numpy

        flat = numpy.frombuffer(self.body, numpy.dtype(self.dtype).newbyteorder("<"))
        return flat.reshape(self.shape)

    def values(self) -> dict[str, Any]:
        """The JSON object it carries. Raises `ProtocolError`."""
        try:
            found = json.loads(bytes(self.body).decode("utf-8"))
            # JSON may escape half of a surrogate pair, and such a text cannot be encoded again.
            json.dumps(found, ensure_ascii=False).encode("utf-8")
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"{self.kind.name}: its text is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise ProtocolError(f"{self.kind.name}: its text is not a JSON object")
        return found


def text_message(kind: Kind, values: dict[str, Any], **fields: Any) -> Message:
    """A message that carries JSON."""
    return Message(kind, body=json.dumps(values, allow_nan=False).encode(), **fields)


def array_message(kind: Kind, array: Any, **fields: Any) -> Message:
    """A message that carries a NumPy array. Raises `ProtocolError` for other dtypes than these."""
    import numpy

    if array.dtype.name not in DTYPES:
        raise ProtocolError(f"{kind.name}: arrays of {array.dtype} cannot be sent to servers")
    dense = numpy.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    body = dense.reshape(-1).view(numpy.uint8).data
    return Message(kind, shape=tuple(array.shape), dtype=array.dtype.name, body=body, **fields)


def check_sendable(key: Any, shape: Sequence[int], dtype: str) -> None:
    """Raise `DTypeError` or `ShapeError` if servers cannot keep such an array."""
    if dtype not in DTYPES:
        raise DTypeError(
            f"kvstore: key {key!r} is {dtype}{list(shape)}, but servers keep no {dtype}; convert "
            f"it to one of {', '.join(DTYPES)}"
        )
    if len(shape) > MOST_DIMENSIONS:
        raise ShapeError(
            f"kvstore: key {key!r} is {dtype}{list(shape)}, but servers keep at most "
            f"{MOST_DIMENSIONS} dimensions; reshape it"
        )


def encode(message: Message) -> tuple[bytes, Any]:
    """The header with extents, and the body, as they are sent."""
    code = DTYPES.index(message.dtype) if message.dtype else NO_DTYPE
    header = HEADER.pack(
        MAGIC,
        VERSION,
        message.kind,
        code,
        len(message.shape),
        message.tag,
        message.key,
        message.sequence,
        message.size,
        *message.numbers,
    )
    return header + b"".join(map(EXTENT.pack, message.shape)), message.body


def _header(data: bytes, most: int) -> tuple[Message, int]:
    """Parse a header: returns a message without extents and body, and the number of extents."""
    magic, version, kind, code, ndim, tag, key, sequence, length, *numbers = HEADER.unpack(data)
    if magic != MAGIC or version != VERSION:
        raise ProtocolError(
            f"not a message of gemel's servers: it begins with {magic!r}, version {version}, not "
            f"with {MAGIC!r}, version {VERSION}"
        )
    try:
        known = Kind(kind)
    except ValueError:
        raise ProtocolError(f"there is no message of kind {kind}") from None
    if ndim > MOST_DIMENSIONS:
        raise ProtocolError(
            f"{known.name}: {ndim} dimensions; at most {MOST_DIMENSIONS} are allowed"
        )
    if (known in ARRAYS) != (code < len(DTYPES)) or (code >= len(DTYPES) and code != NO_DTYPE):
        raise ProtocolError(f"{known.name}: dtype code {code} is not valid there")
    if known not in ARRAYS and (ndim or (length and known not in TEXTS)):
        raise ProtocolError(f"{known.name}: it carries {ndim} extents and {length} bytes")
    limit = min(most, MOST_BYTES if known in ARRAYS else MOST_TEXT)
    if length > limit:
        raise ProtocolError(
            f"{known.name}: {length} bytes are announced; at most {limit} are allowed"
        )
    if not all(map(isfinite, numbers)):
        raise ProtocolError(f"{known.name}: its numbers {numbers} are not finite")
    name = DTYPES[code] if known in ARRAYS else ""
    found = Message(
        known, tag, key, sequence, (), name, (numbers[0], numbers[1], numbers[2]), b"", length
    )
    return found, ndim


def _shaped(message: Message, data: bytes) -> Message:
    """The message with its extents, which determine the length of its body."""
    shape = tuple(extent for (extent,) in EXTENT.iter_unpack(data))
    size = {"8": 1, "6": 2, "2": 4, "4": 8}[message.dtype[-1]]
    if prod(shape) * size != message.length:
        raise ProtocolError(
            f"{message.kind.name}: {message.length} bytes are announced for an array of "
            f"{message.dtype}{list(shape)}"
        )
    return replace(message, shape=shape)


class Decoder:
    """Assembles messages from pieces of any size; it allocates memory only for what was checked.

    ``buffer()`` is where the next bytes belong. ``filled(n)`` says that n bytes have arrived there,
    and returns the message that they complete, if any. `check` is called with each header before
    memory is allocated for the body. Both may raise `ProtocolError`; after that the decoder cannot
    be used.
    """

    def __init__(
        self, most: int = MOST_BYTES, check: Callable[[Message], None] | None = None
    ) -> None:
        self.most = most
        self._check = check
        self._begin()

    def _begin(self) -> None:
        self._message: Message | None = None
        self._extents = 0
        self._expect(HEADER.size)

    def _expect(self, size: int) -> None:
        self._memory = bytearray(size)
        self._got = 0

    @property
    def idle(self) -> bool:
        """Whether it is between two messages."""
        return self._message is None and self._got == 0

    def buffer(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        return memoryview(self._memory)[self._got :]

    def filled(self, count: int) -> Message | None:
        """Record `count` bytes in `buffer()`; returns the message that they complete, or None."""
        self._got += count
        if self._got < len(self._memory):
            return None
        message = self._message
        if message is None:
            message, self._extents = _header(bytes(self._memory), self.most)
            self._message = message
            if self._extents:
                self._expect(self._extents * EXTENT.size)
                return None
            data = b""
        elif self._extents:
            data = bytes(self._memory)
        else:
            found = replace(message, body=self._memory, length=-1)
            self._begin()
            return found
        return self._sized(_shaped(message, data) if message.dtype else message)

    def _sized(self, message: Message) -> Message | None:
        self._extents = 0
        if self._check is not None:
            self._check(message)
        if message.length == 0:
            self._begin()
            return replace(message, length=-1)
        self._message = message
        self._expect(message.length)
        return None

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes."""
        found = []
        left = memoryview(data)
        while left:
            place = self.buffer()
            count = min(len(left), len(place))
            place[:count] = left[:count]
            message = self.filled(count)
            if message is not None:
                found.append(message)
            left = left[count:]
        return found


def exactly(channel: socket.socket, count: int) -> bytes:
    """Receive this many bytes. Raises `ConnectionError` if the connection ends before."""
    found = b""
    while len(found) < count:
        part = channel.recv(count - len(found))
        if not part:
            raise ConnectionError(f"the connection has ended after {len(found)} of {count} bytes")
        found += part
    return found


def tune(channel: socket.socket) -> None:
    """Make a connection send without delay, and resume soon after a broken link works again.

    Linux retransmits after 0.2 s, 0.4 s, 0.8 s and so on, up to 2 minutes. Here the longest pause
    is 1 s, on kernels that have the option (6.15 and later).
    """
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            channel.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, 1000)


def proof(secret: bytes, who: str, challenge: str, greeting: dict[str, Any]) -> str:
    """The proof of knowing the secret: HMAC-SHA256 (RFC 2104) over challenge and greeting."""
    text = json.dumps([who, challenge, greeting], sort_keys=True).encode()
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


def proves(given: object, wanted: str) -> bool:
    """Whether a proof is correct, in a time that does not reveal how much of it is right."""
    return isinstance(given, str) and hmac.compare_digest(given.encode(), wanted.encode())


__all__ = [
    "MOST_BYTES",
    "MOST_UNKNOWN",
    "NONCE_BYTES",
    "STRANGERS",
    "Decoder",
    "Kind",
    "Message",
    "array_message",
    "check_sendable",
    "encode",
    "exactly",
    "proof",
    "proves",
    "text_message",
    "tune",
]
