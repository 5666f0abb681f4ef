"""DBOS: an event is a workflow on a queue in its system database."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions

from bench.peers.side.event import Event
from bench.peers.side.handler import handle

QUEUE = "bench"
LANES = "lanes"
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "best": {"worker_concurrency": 500, "polling_interval_sec": 0.1},
    "probe": {"polling_interval_sec": 0.1},
}
POOL = {"default": 20, "best": 20, "probe": 20}


def _url(url: str) -> str:
    """Return the URL with the driver that DBOS asks for."""
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


def _launch(url: str, mode: str) -> None:
    config = DBOSConfig(
        name="bench",
        system_database_url=url,
        sys_db_pool_size=POOL[mode],
        application_version="1",
        executor_id=os.environ.get("BENCH_EXECUTOR", "local"),
        log_level="ERROR",
        run_admin_server=False,
    )
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(QUEUE, **SETTINGS[mode])
    DBOS.register_queue(LANES, partition_concurrency=1, polling_interval_sec=0.1)


@DBOS.workflow(name="handle")
async def answer(payload: dict[str, Any]) -> None:
    async def emit(event: Event) -> None:
        await DBOS.enqueue_workflow_async(QUEUE, answer, event.payload)

    if payload.get("does") == "fails first":
        await answer_in_step(payload)
    else:
        await handle(payload, emit)


@DBOS.step(retries_allowed=True, max_attempts=3, interval_seconds=1)
async def answer_in_step(payload: dict[str, Any]) -> None:
    """Handle an event in a step: DBOS retries steps, not workflows."""
    await handle(payload)


async def install(url: str) -> None:
    await asyncio.to_thread(_launch, url, "default")
    await asyncio.to_thread(DBOS.destroy)


@asynccontextmanager
async def client(url: str, connections: int) -> AsyncIterator[object]:
    dbos = DBOSClient(system_database_url=url, system_database_pool_size=connections)

    async def put(events: list[Event]) -> None:
        for event in events:
            await dbos.enqueue_async(_options(event), event.payload)

    yield put
    dbos.destroy()


def _options(event: Event) -> EnqueueOptions:
    if event.strict:
        return EnqueueOptions(
            queue_name=LANES,
            workflow_name="handle",
            workflow_id=event.key,
            queue_partition_key=event.lane,
        )
    return EnqueueOptions(queue_name=QUEUE, workflow_name="handle")


async def work(url: str, mode: str) -> None:
    await asyncio.to_thread(_launch, url, mode)
    print("the worker is ready", flush=True)
    await asyncio.Event().wait()
