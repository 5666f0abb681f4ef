"""An agent remembers: the next turn knows the observations of the one before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import cast

import psycopg
import pytest

from holdfast import AgentHarness, Turn
from holdfast.chat import ChatStore
from holdfast.consumers.memory import KnowledgeStoreOutboxRelay
from holdfast.errors import HoldfastError
from holdfast.memory.knowledge import (
    DEFAULT_OPTIONS,
    IndexOptions,
    KnowledgeScope,
    KnowledgeSource,
    KnowledgeStore,
)
from holdfast.memory.maintenance import reindex, verify
from holdfast.memory.observation import Observation, ObservationStore, document_of, parts_of
from holdfast.memory.recall import Recall, TurnMemory
from holdfast.message import Payload, subject_of
from holdfast.queue.event import MEMORY, NewEvent
from holdfast.queue.outcome import Done
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.forget import forget
from holdfast.store.memory import open_knowledge, open_observations, open_people
from holdfast.store.payload import dump
from tests.conformance.steps import claim_one
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
    """Send a message and return the app's answer, as a client of the API does."""
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
        [observation] = await open_observations(store).find_by_subject(
            "default", "USER", "api:id:ann"
        )
        assert (observation.observer, len(observation.source_message_ids)) == ("friend", 1)
        assert await verify(open_observations(store), open_knowledge(store)) == []


async def test_a_turn_that_fails_remembers_nothing(database_url: str) -> None:
    app = AgentHarness(settings=Settings(database=database_url, database_direct=database_url))
    done = asyncio.Event()

    @app.agent("friend", memory=True, max_attempts=1)
    async def friend(turn: Turn) -> str:
        turn.memory.observe("this never happened")
        done.set()
        raise RuntimeError

    async with running(app):
        await app.put("hello", sender_id="ann")
        await done.wait()
    async with open_store(database_url) as store:
        assert await open_observations(store).count() == 0
        # The message itself stays in the history, without an answer.
        assert [line.role for line in await store.agent_messages("friend")] == ["user"]


async def test_verify_finds_every_difference_and_reindex_repairs_them(
    observations: ObservationStore, knowledge: KnowledgeStore
) -> None:
    for number in range(3):
        await observations.save(fact(f"fact {number}", id=str(number)))
    found = await verify(observations, knowledge)
    assert [(one.id, one.what) for one in found] == [
        ("0", "missing"),
        ("1", "missing"),
        ("2", "missing"),
    ]
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


async def test_forgetting_empties_the_index_too(
    observations: ObservationStore, knowledge: KnowledgeStore
) -> None:
    await observations.save(fact())
    await reindex(observations, knowledge)
    removed = await forget(observations, knowledge, "acme", "USER", "ann")
    assert removed == {
        "events": 1,
        "history": 0,
        "agent_messages": 0,
        "chat_messages": 0,
        "conversations": 0,
        "activity": 0,
        "settings": 0,
        "pairings": 0,
        "schedules": 0,
        "observations": 1,
        "index": 1,
    }
    assert await knowledge.documents(ANN) == {}


