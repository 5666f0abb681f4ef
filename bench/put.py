"""Measure put: one by one, by eight tasks at once, in bulk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import perf_counter

from bench.database import with_raw
from bench.engine import Engine
from bench.row import Row, Run, blocking, compare_runs, interleave
from bench.scale import Scale
from bench.workload import Feed, Shape
from holdfast.queue.event import NewEvent
from holdfast.store import Store

TASKS = 8


async def put_one(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    async with with_raw(engine) as (store, raw):
        ours = putting(store, Feed(Shape.MANY), scale.puts)
        theirs, found = await interleave(scale.rounds, blocking(raw.put_one, scale.puts), ours)
    yield compare_runs(
        engine.name, "put one by one", found, "one-row inserts", theirs, engine.goals.put_one
    )


async def put_eight(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    count = scale.puts * 4
    async with with_raw(engine) as (store, raw):
        feed = Feed(Shape.MANY)
        theirs, one, eight = await interleave(
            scale.rounds,
            blocking(raw.put_eight, count),
            putting(store, feed, scale.puts),
            putting(store, feed, count, tasks=TASKS),
        )
    goals = engine.goals
    yield compare_runs(
        engine.name, "put by 8 tasks", eight, "inserts, 8 connections", theirs, goals.put_eight
    )
    yield compare_runs(
        engine.name, "put by 8 tasks", eight, "our own, one by one", one, goals.put_eight_over_one
    )


async def put_bulk(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    async with with_raw(engine) as (store, raw):
        ours = putting_together(store, Feed(Shape.MANY), scale.bulk)
        theirs, found = await interleave(scale.rounds, blocking(raw.put_bulk, scale.bulk), ours)
    yield compare_runs(
        engine.name,
        f"put {scale.bulk:,} at once",
        found,
        "bulk load",
        theirs,
        engine.goals.put_bulk,
    )


def putting(store: Store, feed: Feed, count: int, *, tasks: int = 1) -> Run:
    """Put events one by one from several tasks, which share one stream of events."""

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
    """Put all events in one call."""

    async def run() -> float:
        events = feed.take(count)
        start = perf_counter()
        await store.put(events)
        return count / (perf_counter() - start)

    return run
