"""Life after a move: lines, memory, positions of streams, and work that ran when it began."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from holdfast.consumers.memory import KnowledgeStoreOutboxRelay
from holdfast.errors import StoreUnavailable
from holdfast.memory.knowledge import DEFAULT_AGENT_NAME, KnowledgeScope
from holdfast.memory.maintenance import verify
from holdfast.memory.observation import Observation
from holdfast.queue.event import NewEvent
from holdfast.queue.outcome import Done
from holdfast.settings import sqlite_path
from holdfast.store import open_store
from holdfast.store.memory import open_knowledge, open_observations
from holdfast.store.transfer.database import Source, State
from holdfast.store.transfer.move import _open_source, move
from holdfast.testing.databases import Databases
from holdfast.testing.fixtures import available
from tests.transfer.conftest import NewDatabase
from tests.transfer.filling import contents, opened

LEASE = timedelta(minutes=1)
SUBJECT = ("default", "USER", "api:id:ann")


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "timescale"])
async def test_memory_is_found_at_once_and_matches_its_index(
    engine: str, databases: Databases, new_database: NewDatabase
) -> None:
    target = new_database(engine)
    with databases.fresh("sqlite") as url:
        async with open_store(url) as store:
            observations, knowledge = open_observations(store), open_knowledge(store)
            for number, text in enumerate(("likes green tea", "plays chess on Mondays")):
                await observations.save(
                    Observation(
                        workspace_id=SUBJECT[0],
                        id=f"o{number}",
                        subject_type=SUBJECT[1],
                        subject_id=SUBJECT[2],
                        content=text,
                    )
                )
            relay = KnowledgeStoreOutboxRelay(observations, knowledge)
            assert (await relay.drain_once()).processed == 2
        move(url, target)
    async with open_store(target) as store:
        observations, knowledge = open_observations(store), open_knowledge(store)
        scope = KnowledgeScope(DEFAULT_AGENT_NAME, ":".join(SUBJECT))
        assert [hit.id for hit in await knowledge.search(scope, "tea", 1)] == ["o0"]
        assert [hit.id for hit in await knowledge.search(scope, "board games", 1)] == ["o1"]
        assert await verify(observations, knowledge) == []


def test_lines_without_an_event_get_ids_after_the_moved_ones(
    databases: Databases, new_database: NewDatabase
) -> None:
    target = new_database("postgres")
    with databases.fresh("sqlite") as url:
        with opened(url) as connection:
            connection.execute("update setting set value = '500' where key = 'line_offset'")
            connection.execute("insert into event (event) values ('{}')")
        move(url, target)
    with psycopg.connect(target) as connection:
        row = connection.execute(
            "insert into agent.agent_message (agent_id, role, channel, sender, message_id, content)"
            " values ('coder', 'assistant', 'api', '', '', '') returning id"
        ).fetchone()
    assert row == (502,)


@pytest.mark.parametrize("engine", ["postgres", "timescale"])
async def test_a_stream_resumes_at_its_position(
    engine: str, databases: Databases, new_database: NewDatabase
) -> None:
    target = new_database("sqlite")
    with available(engine, databases.fresh(engine)) as url:
        async with open_store(url) as store:
            await store.set_setting("activity", True)
            await store.put([NewEvent(event={"kind": "message"})])
            _, following = await store.activity_span()
            # Nobody has given this one its place when the move begins.
            await store.put([NewEvent(event={"kind": "message"})])
        move(url, target)
    async with open_store(target) as store:
        rows = await store.activity(following)
        assert [row.position for row in rows] == [following]
        assert (await store.activity_span())[1] == following + 1


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_running_turns_may_end_while_new_work_is_refused(
    engine: str, databases: Databases
) -> None:
    with available(engine, databases.fresh(engine)) as url:
        async with open_store(url) as store:
            await store.put([NewEvent(event={"kind": "message"}) for _ in range(2)])
            [turn] = await store.claim("inbox", [""], limit=1, lease=LEASE)
            source: Source = _open_source(url)
            try:
                source.refuse_new_work(State(id="x", peer="postgresql://elsewhere/db"))
                with pytest.raises(Exception, match="is being moved to postgresql://elsewhere"):
                    await store.put([NewEvent(event={"kind": "message"})])
                with pytest.raises(Exception, match="is being moved to postgresql://elsewhere"):
                    await store.claim("inbox", [""], limit=1, lease=LEASE)
                answer = NewEvent(event={"kind": "response"}, queue="outbox", target="api")
                await store.settle([(turn, Done((answer,)))])
                assert len(await store.waiting("outbox", "api", limit=9)) == 1
                source.unlock()
            finally:
                source.close()
            assert await store.claim("inbox", [""], limit=1, lease=LEASE)


async def test_a_moved_database_is_an_outage_to_its_processes(
    databases: Databases, new_database: NewDatabase
) -> None:
    with databases.fresh("sqlite") as url:
        async with open_store(url) as store:
            await store.put([NewEvent(event={"kind": "message"})])
            move(url, new_database("sqlite"))
            with pytest.raises(StoreUnavailable, match="was moved to"):
                await store.claim("inbox", [""], limit=1, lease=LEASE)
        [event] = contents(url)["event"]
        assert event["attempts"] == 0
        assert sqlite_path(url) is not None
