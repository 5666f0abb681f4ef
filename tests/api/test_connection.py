"""The end of a connection: complete, and once."""

from __future__ import annotations

import asyncio

from holdfast.api.connection import ClosingTransport


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
