"""A server's end of the connection to one worker."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

from gemel.errors import KVStoreError, ProtocolError
from gemel.kvstore.server.protocol import (
    MOST_BYTES,
    MOST_UNKNOWN,
    NONCE_BYTES,
    Decoder,
    Kind,
    Message,
    encode,
    text_message,
    tune,
)

if TYPE_CHECKING:
    from gemel.kvstore.server.server import Server

#: Seconds in which a stranger must prove that it knows the secret.
HANDSHAKE = 5.0


class Connection(asyncio.BufferedProtocol):
    """One worker's connection, from the server's side."""

    def __init__(self, server: Server) -> None:
        self.rank = -1
        self.run = ""
        self.closed = False
        self.challenge = secrets.token_hex(NONCE_BYTES)
        self._server = server
        self._decoder = Decoder(MOST_UNKNOWN, self._check)
        self._transport: Any = None
        self._timer: Any = None

    def connection_made(self, transport: Any) -> None:
        """Send a challenge to the new connection."""
        self._transport = transport
        tune(transport.get_extra_info("socket"))
        if not self._server.admit(self):
            transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE, self._expire)
        self.send(text_message(Kind.CHALLENGE, {"challenge": self.challenge}))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._server.leave(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes belong."""
        return self._decoder.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Some bytes have arrived."""
        if self.closed:
            return
        if self.rank >= 0:
            self._server.hear(self.rank)
        try:
            message = self._decoder.filled(nbytes)
            if message is None:
                return
            if self.rank >= 0:
                self._server.take(self, message)
            elif message.kind == Kind.HELLO:
                self._server.greet(self, message)
                self._timer.cancel()
                self._decoder.most = MOST_BYTES
            else:
                raise ProtocolError(f"{message.kind.name} arrived before HELLO")
        except KVStoreError as error:
            self.refuse(error)
            self.close()

    def _check(self, message: Message) -> None:
        if self.rank >= 0:
            self._server.check(self.rank, message)

    def _expire(self) -> None:
        if self.rank < 0:
            self.close()

    def refuse(self, error: KVStoreError, tag: int = 0) -> None:
        """Answer with an error."""
        values = {"type": type(error).__name__, "message": str(error)}
        self.send(text_message(Kind.ERROR, values, tag=tag))

    def send(self, message: Message) -> None:
        """Send a message when the other end can receive it."""
        if self.closed:
            return
        header, body = encode(message)
        self._transport.write(header)
        if len(body):
            self._transport.write(body)

    def close(self) -> None:
        """Close the connection after everything has been sent."""
        self.closed = True
        self._server.leave(self)
        if self._transport is not None:
            self._transport.close()


__all__ = ["Connection"]
