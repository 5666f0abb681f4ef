"""Absurd with its Python SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psycopg
from absurd_sdk import AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

from bench.peers.side.event import Event
from bench.peers.side.handler import handle

QUEUE = "bench"
TASK = "handle"
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "best": {"concurrency": 100, "batch_size": 500},
    "probe": {"concurrency": 10, "claim_timeout": 2},
}


async def install(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(BUNDLED_SCHEMA_SQL)
        await connection.execute("select absurd.create_queue(%s)", [QUEUE])


@asynccontextmanager
async def client(url: str, connections: int) -> AsyncIterator[object]:
    async with AsyncExitStack() as stack:
        free: asyncio.Queue[Any] = asyncio.Queue()
        for _ in range(connections):
            connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
            free.put_nowait(await stack.enter_async_context(connection))

        async def put(events: list[Event]) -> None:
            connection = await free.get()
            try:
                absurd = AsyncAbsurd(connection, queue_name=QUEUE)
                # It has no call for several tasks; one transaction saves the commits.
                async with connection.transaction():
                    for event in events:
                        await _spawn(absurd, event)
            finally:
                free.put_nowait(connection)

        yield put


async def _spawn(absurd: AsyncAbsurd, event: Event) -> None:
    options: dict[str, Any] = {"idempotency_key": event.key} if event.strict else {}
    await absurd.spawn(TASK, event.payload, queue=QUEUE, **options)


async def work(url: str, mode: str) -> None:
    absurd = AsyncAbsurd(url, queue_name=QUEUE)

    async def emit(event: Event) -> None:
        await _spawn(absurd, event)

    @absurd.register_task(TASK, default_max_attempts=3)
    async def _(payload: dict[str, Any], context: Any) -> None:
        await handle(payload, emit)

    print("the worker is ready", flush=True)
    await absurd.start_worker(**SETTINGS[mode])
