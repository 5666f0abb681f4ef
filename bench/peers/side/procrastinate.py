"""Procrastinate with its psycopg connector."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from procrastinate import App, PsycopgConnector, RetryStrategy
from procrastinate.exceptions import AlreadyEnqueued

from bench.peers.side.event import Event
from bench.peers.side.handler import handle

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "best": {"concurrency": 30},
    "probe": {
        "concurrency": 10,
        "update_heartbeat_interval": 0.5,
        "stalled_worker_timeout": 2.0,
    },
}


def _app(url: str, connections: int) -> App:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=connections, max_size=connections))

    @app.task(name="handle", retry=RetryStrategy(max_attempts=3, wait=1))
    async def _(payload: dict[str, Any]) -> None:
        async def emit(event: Event) -> None:
            await _defer(app, [event])

        await handle(payload, emit)

    return app


async def _defer(app: App, events: list[Event]) -> None:
    if events[0].strict:
        [event] = events
        task = app.configure_task("handle", lock=event.lane, queueing_lock=event.key)
        with suppress(AlreadyEnqueued):
            await task.defer_async(payload=event.payload)
    elif len(events) == 1:
        await app.configure_task("handle").defer_async(payload=events[0].payload)
    else:
        jobs = [{"payload": event.payload} for event in events]
        await app.configure_task("handle").batch_defer_async(*jobs)


async def install(url: str) -> None:
    app = _app(url, 1)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


@asynccontextmanager
async def client(url: str, connections: int) -> AsyncIterator[object]:
    app = _app(url, connections)
    async with app.open_async():

        async def put(events: list[Event]) -> None:
            await _defer(app, events)

        yield put


async def work(url: str, mode: str) -> None:
    app = _app(url, 10)
    stalled_after = SETTINGS[mode].get("stalled_worker_timeout", 30.0)
    async with app.open_async():
        retrying = asyncio.create_task(_retry_stalled(app, stalled_after))
        print("the worker is ready", flush=True)
        await app.run_worker_async(**SETTINGS[mode])
        retrying.cancel()


async def _retry_stalled(app: App, seconds: float) -> None:
    """Retry stalled jobs every second."""
    while True:
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=seconds):
            await app.job_manager.retry_job(job)
        await asyncio.sleep(1)
