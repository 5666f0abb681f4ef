"""Huey on SQLite, with each commit synced to the disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from huey import SqliteHuey

from bench.peers.side.event import Event
from bench.peers.side.handler import handle

WORKERS = {"default": 1, "best": 4, "probe": 4}


def _open(url: str) -> tuple[SqliteHuey, Any]:
    huey = SqliteHuey("bench", filename=urlsplit(url).path, fsync=True)

    @huey.task(retries=2, retry_delay=1)
    def answer(payload: dict[str, Any]) -> None:
        async def emit(event: Event) -> None:
            answer(event.payload)

        asyncio.run(handle(payload, emit)) if "journal" in payload else _run(handle(payload))

    return huey, answer


def _run(handling: Any) -> None:
    """Run a handler that awaits nothing, without a loop of its own."""
    try:
        handling.send(None)
    except StopIteration:
        return
    raise AssertionError("the handler waits")


async def install(url: str) -> None:
    _open(url)


@asynccontextmanager
async def client(url: str, connections: int) -> AsyncIterator[object]:
    _, answer = _open(url)

    async def put(events: list[Event]) -> None:
        # Not in threads: SQLite has one writer, so they would only wait for each other.
        for event in events:
            answer(event.payload)

    yield put


async def work(url: str, mode: str) -> None:
    huey, _ = _open(url)
    print("the worker is ready", flush=True)
    # It sets signal handlers, so it blocks the main thread; its workers are threads.
    huey.create_consumer(workers=WORKERS[mode]).run()
