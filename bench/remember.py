"""Measure memory: the rate of indexing observations, and the time of a search in a full index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from statistics import quantiles
from time import perf_counter

from bench.engine import Engine
from bench.questions import FACTS, NAMED, PARAPHRASED
from bench.row import Row
from bench.scale import Scale
from holdfast.consumers.memory import KnowledgeStoreOutboxRelay, RelayOptions
from holdfast.memory.knowledge import (
    DEFAULT_AGENT_NAME,
    KnowledgeDocument,
    KnowledgeScope,
    KnowledgeStore,
)
from holdfast.memory.observation import Observation, ObservationStore
from holdfast.queue.event import MEMORY
from holdfast.store import Store, open_store
from holdfast.store.memory import open_knowledge, open_observations

SUBJECTS = 50
TOGETHER = 500
EVERYTHING = KnowledgeScope("bench", "everything")
OPTIONS = RelayOptions(poll_interval=timedelta(seconds=1))


async def memory_index(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    count = scale.observations
    with engine.fresh() as url:
        async with open_store(url) as store:
            observations, knowledge = open_observations(store), open_knowledge(store)
            saved = await _save(store, observations, count)
            indexed = await _index(store, observations, knowledge, count)
            yield Row(
                store=engine.name,
                what=f"indexing {count:,} observations",
                measured=indexed,
                against=f"saving them, {TOGETHER} at once",
                beside=saved,
                unit="per s",
            )
            own = await _search_times(knowledge, KnowledgeScope(DEFAULT_AGENT_NAME, "acme:USER:u0"))
            contents = (
                KnowledgeDocument(id=str(number), content=_content(number))
                for number in range(count)
            )
            await knowledge.reindex(EVERYTHING, contents)
            whole = await _search_times(knowledge, EVERYTHING)
            yield Row(
                store=engine.name,
                what=f"search in 1 of {SUBJECTS} subjects, p95",
                measured=own,
                against=f"{count:,} facts of one subject",
                beside=whole,
                unit="ms",
            )


def _content(number: int) -> str:
    return f"{FACTS[number % len(FACTS)]}, as was said on day {number}"


async def _save(store: Store, observations: ObservationStore, count: int) -> float:
    """Save observations. Returns how many per second."""
    start = perf_counter()
    for first in range(0, count, TOGETHER):
        async with store.transaction() as tx:
            for number in range(first, min(first + TOGETHER, count)):
                await observations.save(_observation(number), tx=tx)
    return count / (perf_counter() - start)


def _observation(number: int) -> Observation:
    return Observation(
        workspace_id="acme",
        subject_type="USER",
        subject_id=f"u{number % SUBJECTS}",
        id=f"fact-{number}",
        content=_content(number),
    )


async def _index(
    store: Store, observations: ObservationStore, knowledge: KnowledgeStore, count: int
) -> float:
    """Index all observations by one relay. Returns how many per second."""
    start = perf_counter()
    async with KnowledgeStoreOutboxRelay(observations, knowledge, options=OPTIONS):
        while await _is_pending(store):  # noqa: ASYNC110 - the end has no signal
            await asyncio.sleep(0.1)
        return count / (perf_counter() - start)


async def _is_pending(store: Store) -> bool:
    return any(count.queue == MEMORY for count in await store.counts())


async def _search_times(knowledge: KnowledgeStore, scope: KnowledgeScope) -> float:
    """Return the 95th percentile of search times, in milliseconds."""
    times = []
    for question, _ in (*PARAPHRASED, *NAMED):
        start = perf_counter()
        assert await knowledge.search(scope, question)
        times.append((perf_counter() - start) * 1000)
    return quantiles(times, n=100)[94]
