"""Connections within limits: not more at once than allowed, and none that never says what it wants."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_WITHIN = 10.0
"""Seconds in which the head of a request must have come."""
MOST_WAITING = 64 * 1024


def _last_words(status: str, error: str) -> bytes:
    """An answer without a request, after which the connection ends."""
    body = b'{"error":"%b"}' % error.encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
    return b"%b\r\n\r\n%b" % (head.encode(), body)


FULL = _last_words("503 Service Unavailable\r\nretry-after: 1", "too many connections, ask again later")
NO_HTTP = _last_words("400 Bad Request", "this is no HTTP request")


class Gathering(asyncio.Transport):
    """What is written in one turn of the loop goes out at once: uvicorn writes the head of an answer, then its body."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._waiting = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not data:
            return
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting += data
        if len(self._waiting) > MOST_WAITING:
            # Whoever writes much shall notice when it is too much.
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            data, self._waiting = bytes(self._waiting), bytearray()
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()


class Connection(H11Protocol):
    """One of `most` at once."""

    most: int
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Gathering(transport, self.loop))
        self._wait_for_head()
        if len(self.connections) > self.most:
            transport.write(FULL)
            transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait_for_head()
        else:
            self._stop_waiting()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            # Not into the middle of another answer.
            self.transport.write(NO_HTTP)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_WITHIN, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def limited(most: int) -> type[Connection]:
    """The protocol of one server, for so many connections."""
    return type("Limited", (Connection,), {"most": most})
