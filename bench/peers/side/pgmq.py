"""pgmq: the extension's SQL, installed and called by its own Python client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import psycopg
import uvloop
from pgmq.async_queue import PGMQueue
from pgmq.install import get_embedded_install_sql

from bench.peers.side.event import Event
from bench.peers.side.handler import handle

run = uvloop.run
QUEUE = "bench"
GROUP = "x-pgmq-group"
BATCH = {"default": 1, "best": 500, "probe": 10}
LEASE_SECONDS = {"default": 30, "best": 30, "probe": 5}
POLL_SECONDS = 0.1


async def install(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(get_embedded_install_sql())
        await connection.execute("select pgmq.create(%s)", [QUEUE])


@asynccontextmanager
async def client(url: str, connections: int) -> AsyncIterator[object]:
    async with asyncpg.create_pool(url, min_size=connections, max_size=connections) as pool:
        queue = PGMQueue(pool=pool, init_extension=False)

        async def put(events: list[Event]) -> None:
            if len(events) == 1:
                await _send(queue, events[0])
            else:
                await queue.send_batch(QUEUE, [event.payload for event in events])

        yield put


async def _send(queue: PGMQueue, event: Event, connection: Any = None) -> None:
    headers = {GROUP: event.lane} if event.strict else None
    await queue.send(QUEUE, event.payload, headers, conn=connection)


async def work(url: str, mode: str) -> None:
    async with asyncpg.create_pool(url, min_size=2, max_size=10) as pool:
        queue = PGMQueue(pool=pool, init_extension=False)
        print("the worker is ready", flush=True)
        if mode == "probe":
            await _work_in_order(queue)
        while True:
            found = await queue.read_batch(QUEUE, vt=LEASE_SECONDS[mode], batch_size=BATCH[mode])
            for message in found or []:
                await handle(message.message)
            if found:
                await queue.archive_batch(QUEUE, [message.msg_id for message in found])
            else:
                await asyncio.sleep(POLL_SECONDS)


async def _work_in_order(queue: PGMQueue) -> None:
    """Read by groups, and handle the messages of each group one after the other."""
    async with asyncio.TaskGroup() as tasks:
        while True:
            found = await queue.read_grouped(QUEUE, vt=LEASE_SECONDS["probe"], qty=BATCH["probe"])
            groups: dict[str, list[Any]] = {}
            for message in found:
                groups.setdefault((message.headers or {}).get(GROUP, ""), []).append(message)
            for messages in groups.values():
                tasks.create_task(_handle_group(queue, messages))
            await asyncio.sleep(POLL_SECONDS)


async def _handle_group(queue: PGMQueue, messages: list[Any]) -> None:
    """Handle messages until one fails. The rest are visible again when their time is over."""
    with suppress(RuntimeError):
        for message in messages:
            await _handle(queue, message)


async def _handle(queue: PGMQueue, message: Any) -> None:
    """Handle a message, then archive it and send what it adds in one transaction."""
    added: list[Event] = []

    async def emit(event: Event) -> None:
        added.append(event)

    await handle(message.message, emit)
    assert queue.pool is not None
    async with queue.pool.acquire() as connection, connection.transaction():
        for event in added:
            await _send(queue, event, connection)
        await queue.archive(QUEUE, message.msg_id, conn=connection)
