"""Maintenance: purge deleted observations, and index everything anew after a change of model."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from datetime import timedelta

import pytest

from holdfast.consumers.memory import DrainResult, KnowledgeStoreOutboxRelay
from holdfast.memory.embedder import Embedder
from holdfast.memory.maintenance import MemorySweeper, index_progress, verify
from holdfast.memory.observation import ObservationStore
from holdfast.queue.event import MEMORY
from holdfast.queue.store import Count, Process, Store
from holdfast.queue.sweeper import Sweeper
from holdfast.store.memory import open_knowledge
from holdfast.testing.clock import Clock
from tests.memory.steps import ANN, fact, outbox


async def pending(store: Store) -> Count:
    [count] = [count for count in await store.counts() if count.queue == MEMORY]
    return count


async def test_a_softly_deleted_observation_is_swept_away_after_its_time(
    observations: ObservationStore, clock: Clock
) -> None:
    sweeper = MemorySweeper(observations, None, keep_deleted=timedelta(days=7))
    await observations.save(fact(id="gone"))
    await observations.save(fact(id="kept"))
    await observations.soft_delete("acme", "gone")
    clock.tick(days=7)
    await sweeper.sweep()
    await observations.save(fact(id="younger"))
    await observations.soft_delete("acme", "younger")
    clock.tick(seconds=1)
    await sweeper.sweep()
    assert await observations.purge_soft_deleted_before(clock.now + timedelta(days=1)) == 1
    assert [found.id for found in await observations.find_by_subject("acme", "USER", "ann")] == [
        "kept"
    ]


async def test_the_oldest_pending_change_counts_also_while_a_relay_holds_it(
    store: Store, observations: ObservationStore, clock: Clock
) -> None:
    saved_at = clock.now
    await observations.save(fact())
    clock.tick(minutes=10)
    await store.claim(MEMORY, [""], limit=1, lease=timedelta(minutes=1))
    count = await pending(store)
    assert (count.leased, count.ready_since, count.pending_since) == (1, None, saved_at)


class Plain:
    """An embedder that gives all texts the same vector."""

    def __init__(self, model: str, dimensions: int = 2, made: int | None = None) -> None:
        self.model, self.dimensions = model, dimensions
        self._made = dimensions if made is None else made

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [array("f", [1.0] + [0.0] * (self._made - 1)).tobytes()] * len(texts)


class Working:
    """The memory of a process: its relay and its sweeper."""

    def __init__(self, store: Store, observations: ObservationStore, embedder: Embedder) -> None:
        self.knowledge = open_knowledge(store, embedder)
        self.relay = KnowledgeStoreOutboxRelay(observations, self.knowledge)
        self.sweeper = MemorySweeper(observations, self.knowledge)

    async def left(self) -> int:
        """Return the number of documents of another model."""
        return (await self.knowledge.status()).other_model


async def remember(observations: ObservationStore, count: int = 3) -> None:
    for number in range(count):
        await observations.save(fact(f"drawer {number}", id=str(number)))


async def is_compared(store: Store) -> bool:
    """Return whether this engine has vectors, and so models."""
    return await open_knowledge(store).tables.has_vectors()


async def test_another_model_indexes_everything_anew_by_itself_and_words_find_it_meanwhile(
    store: Store, observations: ObservationStore
) -> None:
    old, new = (Working(store, observations, Plain(model)) for model in ("old", "new"))
    await old.sweeper.sweep()
    await remember(observations)
    await old.relay.drain_once()
    await old.sweeper.sweep()
    assert (await outbox(store), await old.left()) == ([], 0)
    if await is_compared(store):
        await new.sweeper.sweep()
        await new.sweeper.sweep()
        assert len(await outbox(store)) == await new.left() == 3
        assert await store.setting("index") == {"model": "new", "dimensions": 2}
        status = await index_progress(store, open_knowledge(store))
        assert status is not None
        assert (status.model, status.documents, status.other_model) == ("new", 3, 3)
        assert [hit.id for hit in await new.knowledge.search(ANN, "drawer 1")] != []
        assert await new.relay.drain_once() == DrainResult(processed=3)
    assert (await new.left(), await outbox(store), await verify(observations, new.knowledge)) == (
        0,
        [],
        [],
    )


async def test_processes_that_start_together_requeue_each_document_once(
    store: Store, observations: ObservationStore
) -> None:
    old = Working(store, observations, Plain("old"))
    await remember(observations, 20)
    await old.relay.drain_once()
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(Working(store, observations, Plain("new")).sweeper.sweep())
    assert len(await outbox(store)) == (20 if await is_compared(store) else 0)


async def test_another_process_goes_on_if_one_dies_while_requeueing(
    store: Store, observations: ObservationStore
) -> None:
    old, new = (Working(store, observations, Plain(model)) for model in ("old", "new"))
    await remember(observations)
    await old.relay.drain_once()
    if await is_compared(store):
        await store.set_setting("index", {"model": "new", "dimensions": 2})
        assert await observations.requeue_outdated("memory.observation", "new/2", limit=1) == 1
        await new.sweeper.sweep()
    await new.relay.drain_once()
    assert await new.left() == 0


async def test_an_older_process_does_not_revert_the_model_and_its_documents_are_indexed_again(
    store: Store, observations: ObservationStore
) -> None:
    old, new = (Working(store, observations, Plain(model)) for model in ("old", "new"))
    await remember(observations)
    for working in (old, new, old):
        await working.sweeper.sweep()
    await old.relay.drain_once()
    if await is_compared(store):
        assert (await store.setting("index"), await new.left()) == (
            {"model": "new", "dimensions": 2},
            3,
        )
    await new.sweeper.sweep()
    await new.relay.drain_once()
    assert await new.left() == 0


async def test_the_same_model_with_more_numbers_is_another_one(
    store: Store, observations: ObservationStore
) -> None:
    short, long = (Working(store, observations, Plain("same", dimensions)) for dimensions in (2, 3))
    await remember(observations)
    await short.relay.drain_once()
    await observations.save(fact("drawer 3", id="3"))
    await long.relay.drain_once()
    await long.knowledge.search(ANN, "drawer")
    await long.sweeper.sweep()
    await long.relay.drain_once()
    assert await long.left() == 0
    assert len(await long.knowledge.search(ANN, "drawer")) == 4


async def test_vectors_of_the_wrong_length_are_refused(
    store: Store, observations: ObservationStore
) -> None:
    wrong = Working(store, observations, Plain("wrong", dimensions=3, made=2))
    await observations.save(fact())
    if await is_compared(store):
        assert await wrong.relay.drain_once() == DrainResult(failed=1)
        [event] = await store.waiting(MEMORY, "")
        assert "one vector of 3 numbers for each text" in str(event.last_error)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_enabling_vectors_later_is_a_change_of_model(
    store: Store, observations: ObservationStore
) -> None:
    working = Working(store, observations, Plain("new"))
    async with store.transaction() as tx:
        await tx.execute("drop function agent.found_by_meaning")
    await observations.save(fact())
    await working.relay.drain_once()
    await working.sweeper.sweep()
    assert (await working.knowledge.status()).model == "words"
    async with store.transaction() as tx:
        await tx.execute("select agent.enable_vectors()")
    await working.sweeper.sweep()
    assert await working.relay.drain_once() == DrainResult(processed=1)
    status = await working.knowledge.status()
    assert (status.model, status.other_model, status.vectors) == ("new", 0, True)


async def test_a_sweep_maintains_memory_too(store: Store) -> None:
    seen = []

    async def chore() -> None:
        seen.append(True)

    now = await store.now()
    process = Process(id="one", host="here", started_at=now, seen_at=now)
    await Sweeper(store, [], lambda: process, chores=[chore]).sweep()
    assert seen == [True]
