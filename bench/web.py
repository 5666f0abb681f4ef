"""Measure the web app on a large history: the queries of its console, and the first load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from statistics import median
from time import perf_counter

from bench.engine import Engine
from bench.pages import page_loads
from bench.row import Goal, Row, compare_to_goal
from bench.scale import Scale
from holdfast.queue.event import INBOX
from holdfast.store import Store, open_store
from holdfast.store.dead_groups import DeadGroups
from holdfast.store.messages import MessageFilter, MessageSearch
from holdfast.store.overview import OverviewReads
from holdfast.store.statistics import WINDOWS, read_by_target, read_series, roll_up
from holdfast.testing.history import GeneratedHistory, fill_history

Query = Callable[[], Awaitable[object]]
MOST_MILLISECONDS = {"postgres": 100.0, "sqlite": 300.0}
FIRST_PAGE_MILLISECONDS = 1000.0
ROUNDS = 9


async def web(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    with engine.fresh() as url:
        history = GeneratedHistory(rows=scale.history, until=datetime.now(UTC))
        await asyncio.to_thread(fill_history, url, history)
        async with open_store(url) as store:
            await roll_up(store)
            most = MOST_MILLISECONDS[engine.name]
            async for row in _measured(engine, scale, _overview(store), most):
                yield row
            async for row in _measured(engine, scale, _lists(store), FIRST_PAGE_MILLISECONDS):
                yield row
        async for row in page_loads(engine, scale, url):
            yield row


def _overview(store: Store) -> Mapping[str, Query]:
    """Return the queries of the overview; a chart is one query."""
    reads = OverviewReads(store)
    charts: dict[str, Query] = {
        f"chart of the last {name}": partial(read_series, store, window, INBOX)
        for name, window in WINDOWS.items()
    }
    return {
        **charts,
        "chart of an agent's day": lambda: read_series(store, WINDOWS["day"], INBOX, ["coder"]),
        "numbers of all agents": lambda: read_by_target(store, WINDOWS["day"], INBOX),
        "counts of the queues": store.counts,
        "dead letters": reads.dead,
        "turns in progress": reads.running,
        "approvals": reads.approvals,
    }


def _lists(store: Store) -> Mapping[str, Query]:
    search, few = MessageSearch(store), MessageFilter(text="needle", agents=["coder"])
    return {
        "first page of messages": lambda: search.find(MessageFilter()),
        "first page, a filter that matches little": lambda: search.find(few),
        "first page of dead letters": lambda: search.find(MessageFilter(state="dead")),
        "dead letters in groups": DeadGroups(store).all,
    }


async def _measured(
    engine: Engine, scale: Scale, queries: Mapping[str, Query], most: float
) -> AsyncIterator[Row]:
    for name, query in queries.items():
        times = [await _milliseconds(query) for _ in range(ROUNDS)]
        what = f"{name}, {scale.history:,} in history"
        yield compare_to_goal(Goal(most, at_most=True), engine.name, what, median(times), unit="ms")


async def _milliseconds(query: Query) -> float:
    begun_at = perf_counter()
    await query()
    return (perf_counter() - begun_at) * 1000
