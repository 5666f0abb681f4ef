"""Putting: one by one, by eight tasks at once, in bulk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import perf_counter

from bench.engine import Engine
from bench.opened import with_raw
from bench.row import Row, Run, blocking, compared, interleaved
from bench.scale import Scale
from bench.workload import Feed, Shape
from holdfast.queue.event import NewEvent
from holdfast.store import Store

TASKS = 8


async def put_one(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    async with with_raw(engine) as (store, raw):
        ours = putting(store, Feed(Shape.MANY), scale.puts)
        theirs, found = await interleaved(scale.rounds, blocking(raw.put_one, scale.puts), ours)
    yield compared(
        engine.name, "put one by one", found, "one-row inserts", theirs, engine.goals.put_one
    )


async def put_eight(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    count = scale.puts * 4
    async with with_raw(engine) as (store, raw):
        feed = Feed(Shape.MANY)
        theirs, one, eight = await interleaved(
            scale.rounds,
            blocking(raw.put_eight, count),
            putting(store, feed, scale.puts),
            putting(store, feed, count, tasks=TASKS),
        )
    goals = engine.goals
    yield compared(
        engine.name, "put by 8 tasks", eight, "inserts, 8 connections", theirs, goals.put_eight
    )
    yield compared(
        engine.name, "put by 8 tasks", eight, "our own, one by one", one, goals.put_eight_over_one
    )


async def put_bulk(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    async with with_raw(engine) as (store, raw):
        ours = putting_together(store, Feed(Shape.MANY), scale.bulk)
        theirs, found = await interleaved(scale.rounds, blocking(raw.put_bulk, scale.bulk), ours)
    yield compared(
        engine.name,
        f"put {scale.bulk:,} at once",
        found,
        "bulk load",
        theirs,
        engine.goals.put_bulk,
    )


def putting(store: Store, feed: Feed, count: int, *, tasks: int = 1) -> Run:
    """Puts of one event each by so many tasks, which take them in turn: the same stream, whoever puts it."""

    async def run() -> float:
        events = feed.take(count)
        shares = [events[first::tasks] for first in range(tasks)]
        start = perf_counter()
        async with asyncio.TaskGroup() as group:
            for share in shares:
                group.create_task(_put_each(store, share))
        return count / (perf_counter() - start)

    return run


async def _put_each(store: Store, events: list[NewEvent]) -> None:
    for event in events:
        await store.put([event])


def putting_together(store: Store, feed: Feed, count: int) -> Run:
    """One put of so many events."""

    async def run() -> float:
        events = feed.take(count)
        start = perf_counter()
        await store.put(events)
        return count / (perf_counter() - start)

    return run
