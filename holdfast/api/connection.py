"""A connection to the API: strict framing, and time limits for slow clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.api.body import HAS_WHOLE_BODY
from holdfast.api.framing import Framing, FramingError
from holdfast.api.limits import Limits
from holdfast.api.response import ApiError
from holdfast.api.security.connection_limit import ConnectionLimit
from holdfast.api.security.guard import SECURITY_HEADERS
from holdfast.telemetry import CLIENT_TOO_SLOW
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

LINGER = 2.0
"""Seconds to read on after the last response.

Closing with unread input resets the connection, and the client would lose the response."""
LINGER_BYTES = 8 * 1024 * 1024
WRITE_BYTES = 64 * 1024
"""Largest piece of a body that is written at once."""
LOOP_TURNS = 3
"""Iterations of the event loop until the first bytes of a new connection are read."""
CLOSE = (b"connection", b"close")
NO_REQUEST = "not an HTTP request"
BODY_REFUSED = (408, 413)


def _final_response(status: str, error: str) -> bytes:
    """Encode a response that closes the connection; there may be no valid request."""
    body = b'{"error":"%b"}' % error.encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return b"%b\r\nconnection: close\r\n\r\n%b" % (head.encode(), body)


TOO_MANY = _final_response(
    "503 Service Unavailable\r\nretry-after: 1", "too many connections, ask again later"
)
_TOO_MANY = ApiError(
    503,
    "too many connections, ask again later",
    headers={"retry-after": "1", "connection": "close"},
).answer


class ClosingTransport(asyncio.Transport):
    """Calls `end` instead of closing the socket, so that pending input can be read first.

    Adds the security headers to the head of a response, which is the next write after
    `expect_head`. A head that is held goes out with the body, in one system call and one packet."""

    def __init__(
        self, transport: asyncio.Transport, end: Callable[[asyncio.Transport], None]
    ) -> None:
        super().__init__()
        self._transport = transport
        self._end = end
        self._is_closing = False
        self._expects_head = False
        self._holds_head = False
        self._head = b""

    def expect_head(self, *, hold: bool) -> None:
        """Treat the next write as the head of a response; `hold` sends it with the one after."""
        self._expects_head, self._holds_head = True, hold

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        if self._expects_head:
            self._expects_head = False
            # Before the empty line that ends the head.
            data = b"".join((data[:-2], SECURITY_HEADERS, b"\r\n"))
            if self._holds_head:
                self._head = data
                return
        if self._head:
            data, self._head = b"".join((self._head, data)), b""
        if data:
            self._transport.write(data)

    def close(self) -> None:
        if not self._is_closing:
            if self._head:
                self._transport.write(self._head)
            self._is_closing = True
            self._end(self._transport)

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        if not self._is_closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()


class Connection(HttpToolsProtocol):
    """A connection of a client, within the limits of its server."""

    connection_limit: ConnectionLimit
    limits: Limits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._framing = Framing()
        self._is_parsed = False
        self._application, self.app = self.app, self._answer
        self._socket: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._had_answer = False
        self._is_refused = False
        self._lingered: int | None = None

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def _has_begun_answer(self) -> bool:
        # A refused first request has no cycle, though uvicorn's types say that there always is one.
        return getattr(self.cycle, "response_started", False)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._socket = transport
        self._output = ClosingTransport(transport, self._end)
        super().connection_made(self._output)
        self._limit_head()
        if self.connection_limit.arrive(self):
            self._admit_after(LOOP_TURNS)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._lingered is None:
            self._unset_keepalive_if_required()
            self._framing.add(data)
            self._parse()
            self._limit_head()
            self._note_state()
            return
        self._lingered += len(data)
        if self._lingered > LINGER_BYTES:
            self.evict()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_parsed = False

    def on_header(self, name: bytes, value: bytes) -> None:
        # The parser leaves whitespace at the end of a value.
        super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        if self.parser.get_http_version() == "1.0":
            # Such clients would take 100 (Continue) for the response.
            self.expect_100_continue = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_parsed = True

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._framing.start_next()
            self._parse()
        self._note_state()

    def send_400_response(self, msg: str) -> None:
        self._refuse_request(NO_REQUEST)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.read_seconds, self._drop_slow_reader)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._write_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._write_timer):
            _cancel(timer)
        self.connection_limit.leave(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._lingered is None:
            super().shutdown()
        else:
            self.evict()

    def evict(self) -> None:
        """Abort the connection, without sending the rest."""
        if self._socket is not None:
            self._socket.abort()

    def _parse(self) -> None:
        """Parse what has arrived of one request, and read no more until it is answered."""
        try:
            while not self.transport.is_closing() and (piece := self._framing.next_piece()):
                super().data_received(piece)
                if self._is_parsed != self._framing.is_done:
                    raise FramingError(NO_REQUEST)
        except FramingError as error:
            self._refuse_request(str(error))
        if self._framing.is_done and self._framing.has_more:
            self.flow.pause_reading()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_bounded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._had_answer |= message["status"] < 400
                # Not a stream: the body follows at once.
                has_length = any(name == b"content-length" for name, _ in message["headers"])
                self._output.expect_head(hold=has_length and scope["method"] != "HEAD")
                if self._framing.is_in_body or message["status"] in BODY_REFUSED:
                    # Unread bytes of the body would be parsed as the next request.
                    message = {**message, "headers": [*message["headers"], CLOSE]}
            await _send_in_pieces(send, message)

        scope[HAS_WHOLE_BODY] = not self._framing.is_in_body
        answering: Any = (
            self._application if self.connection_limit.may_ask(self, scope["path"]) else _TOO_MANY
        )
        await answering(scope, receive, send_bounded)

    def _admit_after(self, turns: int) -> None:
        """Ask for a slot after some loop iterations, so that clients with a request come first."""
        if turns:
            self.loop.call_soon(self._admit_after, turns - 1)
        elif not self.transport.is_closing():
            if self.connection_limit.admit(self):
                self._note_state()
            else:
                self._refuse(TOO_MANY)

    def _limit_head(self) -> None:
        """Limit the time until the head of a request has arrived."""
        if self.transport.is_closing():
            return
        if not self._framing.is_idle:
            _cancel(self._timer)
            self._timer = None
        elif self._timer is None:
            self._timer = self.loop.call_later(self.limits.head_seconds, self.transport.close)

    def _note_state(self) -> None:
        """Mark the connection as idle or busy: only idle ones are evicted."""
        if self._waits_for_client():
            self.connection_limit.waits(self, self._had_answer)
        else:
            self.connection_limit.works(self)

    def _waits_for_client(self) -> bool:
        if self._lingered is not None or self._framing.is_idle:
            return True
        return self._framing.is_in_body and not self._has_begun_answer

    def _refuse_request(self, problem: str) -> None:
        # An error in the middle of another answer would corrupt that answer.
        is_answering = self._has_begun_answer and not self.cycle.response_complete
        self._refuse(b"" if is_answering else _final_response("400 Bad Request", problem))

    def _refuse(self, answer: bytes) -> None:
        self._is_refused = True
        self.transport.write(answer)
        self.transport.close()

    def _end(self, transport: asyncio.Transport) -> None:
        """Close the socket after reading pending input, which would otherwise reset it."""
        _cancel(self._timer)
        has_more = self._is_refused or self._framing.is_in_body
        if has_more and not transport.is_closing() and self._write_eof(transport):
            self._lingered = 0
            self._timer = self.loop.call_later(LINGER, transport.abort)
            self._note_state()
            return
        transport.close()
        if transport.get_write_buffer_size():
            self._timer = self.loop.call_later(self.limits.read_seconds, self._drop_slow_reader)

    def _write_eof(self, transport: asyncio.Transport) -> bool:
        """Close the sending side and read on. Returns whether the client is still connected."""
        try:
            transport.resume_reading()
            transport.write_eof()
        except OSError:
            return False
        return True

    def _drop_slow_reader(self) -> None:
        log.info(Entry(CLIENT_TOO_SLOW, client=self.address))
        self.evict()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


async def _send_in_pieces(send: Send, message: Message) -> None:
    """Send large bodies in pieces, so that slow readers still make measurable progress."""
    body = message.get("body", b"")
    if len(body) <= WRITE_BYTES:
        await send(message)
        return
    last = (len(body) - 1) // WRITE_BYTES * WRITE_BYTES
    for at in range(0, last, WRITE_BYTES):
        await send({**message, "body": body[at : at + WRITE_BYTES], "more_body": True})
    await send({**message, "body": body[last:]})


def connection_of(connection_limit: ConnectionLimit, limits: Limits) -> type[Connection]:
    """Return the protocol class of one server."""
    values = {"connection_limit": connection_limit, "limits": limits}
    return type("ServerConnection", (Connection,), values)
