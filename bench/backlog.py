"""Cost of a turn over the backlog: the same work at 1,000 to 1,000,000 waiting events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter

from bench.database import with_backlog
from bench.engine import Engine
from bench.row import Row
from bench.scale import Scale
from bench.workload import BATCH, COLLECT, Feed, Shape, drain
from holdfast.store import Store

MILLION = 1_000_000

Samples = dict[str, dict[int, list[float]]]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A store with a backlog that is as long after each step as before."""

    store: Store
    shape: Shape
    feed: Feed

    async def in_batches(self, batches: int) -> dict[str, float]:
        # A lane gives one turn at a time, so there a batch is a turn that collects.
        collect = COLLECT if self.shape is Shape.ONE else 1
        what, size = (
            (f"turns of {COLLECT}", COLLECT) if self.shape is Shape.ONE else (f"by {BATCH}", BATCH)
        )
        drained = put = 0.0
        events = batches * BATCH
        for _ in range(events // size):
            drained += await self._drain(size, limit=BATCH, collect=collect)
            put += await self._put(size, size)
        return {f"claim + settle {what}": events / drained, f"put by {size}": events / put}

    async def one_by_one(self, turns: int) -> dict[str, float]:
        drained = sum([await self._drain(1, limit=1) for _ in range(turns)])
        put = await self._put(turns, 1)
        return {"claim + settle one by one": turns / drained, "put one by one": turns / put}

    async def _drain(self, expected: int, *, limit: int, collect: int = 1) -> float:
        start = perf_counter()
        drained = await drain(self.store, limit=limit, collect=collect)
        took = perf_counter() - start
        assert drained == expected, f"{drained} instead of {expected} events drained"
        return took

    async def _put(self, count: int, size: int) -> float:
        parts = [self.feed.take(size) for _ in range(count // size)]
        start = perf_counter()
        for part in parts:
            await self.store.put(part)
        return perf_counter() - start


async def backlog(shape: Shape, engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    async with AsyncExitStack() as stack:
        queues = {
            count: Waiting(
                await stack.enter_async_context(with_backlog(engine, shape, count)),
                shape,
                Feed(shape, count),
            )
            for count in scale.backlogs
        }
        samples = await _sampled(queues, scale)
    for what, found in samples.items():
        yield _row(engine, f"{what}, {shape}", found)


with_many_lanes = partial(backlog, Shape.MANY)
with_one_lane = partial(backlog, Shape.ONE)
without_lanes = partial(backlog, Shape.NONE)


async def _sampled(queues: dict[int, Waiting], scale: Scale) -> Samples:
    samples: Samples = defaultdict(lambda: defaultdict(list))
    # The first round fills caches and does not count.
    for nth in range(scale.rounds + 1):
        for count, queue in queues.items():
            rates = await queue.in_batches(scale.batches // 2) | await queue.one_by_one(scale.turns)
            for what, rate in rates.items() if nth else ():
                samples[what][count].append(rate)
    return samples


def _row(engine: Engine, what: str, found: dict[int, list[float]]) -> Row:
    series = {count: median(rates) for count, rates in found.items()}
    least, most = min(series), max(series)
    return Row(
        store=engine.name,
        what=what,
        measured=series[most],
        against=f"itself, {most:,} over {least:,} waiting",
        beside=series[least],
        goal=engine.goals.backlog if most == MILLION else None,
        series=series,
        samples=list(found.values()),
    )
