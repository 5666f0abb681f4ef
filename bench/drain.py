"""Measure claim and settle: one by one, and in batches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from time import perf_counter

from bench.database import with_raw
from bench.engine import Engine, Raw
from bench.row import Goal, Row, Run, blocking, compare_runs, interleave
from bench.scale import Scale
from bench.workload import BATCH, Feed, Shape, drain
from holdfast.store import Store


async def drain_one(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    yield await _drained(engine, scale, scale.turns, 1, "claim + settle one by one", None)


async def drain_batch(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    what = f"claim + settle by {BATCH}"
    yield await _drained(
        engine, scale, scale.batches * BATCH, BATCH, what, engine.goals.drain_batch
    )


async def _drained(
    engine: Engine, scale: Scale, events: int, batch: int, what: str, goal: Goal | None
) -> Row:
    async with with_raw(engine) as (store, raw):
        ours = draining(store, raw, Feed(Shape.MANY), events, batch)
        theirs, found = await interleave(scale.rounds, blocking(raw.drain, events, batch), ours)
    return compare_runs(engine.name, what, found, "claim, move to history", theirs, goal)


def draining(store: Store, raw: Raw, feed: Feed, events: int, batch: int) -> Run:
    """Put events, then drain them in batches. Returns the rate of the drain alone."""

    async def run() -> float:
        await store.put(feed.take(events))
        raw.write_back()
        start = perf_counter()
        drained = sum([await drain(store, limit=batch) for _ in range(events // batch)])
        took = perf_counter() - start
        assert drained == events, f"{drained} of {events} events drained"
        return events / took

    return run
