"""Pitfalls of PostgreSQL: plans that grow with the backlog, notifications, held snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, LiteralString

import pytest
from psycopg.errors import LockNotAvailable
from psycopg.types.json import Jsonb

from tests.store.psql import Connection, claim, column, connect, drain, insert, value

CLAIM: LiteralString = "select * from agent.claim('inbox', '{\"\"}', 10, '10 minutes')"
CLAIM_EVENT: LiteralString = "select * from agent.claim_event()"


@pytest.fixture
def sql(postgres_url: str) -> Iterator[Connection]:
    with connect(postgres_url) as connection:
        yield connection


@pytest.fixture
def other(postgres_url: str) -> Iterator[Connection]:
    """Another session, in a transaction from its first statement on."""
    with connect(postgres_url, autocommit=False) as connection:
        yield connection


def fill(sql: Connection, count: int) -> None:
    sql.execute(
        """insert into agent.event (lane, event)
           select format('%%s of %%s', n / 3, %(count)s::int4), '{}'
           from generate_series(1, %(count)s::int4) as n""",
        {"count": count},
    )


def buffers(sql: Connection, query: LiteralString) -> int:
    """Count the pages that a second call touches, its own statements included."""
    plan = {}
    for _ in range(2):
        with sql.transaction(force_rollback=True):
            [plan] = value(sql, f"explain (analyze, buffers, format json) {query}")
    return int(plan["Plan"]["Shared Hit Blocks"]) + int(plan["Plan"]["Shared Read Blocks"])


def growth(sql: Connection, query: LiteralString) -> float:
    """Return the factor by which pages grow with ten times the backlog, in lanes of three."""
    fill(sql, 1_000)
    few = buffers(sql, query)
    fill(sql, 9_000)
    sql.execute("vacuum analyze agent.event")
    return buffers(sql, query) / few


def test_order_by_random(sql: Connection) -> None:
    """A claim at random reads a window of the longest-waiting, not the table."""
    assert growth(sql, CLAIM_EVENT) <= 2


def test_looking_for_late_events_does_not_grow_with_the_backlog(sql: Connection) -> None:
    assert growth(sql, "select agent.wake_late('1s', '4s')") <= 2


def test_limit_as_a_parameter_in_a_function(sql: Connection) -> None:
    """A claim of ten costs ten, whatever the planner makes of a limit that it does not know."""
    assert growth(sql, CLAIM) <= 2


def test_a_pinned_plan_with_a_disabled_node_looks_so_costly_that_jit_compiles_it(
    sql: Connection,
) -> None:
    """Every function that disables a node switches the compiler off as well."""
    pinned = list(
        sql.execute(
            """select proname, proconfig from pg_proc
               where pronamespace = 'agent'::regnamespace
                 and proconfig::text like '%%enable_%%=off%%'"""
        )
    )
    assert len(pinned) >= 5
    assert [found["proname"] for found in pinned if "jit=off" not in found["proconfig"]] == []


def test_notify_takes_a_lock_shared_by_the_whole_server(sql: Connection, other: Connection) -> None:
    """At most one wake-up per commit and queue, and none for what was rolled back."""
    sql.execute("listen holdfast")
    for lane in (None, "a", "b"):
        insert(other, lane)
        insert(other, lane)
        insert(other, lane, queue="outbox")
    other.commit()
    insert(other)
    other.rollback()
    queues = sorted(notify.payload for notify in sql.notifies(timeout=1))
    assert queues == ["inbox", "outbox"]


def test_a_hypertable_is_never_searched_for_dedup(sql: Connection) -> None:
    """A known message costs no look at history, however many chunks it has."""
    sql.execute('select agent.insert_event(\'{"channel": "C1", "ts": "1.0"}\')')
    drain(sql)
    [before] = sql.execute(
        "select seq_scan, idx_scan from pg_stat_user_tables where relname = 'event_hist'"
    )
    [plan] = value(
        sql,
        """explain (analyze, format json)
           select agent.insert_event('{"channel": "C1", "ts": "1.0"}')""",
    )
    assert plan["Plan"]["Actual Rows"] == 1
    assert column(sql, "select id from agent.event") == []
    sql.execute("select pg_stat_clear_snapshot()")
    [after] = sql.execute(
        "select seq_scan, idx_scan from pg_stat_user_tables where relname = 'event_hist'"
    )
    assert after == before


def test_a_held_snapshot_lets_dead_rows_pile_up_at_the_head_of_the_index(
    sql: Connection, other: Connection
) -> None:
    """While a backup holds its snapshot, a claim works and costs a few pages per dead row."""
    other.execute("set transaction isolation level repeatable read")
    other.execute("select count(*) from agent.event")
    rounds = 300
    for _ in range(rounds):
        insert(sql, "a")
        [event_id] = claim(sql)
        sql.execute("select agent.delete_event(%s)", [event_id])
    insert(sql, "a")
    assert buffers(sql, CLAIM) <= 20 * rounds
    other.rollback()


def test_messages_of_one_root_get_their_ids_in_the_order_of_their_commits(
    sql: Connection, other: Connection
) -> None:
    """Otherwise a count of smaller ids misses one that commits later, and one too many passes."""
    insert(sql)
    settle(sql, claim_turn(sql), emits=2)
    first, second = claim_turn(sql), claim_turn(sql)
    settle(other, first, emits=1)
    sql.execute("set lock_timeout = '100ms'")
    with pytest.raises(LockNotAvailable):
        settle(sql, second, emits=1)
    insert(sql)
    settle(sql, claim_turn(sql), emits=1)
    other.commit()
    settle(sql, second, emits=1)
    assert column(sql, "select id from agent.event where hops = 2 order by parent_id") == [4, 7]


def claim_turn(sql: Connection) -> dict[str, Any]:
    [turn] = sql.execute(
        "select array[id] as ids, fence from agent.claim('inbox', '{\"\"}', 1, '10 minutes')"
    )
    return turn


def settle(sql: Connection, turn: dict[str, Any], emits: int) -> None:
    ended = Jsonb([turn | {"outcome": "done", "emits": [{"event": {}}] * emits}])
    assert column(sql, "select ended from agent.settle(%s)", [ended]) == ["completed"]
