"""The raw limit: hand-written SQL with psycopg, without any guarantee but that of a commit."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from psycopg_pool import AsyncConnectionPool

from bench.peers.side.event import Event
from bench.peers.side.handler import handle
from bench.postgres import RAW_CLAIM, RAW_SETTLE, RAW_TABLES

BATCH = {"default": 1, "best": 500}
PUT = "insert into raw_queue (event) values (%s)"
COPY = "copy raw_queue (event) from stdin"


async def install(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(RAW_TABLES)


@asynccontextmanager
async def client(url: str, connections: int) -> AsyncIterator[object]:
    async with AsyncConnectionPool(
        url, min_size=connections, max_size=connections, kwargs={"autocommit": True}, open=False
    ) as pool:
        await pool.wait()

        async def put(events: list[Event]) -> None:
            async with pool.connection() as connection:
                if len(events) == 1:
                    await connection.execute(PUT, [json.dumps(events[0].payload)])
                    return
                async with connection.cursor() as cursor, cursor.copy(COPY) as copy:
                    for event in events:
                        await copy.write_row([json.dumps(event.payload)])

        yield put


async def work(url: str, mode: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        print("the worker is ready", flush=True)
        while True:
            claimed = await (await connection.execute(RAW_CLAIM, [BATCH[mode]])).fetchall()
            if not claimed:
                return
            for _, payload in claimed:
                await handle(payload)
            await connection.execute(RAW_SETTLE, [[id for id, _ in claimed]])
