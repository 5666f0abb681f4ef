"""An agent remembers: what is observed in one turn is known in the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

from holdfast import AgentHarness, Turn
from holdfast.event import AgentMessage
from holdfast.memory.knowledge import DEFAULT_OPTIONS, IndexOptions, KnowledgeScope, KnowledgeSource, KnowledgeStore
from holdfast.relay import KnowledgeStoreOutboxRelay, document_of
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.memories import ObservationStore, open_knowledge, open_observations
from holdfast.upkeep import forget, reindex, verify
from tests.memory.steps import ANN, fact, tables_that_hold


@asynccontextmanager
async def running(app: AgentHarness) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        await app.run(task_group=group)
        try:
            yield
        finally:
            app.stop()


async def answer(app: AgentHarness, text: str, sender_id: str = "ann") -> str:
    """What the app answers to a message, fetched as a client of the API does."""
    id_ = await app.put(text, sender_id=sender_id)
    async with asyncio.timeout(30):
        while True:
            for event in await app.responses("api"):
                if event.event["message_id"] == id_:
                    await app.ack(event.id)
                    return str(event.event["message"])
            await asyncio.sleep(0.01)


def remembering(database_url: str) -> AgentHarness:
    app = AgentHarness(settings=Settings(database=database_url, database_direct=database_url))

    @app.agent("friend", memory=True)
    async def friend(turn: Turn) -> str:
        assert turn.memory is not None
        if turn.text.startswith("remember "):
            turn.memory.observe(turn.text.removeprefix("remember "))
            return "noted"
        return " | ".join(turn.memory.relevant) or "I do not know"

    return app


async def test_a_fact_observed_in_one_turn_is_found_in_the_next(database_url: str) -> None:
    app = remembering(database_url)
    async with running(app):
        assert await answer(app, "what tea do I like?") == "I do not know"
        assert await answer(app, "remember Ann likes jasmine tea") == "noted"
        assert await answer(app, "what tea do I like?") == "Ann likes jasmine tea"
        assert await answer(app, "what tea do I like?", "bob") == "I do not know"
    async with open_store(database_url) as store:
        [observation] = await open_observations(store).find_by_subject("default", "USER", "ann")
        assert (observation.observer, len(observation.source_message_ids)) == ("friend", 1)
        assert await verify(open_observations(store), open_knowledge(store)) == []


async def test_a_turn_that_fails_remembers_nothing(database_url: str) -> None:
    app = AgentHarness(settings=Settings(database=database_url, database_direct=database_url))
    done = asyncio.Event()

    @app.agent("friend", memory=True, max_attempts=1)
    async def friend(turn: Turn) -> str:
        assert turn.memory is not None
        turn.memory.observe("this never happened")
        done.set()
        raise RuntimeError

    async with running(app):
        await app.put("hello", sender_id="ann")
        await done.wait()
    async with open_store(database_url) as store:
        assert await open_observations(store).count() == 0
        assert not any(isinstance(line, AgentMessage) for line in await store.agent_messages("friend"))


async def test_verify_finds_every_difference_and_reindex_mends_them(
    observations: ObservationStore, knowledge: KnowledgeStore
) -> None:
    for number in range(3):
        await observations.save(fact(f"fact {number}", id=str(number)))
    found = await verify(observations, knowledge)
    assert [(one.id, one.what) for one in found] == [("0", "missing"), ("1", "missing"), ("2", "missing")]
    assert await reindex(observations, knowledge) == 3
    assert await verify(observations, knowledge) == []
    await observations.save(fact("changed", id="0"))
    await observations.delete("acme", "1")
    found = await verify(observations, knowledge)
    assert [(one.id, one.what) for one in found] == [("0", "other content"), ("1", "unknown")]
    await observations.delete_workspace("acme")
    assert {one.what for one in await verify(observations, knowledge)} == {"unknown"}
    assert await reindex(observations, knowledge) == 0
    assert await verify(observations, knowledge) == []


async def test_forgetting_empties_the_index_too(observations: ObservationStore, knowledge: KnowledgeStore) -> None:
    await observations.save(fact())
    await reindex(observations, knowledge)
    removed = await forget(observations, knowledge, "acme", "USER", "ann")
    assert removed == {
        "events": 1,
        "history": 0,
        "agent_messages": 0,
        "chat_messages": 0,
        "activity": 0,
        "settings": 0,
        "observations": 1,
        "index": 1,
    }
    assert await knowledge.documents(ANN) == {}


async def test_forgetting_leaves_no_name_in_any_table(
    observations: ObservationStore, knowledge: KnowledgeStore, relay: KnowledgeStoreOutboxRelay, database_url: str
) -> None:
    for number in range(3):
        await observations.save(fact(subject="zyzzyva", id=f"zyzzyva/{number}"))
        await relay.drain_once()
    await observations.delete("acme", "zyzzyva/1")
    await relay.drain_once()
    await observations.soft_delete("acme", "zyzzyva/2")
    assert tables_that_hold(database_url, "zyzzyva")
    await forget(observations, knowledge, "acme", "USER", "zyzzyva")
    assert tables_that_hold(database_url, "zyzzyva") == []


async def test_a_relay_that_read_before_the_forgetting_does_not_bring_it_back(
    observations: ObservationStore, knowledge: KnowledgeStore
) -> None:
    await observations.save(fact())
    read = await observations.find_by_ids("acme", ["w"])
    await forget(observations, knowledge, "acme", "USER", "ann")
    await knowledge.upsert(ANN, [document_of(observation) for observation in read])
    assert await knowledge.documents(ANN) == {}
    await observations.save(fact("known anew"))
    assert await reindex(observations, knowledge) == 1
    assert await verify(observations, knowledge) == []


class Busy:
    """A knowledge store to which something comes while its index is written anew."""

    def __init__(self, real: KnowledgeStore, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._real = real
        self._meanwhile = meanwhile

    async def reindex(
        self, scope: KnowledgeScope, source: KnowledgeSource, options: IndexOptions = DEFAULT_OPTIONS
    ) -> int:
        read = list(source)
        await self._meanwhile()
        return await self._real.reindex(scope, read, options)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


async def test_what_is_saved_and_indexed_during_a_reindex_stays(
    observations: ObservationStore, knowledge: KnowledgeStore, relay: KnowledgeStoreOutboxRelay
) -> None:
    async def meanwhile() -> None:
        for id_ in ("late", "later"):
            await observations.save(fact(f"said {id_}", id=id_))
        await relay.drain_once()
        await observations.delete("acme", "w")

    await observations.save(fact())
    await relay.drain_once()
    await reindex(observations, cast(KnowledgeStore, Busy(knowledge, meanwhile)))
    assert sorted(await knowledge.documents(ANN)) == ["late", "later", "w"]
    await relay.drain_once()
    assert await verify(observations, knowledge) == []
