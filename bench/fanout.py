"""Measure the event stream with 200 clients of one server: frames per second, and delay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from statistics import median

from bench.engine import Engine
from bench.event_stream import watching
from bench.process import run_process
from bench.row import Row
from bench.scale import Scale
from holdfast.queue.record import Activity
from holdfast.store import Store, open_store

CLIENTS = 200
FRAMES = 2000
TOGETHER = 20
PORT = 38777
LAST = "processor_start"


async def fan_out(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    with engine.fresh() as url, run_process("serve", url, "--port", str(PORT), "--no-auth"):
        async with open_store(url) as store:
            rates, lates = zip(*[await _round(store) for _ in range(scale.rounds)], strict=True)
    yield Row(
        store=engine.name,
        what=f"frames to {CLIENTS} clients",
        measured=median(rates),
        against="frames written",
        beside=median(rates) / CLIENTS,
        unit="frames/s",
    )
    yield Row(
        store=engine.name,
        what=f"delay until {CLIENTS} clients have a frame",
        measured=median(lates) * 1000,
        against="one poll",
        beside=100,
        unit="ms",
    )


async def _round(store: Store) -> tuple[float, float]:
    """Return the frames per second of all clients, and the delay of a single frame to the last."""
    connected = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        clients = [group.create_task(_client(connected)) for _ in range(CLIENTS)]
        for _ in clients:
            await connected.acquire()
        written_at = time.perf_counter()
        await store.put([], records=[Activity(({"type": "response_ready", "messageId": "alone"},))])
        for _ in clients:
            await connected.acquire()
        late = time.perf_counter() - written_at
        begun_at = time.perf_counter()
        for _ in range(FRAMES // TOGETHER):
            await store.put(
                [],
                records=[
                    Activity(({"type": "chain_step_done", "response": "x" * 100},) * TOGETHER)
                ],
            )
        await store.put([], records=[Activity(({"type": LAST},))])
        await asyncio.gather(*clients)
    return CLIENTS * FRAMES / (time.perf_counter() - begun_at), late


async def _client(connected: asyncio.Semaphore) -> None:
    async with watching(PORT) as stream:
        async for frame in stream.frames():
            if frame.event in ("connected", "response_ready"):
                connected.release()
            if frame.event == LAST:
                return
