"""Plain SQL on the SQLite file: inserts, deletes and updates keep every lane going; views."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.chat import AgentMessage, ChatMessage
from holdfast.queue.event import NewEvent
from holdfast.queue.outcome import Dead, Done, Retry
from holdfast.queue.store import Filter, SweepPolicy
from holdfast.store.activity import received_frame
from holdfast.store.sqlite import dead
from holdfast.store.sqlite.store import SqliteStore
from tests.conformance.by_hand import insert
from tests.conformance.steps import claim, claim_one, put, put_lane

POISON_UNTIL = 253402214400000


@pytest.fixture
def shell(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database, isolation_level=None)) as shell:
        shell.row_factory = sqlite3.Row
        yield shell


@pytest_asyncio.fixture
async def store(database: Path) -> AsyncIterator[SqliteStore]:
    """A store with the clock of the machine, the only one that a shell knows."""
    async with SqliteStore(database) as store:
        yield store


def heads(shell: sqlite3.Connection) -> list[int]:
    return [row["id"] for row in shell.execute("select id from event where head order by id")]


def one(shell: sqlite3.Connection, query: str) -> dict[str, Any]:
    [row] = shell.execute(query).fetchall()
    return dict(row)


async def test_a_plain_insert_is_claimed(store: SqliteStore, shell: sqlite3.Connection) -> None:
    shell.execute("""insert into event (event) values ('{"text": "by hand"}')""")
    turn = await claim_one(store)
    assert turn.primary.event == {"text": "by hand"}
    await store.settle([(turn, Done(emits=(NewEvent(event={}, queue="outbox"),)))])
    assert (await claim_one(store, queue="outbox")).primary.root_id == turn.primary.id


async def test_the_six_classical_columns_can_be_inserted_from_history(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    event_id = await put(store)
    await store.settle([(await claim_one(store), Done())])
    shell.execute(
        """
        insert into event (id, event_ts, attempts, vt, claimed, event)
        select id, event_ts, 0, 0, claimed, event from event_hist
        """
    )
    turn = await claim_one(store)
    assert turn.primary.id == event_id
    await store.settle([(turn, Done())])
    assert [event.id for event in await store.finished(Filter())] == [event_id]


def test_an_insert_that_is_not_json_is_refused(shell: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        shell.execute("insert into event (event) values ('hello')")


async def test_inserts_by_hand_queue_up_in_their_lane(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    for lane in ("a", "a", "b", None, None):
        shell.execute("insert into event (lane, event) values (?, '{}')", [lane])
    assert heads(shell) == [1, 3, 4, 5]


async def test_a_deleted_head_is_followed_by_the_next_from_now_on(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await put_lane(store, 3)
    shell.execute("update event set vt = 5 where id = 2")
    before = time.time_ns() // 1_000_000
    shell.execute("delete from event where id = 1")
    assert heads(shell) == [2]
    assert one(shell, "select vt from event where id = 2")["vt"] // 1000 >= before


async def test_a_head_that_changes_its_lane_leaves_a_head_behind(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await put_lane(store, 2, "a")
    shell.execute("update event set lane = 'b' where id = 1")
    assert heads(shell) == [1, 2]


async def test_a_head_that_moves_into_a_lane_with_a_head_queues_up(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await put_lane(store, 2, "a")
    await put(store, lane="b")
    shell.execute("update event set lane = 'b', last_error = 'moved' where id = 1")
    assert heads(shell) == [2, 3]
    assert one(shell, "select lane, last_error from event where id = 1") == {
        "lane": "b",
        "last_error": "moved",
    }
    shell.execute("delete from event where id = 3")
    assert heads(shell) == [1, 2]


async def test_an_event_that_leaves_its_lane_is_a_head_of_its_own(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await put_lane(store, 3)
    shell.execute("update event set lane = null where id = 2")
    assert heads(shell) == [1, 2]


async def test_a_lane_cannot_be_stripped_of_its_head(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await put_lane(store, 2)
    shell.execute("update event set head = 0")
    assert heads(shell) == [1]
    with pytest.raises(sqlite3.IntegrityError):
        shell.execute("update event set head = 1")


async def test_a_whole_queue_can_be_renamed(store: SqliteStore, shell: sqlite3.Connection) -> None:
    await put_lane(store, 3, "a")
    await put_lane(store, 2, "b")
    shell.execute("update event set queue = 'other'")
    assert heads(shell) == [1, 4]
    assert (await store.sweep(SweepPolicy(queue="other"))).repaired_lanes == 0


async def test_messages_show_the_inbox(store: SqliteStore, shell: sqlite3.Connection) -> None:
    message = {
        "kind": "message",
        "channel": "api",
        "sender": "Ann",
        "sender_id": "u1",
        "message": "hi",
    }
    await store.put(
        [NewEvent(event=message | {"from_agent": "writer"}, target="coder", message_id="m1")]
    )
    seen = one(shell, "select * from messages")
    created_at = seen.pop("created_at")
    assert abs(created_at - time.time() * 1000) < 60_000
    assert seen.pop("updated_at") == created_at
    assert seen == {
        "id": 1,
        "message_id": "m1",
        "channel": "api",
        "sender": "Ann",
        "sender_id": "u1",
        "message": "hi",
        "agent": "coder",
        "from_agent": "writer",
        "status": "pending",
        "retry_count": 0,
        "last_error": None,
    }


async def test_messages_show_a_slack_event(store: SqliteStore, shell: sqlite3.Connection) -> None:
    await store.put([NewEvent(event={"type": "app_mention", "user": "U1", "text": "hello"})])
    seen = one(shell, "select channel, sender, sender_id, message, agent from messages")
    assert seen == {
        "channel": "slack",
        "sender": "U1",
        "sender_id": "U1",
        "message": "hello",
        "agent": None,
    }


async def test_messages_count_failures_and_leave_out_discarded_events(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    def state() -> list[tuple[str, int]]:
        return [tuple(row) for row in shell.execute("select status, retry_count from messages")]

    await put(store)
    turn = await claim_one(store)
    assert state() == [("processing", 0)]
    await store.settle([(turn, Retry("no"))])
    assert state() == [("pending", 1)]
    await store.settle([(await claim_one(store), Dead("never"))])
    assert state() == [("dead", 2)]
    await store.retry(Filter())
    await store.settle([(await claim_one(store), Done())])
    assert state() == [("completed", 0)]
    await put(store)
    await store.settle([(await claim_one(store), Dead("never"))])
    await store.discard(Filter())
    assert state() == [("completed", 0)]


async def test_responses_show_the_outbox(store: SqliteStore, shell: sqlite3.Connection) -> None:
    response = {
        "kind": "response",
        "channel": "api",
        "sender": "Ann",
        "sender_id": "u1",
        "message": "yes",
        "original_message": "hi",
        "message_id": "m1",
        "agent": "coder",
        "files": ["a.txt"],
        "metadata": {"k": 1},
    }
    await store.put([NewEvent(queue="outbox", target="api", event=response)])
    seen = one(shell, "select * from responses")
    seen.pop("created_at")
    assert seen.pop("files") == '["a.txt"]'
    assert seen.pop("metadata") == '{"k":1}'
    assert seen == {
        "id": 1,
        "message_id": "m1",
        "channel": "api",
        "sender": "Ann",
        "sender_id": "u1",
        "message": "yes",
        "original_message": "hi",
        "agent": "coder",
        "status": "pending",
        "acked_at": None,
    }
    await store.settle([(await claim_one(store, "api", queue="outbox"), Done())])
    acked = one(shell, "select status, acked_at from responses")
    assert acked["status"] == "acked"
    assert abs(acked["acked_at"] - time.time() * 1000) < 60_000


async def test_mem_outbox_shows_memory_with_its_poison(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    change = {
        "kind": "observation",
        "workspace_id": "w",
        "observation_local_id": "o",
        "subject_key": "w:USER:1",
        "operation": "UPSERT",
    }
    await store.put([NewEvent(queue="memory", event=change)])
    [turn] = await claim(store, queue="memory", holder="node-1")
    seen = one(shell, "select * from mem_outbox")
    assert seen["claimed_by"] == "node-1"
    assert seen["claimed_until"] == seen["next_attempt_at"]
    assert (seen["subject_key"], seen["operation"], seen["attempt_count"]) == (
        "w:USER:1",
        "UPSERT",
        0,
    )
    await store.settle([(turn, Dead("bad"))])
    seen = one(shell, "select claimed_by, claimed_until, attempt_count, last_error from mem_outbox")
    assert tuple(seen.values()) == ("POISON", POISON_UNTIL, 1, "bad")


async def test_histories_have_their_views(store: SqliteStore, shell: sqlite3.Connection) -> None:
    line = AgentMessage(
        agent_id="a", role="user", channel="api", sender="Ann", message_id="m", content="hi"
    )
    await store.put([], records=[line, ChatMessage(team_id="t", from_agent="a", message="hello")])
    agent, chat = (
        one(shell, "select * from agent_messages"),
        one(shell, "select * from chat_messages"),
    )
    assert abs(agent.pop("created_at") - chat.pop("created_at")) == 0
    assert tuple(agent.values()) == (1, "a", "user", "api", "Ann", "m", "hi")
    assert tuple(chat.values()) == (1, "t", "a", "hello")


async def test_a_message_is_a_line_of_its_agents_history_from_its_receipt_on(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    slack = {"channel": "C1", "ts": "1.5", "user": "U1", "text": "hi"}
    await store.put([NewEvent(event=slack, target="coder")])
    waiting = one(shell, "select * from agent_messages")
    assert tuple(waiting.values())[1:-1] == ("coder", "user", "slack", "U1", "1", "hi")
    await store.settle([(await claim_one(store, "coder"), Dead("bad"))])
    assert one(shell, "select * from agent_messages") == waiting


async def test_a_plain_insert_is_a_message_received(
    store: SqliteStore, shell: sqlite3.Connection
) -> None:
    await store.set_setting("routing", {"default": "coder"})
    await store.set_setting("activity", True)
    shell.execute(
        """
        insert into event (event)
        values ('{"kind":"message","channel":"api","sender":"ann","message":"hi"}')
        """
    )
    [row] = await store.activity(0)
    received, routed = row.frames
    assert abs(received.pop("timestamp") - time.time() * 1000) < 60_000
    about = {"messageId": "1", "agent": "coder", "channel": "api", "sender": "ann"}
    assert received == {"type": "message_received", **about, "message": "hi"}
    assert routed["type"] == "agent_routed"
    await store.set_setting("activity", False)
    shell.execute("insert into event (event) values ('{}')")
    assert len(await store.activity(0)) == 1


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "app_mention", "team": "T1", "channel": "C1", "user": "U1", "text": "x" * 3000},
        {"type": "app_mention", "user": " ", "text": "from nobody"},
        {"kind": "message", "channel": "a:b", "sender": "Ann", "sender_id": "7", "message": "hi"},
        {"kind": "message", "channel": "api", "sender": "Ann", "workspace": "w", "message": "hi"},
        {"kind": None, "channel": "api", "message": "hi"},
        {"kind": "message"},
        {},
    ],
)
async def test_sql_and_python_build_the_same_frame_of_a_received_message(
    store: SqliteStore, shell: sqlite3.Connection, payload: dict[str, Any]
) -> None:
    await store.set_setting("activity", True)
    shell.execute("insert into event (event) values (?)", [json.dumps(payload)])
    [stored] = shell.execute("select frames from activity").fetchone()
    assert json.loads(stored) == [received_frame(1, None, "", payload)]


@pytest.mark.parametrize("payload", ["{", "", "[1]", "3"])
async def test_views_show_a_finished_event_with_an_unreadable_payload(
    store: SqliteStore, shell: sqlite3.Connection, payload: str
) -> None:
    for queue in ("inbox", "outbox", "memory"):
        await store.put([NewEvent(queue=queue, event={"text": "hello"})])
        await store.settle([(await claim_one(store, queue=queue), Dead("never"))])
    shell.execute("update event_hist set event = ?", [payload])
    assert one(shell, "select id, channel, message, status from messages") == {
        "id": 1,
        "channel": None,
        "message": None,
        "status": "dead",
    }
    assert one(shell, "select id, message from responses") == {"id": 2, "message": None}
    assert one(shell, "select id, operation from mem_outbox") == {"id": 3, "operation": None}


async def test_unreadable_rows_that_come_while_others_are_buried_end_no_claim(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, broken = f"sqlite:///{database}", {"claimed": "'[1,'"}
    bury = dead.bury_all_unreadable
    rounds = []

    async def bury_while_others_come(store: SqliteStore, queue: str) -> bool:
        rounds.append(queue)
        is_found = await bury(store, queue)
        if len(rounds) == 1:
            insert(url, broken, checked=False)
        # Pretend that another task buried it.
        return is_found and len(rounds) != 2

    monkeypatch.setattr(dead, "bury_all_unreadable", bury_while_others_come)
    insert(url, broken, checked=False)
    async with SqliteStore(database) as store:
        assert await claim(store) == []
    assert len(rounds) == 2
