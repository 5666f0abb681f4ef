"""PgQueuer with asyncpg and uvloop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import AsyncpgPoolDriver, Job, PgQueuer, Queries, RetryRequested

from bench.peers.side.event import Event
from bench.peers.side.handler import handle

run = uvloop.run
BATCH = {"default": 10, "best": 500, "probe": 10}


async def install(url: str) -> None:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await Queries(AsyncpgPoolDriver(pool)).install()


@asynccontextmanager
async def client(url: str, connections: int) -> AsyncIterator[object]:
    async with asyncpg.create_pool(url, min_size=connections, max_size=connections) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))

        async def put(events: list[Event]) -> None:
            await enqueue(queries, events)

        yield put


async def enqueue(queries: Queries, events: list[Event]) -> None:
    if len(events) == 1 and not events[0].strict:
        await queries.enqueue("handle", json.dumps(events[0].payload).encode())
        return
    await queries.enqueue(
        ["handle"] * len(events),
        [json.dumps(event.payload).encode() for event in events],
        [0] * len(events),
        dedupe_key=[event.key if event.strict else None for event in events],
        on_conflict="skip",
    )


async def work(url: str, mode: str) -> None:
    async with asyncpg.create_pool(url, min_size=2, max_size=10) as pool:
        queuer = PgQueuer.from_asyncpg_pool(pool)

        async def emit(event: Event) -> None:
            await enqueue(Queries(AsyncpgPoolDriver(pool)), [event])

        @queuer.entrypoint("handle")
        async def _(job: Job) -> None:
            assert job.payload is not None
            try:
                await handle(json.loads(job.payload), emit)
            except RuntimeError as error:
                raise RetryRequested(delay=timedelta(seconds=1)) from error

        print("the worker is ready", flush=True)
        await queuer.run(
            batch_size=BATCH[mode],
            heartbeat_timeout=timedelta(seconds=2 if mode == "probe" else 30),
        )
