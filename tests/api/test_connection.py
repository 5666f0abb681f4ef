"""Writes to a connection: few, in order, and complete when it closes."""

from __future__ import annotations

import asyncio

from holdfast.api.connection import WRITE_BYTES, Gathering


class Noted(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.written.append(b"(closed)")


async def test_what_is_written_in_one_turn_of_the_loop_is_one_piece() -> None:
    noted = Noted()
    gathering = Gathering(noted, asyncio.get_running_loop())
    for piece in (b"head", b"", b"body"):
        gathering.write(piece)
    assert noted.written == []
    await asyncio.sleep(0)
    gathering.write(b"next")
    await asyncio.sleep(0)
    assert noted.written == [b"headbody", b"next"]


async def test_what_waits_goes_out_before_the_end_and_once() -> None:
    noted = Noted()
    gathering = Gathering(noted, asyncio.get_running_loop())
    gathering.write(b"last words")
    gathering.close()
    await asyncio.sleep(0)
    assert noted.written == [b"last words", b"(closed)"]


async def test_much_does_not_wait() -> None:
    noted = Noted()
    gathering = Gathering(noted, asyncio.get_running_loop())
    gathering.write(b"x" * WRITE_BYTES)
    gathering.write(b"y")
    assert noted.written == [b"x" * WRITE_BYTES + b"y"]
