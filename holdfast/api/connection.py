"""Connections within limits: not more at once than allowed, and none that never says what it wants."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_WITHIN = 10.0
"""Seconds in which the head of a request must have come."""

BODY = b'{"error":"too many connections, ask again later"}'
FULL = b"\r\n".join(
    [
        b"HTTP/1.1 503 Service Unavailable",
        b"content-type: application/json",
        b"content-length: %d" % len(BODY),
        b"connection: close",
        b"retry-after: 1",
        b"",
        BODY,
    ]
)


def limited(most: int) -> type[H11Protocol]:
    """The protocol of one server, for so many connections."""

    class Connection(H11Protocol):
        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait_for_head()
            if len(self.connections) > most:
                transport.write(FULL)
                transport.close()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE:
                self._wait_for_head()
            else:
                self._stop_waiting()

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

    return Connection
