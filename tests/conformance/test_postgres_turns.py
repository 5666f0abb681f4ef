"""Turns in SQL beside open transactions, in orders that races rarely reach on a fast machine."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.store.psql import Connection, column, connect, insert, value

CLAIM = "select id from agent.claim('inbox', '{\"\"}', 2, '1 minute')"


@pytest.fixture
def sql(postgres_url: str) -> Iterator[Connection]:
    with connect(postgres_url) as connection:
        yield connection


@pytest.fixture
def other(postgres_url: str) -> Iterator[Connection]:
    """Somebody whose transaction stays open until told."""
    with connect(postgres_url, autocommit=False) as connection:
        yield connection
        connection.rollback()


def test_a_claim_of_turns_skips_what_another_has_locked(sql: Connection, other: Connection) -> None:
    first, second, third = insert(sql), insert(sql), insert(sql)
    other.execute("select id from agent.event where id = %s for update", [first])
    assert column(sql, CLAIM) == [second, third]


def test_a_claim_of_a_limited_target_waits_for_the_one_that_counts(
    sql: Connection, other: Connection
) -> None:
    insert(sql), insert(sql), insert(sql)
    sql.execute("select agent.limit_target('inbox', '', 2)")
    assert len(column(other, CLAIM)) == 2
    sql.execute("set lock_timeout = '100ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        sql.execute(CLAIM)
    other.commit()
    assert column(sql, CLAIM) == []


PUTS = {
    "several": """select agent.put('[{"event": {}, "lane": "a"}]', null, true)""",
    "one": "select array[agent.put_one('{}', _lane => 'a')]",
}


@pytest.mark.parametrize("put", PUTS.values(), ids=list(PUTS))
def test_a_put_waits_for_the_end_of_a_turn_of_its_lane(
    sql: Connection, other: Connection, put: str
) -> None:
    """Or it would queue behind a head that is about to end, and nobody would promote it."""
    event_id = insert(sql, "a")
    fence = value(sql, "select fence from agent.claim('inbox', '{\"\"}', 1, '1 minute')")
    other.execute(
        "select agent.settle(%s)", [Jsonb([{"ids": [event_id], "fence": fence, "outcome": "done"}])]
    )
    sql.execute("set lock_timeout = '100ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        sql.execute(put)
    other.commit()
    stored = value(sql, put)
    assert column(sql, CLAIM) == stored


@pytest.mark.parametrize("outcome", ["retry", "dead", "snooze", "release"])
def test_only_a_turn_that_is_done_emits_and_records(sql: Connection, outcome: str) -> None:
    event_id = insert(sql)
    fence = value(sql, "select fence from agent.claim('inbox', '{\"\"}', 1, '1 minute')")
    end = {
        "ids": [event_id],
        "fence": fence,
        "outcome": outcome,
        "emits": [{"event": {}, "queue": "outbox"}],
        "records": [{"team_id": "dev", "from_agent": "coder", "message": "done"}],
    }
    assert value(sql, "select ended from agent.settle(%s)", [Jsonb([end])]) in ("back", "dead")
    assert column(sql, "select id from agent.event where queue = 'outbox'") == []
    assert column(sql, "select id from agent.chat_message") == []