async def test_forgetting_leaves_no_name_in_any_table(
    observations: ObservationStore,
    knowledge: KnowledgeStore,
    relay: KnowledgeStoreOutboxRelay,
    database_url: str,
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


async def test_a_relay_that_read_before_forgetting_does_not_restore_the_index(
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
    """A knowledge store that gets a change while its index is rebuilt."""

    def __init__(self, real: KnowledgeStore, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._real = real
        self._meanwhile = meanwhile

    async def reindex(
        self,
        scope: KnowledgeScope,
        source: KnowledgeSource,
        options: IndexOptions = DEFAULT_OPTIONS,
    ) -> int:
        read = list(source)
        await self._meanwhile()
        return await self._real.reindex(scope, read, options)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


async def test_observations_that_are_indexed_during_a_reindex_stay(
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


SLACK = {"type": "app_mention", "team": "T1", "channel": "C1", "ts": "1.0"}
WHO = {
    "ann": {"kind": "message", "channel": "api", "sender": "Ann", "sender_id": "u1"},
    "somebody who is called as ann's id": {"kind": "message", "channel": "api", "sender": "u1"},
    "ann's id on another channel": {
        "kind": "message",
        "channel": "web",
        "sender": "Ann",
        "sender_id": "u1",
    },
    "ann's id in a workspace": SLACK | {"user": "u1"},
    "a name that spells ann's identity": {
        "kind": "message",
        "channel": "api",
        "sender": "api:id:u1",
    },
}


async def memory_of(store: ChatStore, payload: Payload) -> TurnMemory:
    """Return the memory of a new turn."""
    await store.put([NewEvent(event=payload)])
    leased = await claim_one(store)
    turn = Turn(leased, "friend")
    await Recall(open_observations(store), open_knowledge(store), open_people(store)).remind(turn)
    assert isinstance(turn.memory, TurnMemory)
    await store.settle([(leased, Done())])
    return turn.memory


async def know(store: ChatStore, key: str, content: str) -> None:
    workspace, type_, id_ = parts_of(key)
    new = Observation(workspace_id=workspace, subject_type=type_, subject_id=id_, content=content)
    await open_observations(store).save(new)
    await reindex(open_observations(store), open_knowledge(store))
    turns = await store.claim(MEMORY, [""], limit=100, lease=timedelta(minutes=1))
    await store.settle([(turn, Done()) for turn in turns])


async def test_issue_13_10_a_person_known_by_name_does_not_see_observations_about_an_id(
    store: ChatStore,
) -> None:
    """The subject carries the channel, and names and ids never mix."""
    await know(store, subject_of(WHO["ann"]), "Ann likes jasmine tea")
    found = {
        name: await (await memory_of(store, payload)).recall() for name, payload in WHO.items()
    }
    assert {name: lines for name, lines in found.items() if lines} == {
        "ann": ["Ann likes jasmine tea"]
    }
    searched = {
        name: await (await memory_of(store, payload)).search("tea") for name, payload in WHO.items()
    }
    assert {name: lines for name, lines in searched.items() if lines} == {
        "ann": ["Ann likes jasmine tea"]
    }
    assert len({subject_of(payload) for payload in WHO.values()}) == len(WHO)


async def test_linked_identities_share_their_observations(store: ChatStore) -> None:
    ann, work = WHO["ann"], WHO["ann's id in a workspace"]
    await know(store, subject_of(ann), "Ann likes jasmine tea")
    people = open_people(store)
    await people.link(subject_of(ann), subject_of(work))
    memory = await memory_of(store, work)
    assert (await memory.recall(), await memory.search("tea")) == (["Ann likes jasmine tea"],) * 2
    assert memory.relevant == [] or memory.relevant == ["Ann likes jasmine tea"]
    await people.unlink(subject_of(work))
    assert await (await memory_of(store, work)).recall() == []


async def test_subjects_of_earlier_releases_are_read_where_they_name_one_person(
    store: ChatStore,
) -> None:
    """A Slack workspace and a user id do. A name or id without a channel needs a link."""
    await know(store, "T1:USER:u1", "likes tea at work")
    await know(store, "default:USER:u1", "likes tea at home")
    assert await (await memory_of(store, WHO["ann's id in a workspace"])).recall() == [
        "likes tea at work"
    ]
    assert await (await memory_of(store, WHO["ann"])).recall() == []
    await open_people(store).link("default:USER:u1", subject_of(WHO["ann"]))
    assert await (await memory_of(store, WHO["ann"])).recall() == ["likes tea at home"]
    assert await (await memory_of(store, WHO["ann's id on another channel"])).recall() == []


def test_python_and_sql_name_the_same_subject(postgres_url: str) -> None:
    payloads = [
        *WHO.values(),
        {},
        {"kind": "message"},
        {"kind": "message", "sender": " ", "channel": "a:b"},
    ]
    payloads += [
        {"kind": "message", "sender": "x", "channel": "a:b"},
        {"user": " "},
        SLACK | {"user": "U1", "team": ""},
    ]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for payload in payloads:
            [subject_in_sql] = connection.execute(
                "select agent.subject_of(%s::jsonb)", (dump(payload),)
            ).fetchone() or [None]
            assert subject_in_sql == subject_of(payload), payload


async def test_the_memory_of_a_turn_is_never_none_and_says_what_is_missing(
    store: ChatStore,
) -> None:
    await store.put([NewEvent(event=WHO["ann"]), NewEvent(event=WHO["ann"])])
    turn = Turn(await claim_one(store), "friend")
    with pytest.raises(HoldfastError, match="memory=True"):
        list(turn.memory.relevant)
    with pytest.raises(HoldfastError, match="memory=True"):
        turn.memory.observe("tea")
    for ask in (turn.memory.search("tea"), turn.memory.recall()):
        with pytest.raises(HoldfastError, match="memory=True"):
            await ask
    known = open_observations(store), open_knowledge(store), open_people(store)
    await Recall(*known, is_indexed=False).remind(turn)
    assert (turn.memory.relevant, await turn.memory.recall()) == ((), [])
    with pytest.raises(HoldfastError, match="pip install"):
        await turn.memory.search("tea")
