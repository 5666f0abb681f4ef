"""Stopping a server: running requests are answered, new ones refused, streams resume elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from bench.event_stream import Frame, Stream, watching
from holdfast import NewEvent
from holdfast.store import open_store
from tests.api.serving import LOOPBACK
from tests.cli.shell import Running, Shell

TIMEOUT_SECONDS = 30
both_engines = pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def shell(database_url: str, tmp_path: Path) -> Shell:
    shell = Shell(tmp_path, database_url)
    # A busy machine can hold up the loop, and these tests look for lines in the log.
    shell.environment["HOLDFAST_BLOCKED_AFTER"] = "0"
    return shell


@contextmanager
def serving(shell: Shell) -> Iterator[tuple[Running, int]]:
    with shell.running("serve", "--port", "0", "--no-auth") as server:
        port = urlsplit(server.address).port
        assert port is not None
        yield server, port


class Asked:
    """A request on a connection of its own, of which not all was sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, text: str) -> None:
        self._writer.write(text.encode())
        await self._writer.drain()

    async def answer(self) -> tuple[int, object]:
        """The status and the body, after which the server closes."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            head, _, body = (await self._reader.read()).decode().partition("\r\n\r\n")
        return int(head.split()[1]), json.loads(body)


@asynccontextmanager
async def asking(port: int, request: str, length: int = 0) -> AsyncIterator[Asked]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        asked = Asked(reader, writer)
        head = f"host: {LOOPBACK}:{port}\r\nconnection: close\r\ncontent-length: {length}"
        await asked.send(f"{request} HTTP/1.1\r\n{head}\r\n\r\n")
        yield asked
    finally:
        writer.close()
        await writer.wait_closed()


async def refuses(port: int) -> None:
    """Until nobody new is let in."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection(LOOPBACK, port)
            except ConnectionRefusedError:
                return
            except ConnectionResetError:
                # The listener was closed while this connection waited in its queue.
                continue
            writer.close()
            await asyncio.sleep(0.01)


@both_engines
async def test_a_message_whose_body_is_still_to_come_is_stored_and_answered(
    shell: Shell, database_url: str
) -> None:
    body = '{"message": "hello", "messageId": "m1"}'
    with serving(shell) as (server, port):
        async with asking(port, "POST /api/message", len(body)) as post:
            await post.send(body[:10])
            async with asking(port, "GET /healthz") as get:
                # By now the first bytes have come, too.
                assert (await get.answer())[0] == 200
            server.signal()
            await refuses(port)
            await post.send(body[10:])
            assert await post.answer() == (200, {"ok": True, "messageId": "m1"})
        assert await asyncio.to_thread(server.end) == 0
        assert server.log == ""
    async with open_store(database_url) as store:
        assert [event.message_id for event in await store.recent("inbox", limit=9)] == ["m1"]


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_requests_that_wait_for_the_database_are_answered(
    shell: Shell, database_url: str
) -> None:
    body = '{"message": "hello", "messageId": "m1"}'
    with serving(shell) as (server, port):
        async with AsyncExitStack() as requests:
            async with held(database_url) as waiting:
                # Send them under the lock: requests sent before it could be answered too early.
                enter = requests.enter_async_context
                post = await enter(asking(port, "POST /api/message", len(body)))
                get = await enter(asking(port, "GET /api/responses"))
                await post.send(body)
                await waiting(2)
                server.signal()
                await refuses(port)
            assert await post.answer() == (200, {"ok": True, "messageId": "m1"})
            assert await get.answer() == (200, [])
        assert await asyncio.to_thread(server.end) == 0


@asynccontextmanager
async def held(url: str) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Nobody reads or writes events during the block, which can wait until so many try to."""
    async with await psycopg.AsyncConnection.connect(url) as holder:
        await holder.execute("lock table agent.event in access exclusive mode")

        async def waiting(count: int) -> None:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    # Count "at least": maintenance may wait for the table, too.
                    query = "select count(*) >= %s from pg_catalog.pg_locks where not granted"
                    if await (await holder.execute(query, (count,))).fetchone() == (True,):
                        return
                    await asyncio.sleep(0.01)

        yield waiting


@both_engines
async def test_streams_end_cleanly_and_go_on_at_another_server(
    shell: Shell, database_url: str
) -> None:
    with serving(shell) as (first, port), serving(shell) as (_, other):
        async with (
            open_store(database_url) as store,
            watching(port) as stream,
            watching(other, last_id="0") as steady,
        ):
            for number in range(3):
                await store.put([_new_message(number)])
            frames = [await stream.next() for _ in range(4)]
            first.signal()
            frames += await rest(stream)
            assert await asyncio.to_thread(first.end) == 0
            await store.put([_new_message(3)])
            async with watching(other, last_id=frames[-1].id) as again:
                assert (await again.next()).event == "connected"
                frames += [await again.next() for _ in range(9 - len(frames))]
            assert [frame.id for frame in frames[1:]] == [
                (await _next_frame(steady)).id for _ in range(8)
            ]
        assert first.log == ""


async def rest(stream: Stream) -> list[Frame]:
    """Read the frames up to the end of the stream."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        found = [frame async for frame in stream.frames() if frame.event]
    assert not stream.broke_off
    return found


async def _next_frame(stream: Stream) -> Frame:
    frame = await stream.next()
    return frame if frame.event != "connected" else await stream.next()


def _new_message(number: int) -> NewEvent:
    event = {"kind": "message", "channel": "api", "sender": "ann", "message": str(number)}
    return NewEvent(event=event, message_id=f"m{number}")
