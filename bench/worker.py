"""Measure a `holdfast work` process with an agent that does nothing: drain rate and memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime

from bench.engine import Engine
from bench.memory import FLAT
from bench.process import MEGABYTE, run_process
from bench.row import Row, Run, blocking, compare_runs, compare_to_goal, interleave
from bench.scale import Scale
from bench.sink import sink
from bench.workload import BATCH, TARGET, Feed, Shape
from holdfast.queue.event import INBOX
from holdfast.queue.store import Filter
from holdfast.store import Store, open_store

EVENTS = 20_000
POLL_INTERVAL = 0.02
NOOP = ("--workers", str(BATCH), "--app", "bench.apps:noop")


async def worker_drain(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    plain, traced = f"a worker drains {EVENTS:,}", f"a worker drains {EVENTS:,}, sends spans"
    with engine.fresh() as url, closing(engine.raw(url)) as raw, sink() as collector:
        async with open_store(url) as store:
            feed = Feed(Shape.MANY)
            theirs, quiet, telling = await interleave(
                scale.rounds,
                blocking(raw.drain, EVENTS, BATCH),
                draining(store, url, feed),
                draining(store, url, feed, collector.url),
            )
        assert collector.received, "the worker that was to send spans sent none"
    for what, found in ((plain, quiet), (traced, telling)):
        row = compare_runs(
            engine.name, what, found, "claim, move to history", theirs, engine.goals.worker_drain
        )
        yield row
        if engine.goals.worker_rate is not None:
            yield compare_to_goal(engine.goals.worker_rate, engine.name, what, row.measured)


def draining(store: Store, url: str, feed: Feed, collector: str | None = None) -> Run:
    """Put the events, then start a worker. Timed from its first claim until the queue is empty."""

    async def run() -> float:
        ids = [id for id in await store.put(feed.take(EVENTS)) if id is not None]
        with run_process("work", url, *NOOP, collector=collector):
            await _wait_ended(store, ids[-1])
            while await store.waiting(INBOX, TARGET, limit=1):  # noqa: ASYNC110 - no signal
                await asyncio.sleep(POLL_INTERVAL)
            ended_at = datetime.now(UTC)
        ended = await store.finished(Filter(queue=INBOX), limit=EVENTS, since_id=ids[0] - 1)
        assert len(ended) == EVENTS, f"{len(ended)} of {EVENTS} events drained"
        began_at = min(event.claimed[0] for event in ended)
        return EVENTS / (ended_at - began_at).total_seconds()

    return run


async def worker_memory(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    with engine.fresh() as url:
        engine.load(url, Shape.MANY, scale.drained)
        with run_process("work", url, *NOOP) as worker:
            async with open_store(url) as store:
                await _wait_ended(store, scale.drained // 10)
                early = worker.resident()
                await _wait_ended(store, scale.drained)
                late = worker.resident()
    yield Row(
        store=engine.name,
        what=f"memory of a worker after {scale.drained:,}",
        measured=late / MEGABYTE,
        against="at 10 %",
        beside=early / MEGABYTE,
        # A short drain is still warming up at 10 %.
        goal=FLAT if scale.binding else None,
        unit="MB",
    )


async def _wait_ended(store: Store, id: int) -> None:
    """Wait until an event has ended. Events end about in order, and one look costs little."""
    while await store.live(id) is not None:  # noqa: ASYNC110 - another process ends it
        await asyncio.sleep(POLL_INTERVAL)
