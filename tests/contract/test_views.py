"""The views of schema agent: the classical columns and statuses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.store.psql import Connection, claim, column, drain, insert, value

COLUMNS = {
    "messages": "id message_id channel sender sender_id message agent from_agent status"
    " retry_count last_error"
    " created_at updated_at",
    "responses": "id message_id channel sender sender_id message original_message agent files"
    " metadata status"
    " created_at acked_at",
    "mem_outbox": "id workspace_id observation_local_id subject_key operation attempt_count"
    " last_error created_at"
    " next_attempt_at claimed_by claimed_until",
    "chat_messages": "id team_id from_agent message created_at",
    "agent_messages": "id agent_id role channel sender message_id content created_at",
}


def messages(sql: Connection) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in sql.execute("select * from agent.messages")}


@pytest.mark.parametrize("view", COLUMNS)
def test_a_view_has_the_classical_columns(sql: Connection, view: str) -> None:
    names = """select column_name from information_schema.columns
               where table_schema = 'agent' and table_name = %s"""
    assert set(column(sql, names, [view])) >= set(COLUMNS[view].split())


def test_a_message_is_pending_processing_completed_or_dead(sql: Connection) -> None:
    completed = insert(sql)
    drain(sql)
    dead = insert(sql, attempts=3)
    expired = insert(sql, vt=datetime(2020, 1, 1, tzinfo=UTC))
    sql.execute("select agent.delete_expired_events()")
    processing = insert(sql)
    claim(sql)
    cancelled = insert(sql)
    claim(sql)
    sql.execute("select agent.cancel_event(%s)", [cancelled])
    discarded = insert(sql, attempts=3)
    sql.execute("select agent.delete_expired_events()")
    sql.execute("select agent.discard_event(%s)", [discarded])
    pending = insert(sql)
    assert {event_id: row["status"] for event_id, row in messages(sql).items()} == {
        completed: "completed",
        dead: "dead",
        expired: "dead",
        cancelled: "dead",
        processing: "processing",
        pending: "pending",
    }


def test_the_retry_count_is_that_of_failed_attempts(sql: Connection) -> None:
    event_id = insert(sql)
    assert messages(sql)[event_id]["retry_count"] == 0
    claim(sql)
    assert messages(sql)[event_id]["retry_count"] == 0
    sql.execute("update agent.event set vt = now()")
    assert messages(sql)[event_id]["retry_count"] == 1
    claim(sql)
    assert messages(sql)[event_id]["retry_count"] == 1
    sql.execute("select agent.delete_event(%s)", [event_id])
    assert messages(sql)[event_id]["retry_count"] == 1


def test_an_agent_that_was_not_named_is_null(sql: Connection) -> None:
    default, named = insert(sql), insert(sql, target="coder")
    assert (messages(sql)[default]["agent"], messages(sql)[named]["agent"]) == (None, "coder")


def test_a_slack_event_is_shown_as_a_message(sql: Connection) -> None:
    payload = {"type": "app_mention", "user": "U1", "text": "hi", "channel": "C1", "ts": "1.0"}
    event_id = value(sql, "select agent.insert_event(%s)", [Jsonb(payload)])
    row = messages(sql)[event_id]
    assert (row["channel"], row["sender_id"], row["message"], row["status"]) == (
        "slack",
        "U1",
        "hi",
        "pending",
    )


def test_only_the_inbox_is_messages(sql: Connection) -> None:
    insert(sql, queue="outbox")
    assert messages(sql) == {}


def test_a_response_is_pending_acked_or_dead(sql: Connection) -> None:
    acked = insert(sql, queue="outbox")
    sql.execute("select agent.delete_event(%s)", [acked])
    dead = insert(sql, queue="outbox", attempts=10)
    sql.execute("select agent.delete_expired_events(_max_attempts => 10, _queue => 'outbox')")
    pending = insert(sql, queue="outbox")
    found = {
        row["id"]: (row["status"], row["acked_at"] is not None)
        for row in sql.execute("table agent.responses")
    }
    assert found == {acked: ("acked", True), dead: ("dead", False), pending: ("pending", False)}


def test_a_memory_change_is_claimed_by_its_relay_or_poison(sql: Connection) -> None:
    done = insert(sql, queue="memory")
    sql.execute("select agent.delete_event(%s)", [done])
    poison = insert(sql, queue="memory", attempts=10, last_error="no")
    sql.execute("select agent.delete_expired_events(_max_attempts => 10, _queue => 'memory')")
    leased = insert(sql, queue="memory")
    sql.execute("select agent.claim('memory', '{\"\"}', 1, '1 hour', 'node-1')")
    waiting = insert(sql, queue="memory")
    found = {row["id"]: row for row in sql.execute("select * from agent.mem_outbox")}
    assert {event_id: row["claimed_by"] for event_id, row in found.items()} == {
        poison: "POISON",
        leased: "node-1",
        waiting: None,
    }
    assert found[poison]["claimed_until"].date().isoformat() == "9999-12-31"
    assert (found[poison]["attempt_count"], found[poison]["last_error"]) == (10, "no")
    assert (found[waiting]["claimed_until"], found[leased]["claimed_until"] is None) == (
        None,
        False,
    )


def test_the_attempt_count_of_a_memory_change_is_that_of_failed_attempts(sql: Connection) -> None:
    insert(sql, queue="memory")
    counts = []
    for moment in ("1 hour", "0 s"):
        sql.execute("select agent.claim('memory', '{\"\"}', 1, %s::interval, 'node-1')", [moment])
        counts += column(sql, "select attempt_count from agent.mem_outbox")
        sql.execute("update agent.event set vt = now()")
        counts += column(sql, "select attempt_count from agent.mem_outbox")
    assert counts == [0, 1, 2, 2]


def test_a_message_is_a_line_of_its_agents_history_from_its_receipt_on(sql: Connection) -> None:
    lines = "select id, agent_id, role, sender, content from agent.agent_messages"
    sql.execute(
        """select agent.insert_event(jsonb_build_object('channel', 'C1', 'ts', '1.5', 'user', 'U1'
                   , 'text', 'hi'), _agent => 'coder')"""
    )
    [waiting] = sql.execute(lines).fetchall()
    assert list(waiting.values())[1:] == ["coder", "user", "U1", "hi"]
    [event_id] = claim(sql)
    assert sql.execute(lines).fetchall() == [waiting]
    sql.execute("select agent.cancel_event(%s)", [event_id])
    assert sql.execute(lines).fetchall() == [waiting]
    sql.execute("select agent.retry_event(%s)", [event_id])
    assert drain(sql) == [event_id]
    assert sql.execute(lines).fetchall() == [waiting]


def test_histories_are_shown_by_their_views(sql: Connection) -> None:
    sql.execute(
        """select agent.record('[{"agent_id": "coder", "role": "user", "channel": "api"
                                , "sender": "ann"
                                 , "message_id": "m1", "content": "hi"}
                               , {"team_id": "dev", "from_agent": "coder", "message": "hello"}]')"""
    )
    assert column(sql, "select content from agent.agent_messages") == ["hi"]
    assert column(sql, "select message from agent.chat_messages") == ["hello"]
