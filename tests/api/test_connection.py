"""Writes to a connection: head and body together, and its end once."""

from __future__ import annotations

import asyncio

from holdfast.api.connection import ClosingTransport
from holdfast.api.security.guard import SECURITY_HEADERS

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n"
SENT_HEAD = HEAD + SECURITY_HEADERS + b"\r\n"


class RecordingTransport(asyncio.Transport):
    """Records writes and the end."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.written.append(b"(closed)")


def test_a_connection_ends_once_and_takes_no_writes_afterwards() -> None:
    recording = RecordingTransport()
    transport = ClosingTransport(recording, lambda inner: inner.close())
    transport.write(b"response")
    for _ in range(2):
        transport.close()
        transport.write(b"too late")
    assert recording.written == [b"response", b"(closed)"]


def test_the_head_of_a_response_is_written_with_its_body() -> None:
    recording = RecordingTransport()
    transport = ClosingTransport(recording, lambda inner: inner.close())
    for body in (b"body", b""):
        transport.expect_head(hold=True)
        transport.write(HEAD + b"\r\n")
        transport.write(body)
        transport.write(b"")
    assert recording.written == [SENT_HEAD + b"body", SENT_HEAD]


def test_the_head_of_a_stream_is_written_at_once() -> None:
    recording = RecordingTransport()
    transport = ClosingTransport(recording, lambda inner: inner.close())
    transport.expect_head(hold=False)
    transport.write(HEAD + b"\r\n")
    assert recording.written == [SENT_HEAD]


def test_a_head_whose_body_never_comes_is_written_at_the_end() -> None:
    recording = RecordingTransport()
    transport = ClosingTransport(recording, lambda inner: inner.close())
    transport.expect_head(hold=True)
    transport.write(HEAD + b"\r\n")
    transport.close()
    assert recording.written == [SENT_HEAD, b"(closed)"]
