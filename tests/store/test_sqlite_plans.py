"""The cost of hot statements on SQLite does not grow with the backlog, for any statistics."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.queue.outcome import Done
from holdfast.queue.store import SweepPolicy
from holdfast.store.sqlite import sweep as sweeping
from holdfast.store.sqlite.claim import ClaimRequest, claim
from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.put import Ids
from holdfast.store.sqlite.reads import read_next_due
from holdfast.store.sqlite.settle import settle
from holdfast.store.sqlite.writer import Writing
from tests.conformance.steps import LEASE

NOW = 1_800_000_000_000_000
SMALL, LARGE = 1_000, 100_000
BACKLOGS = {
    "many lanes": "'lane ' || value",
    "one lane": "'lane'",
    "no lanes": "null",
}
STATISTICS = {"empty": "delete from event", **BACKLOGS}


@pytest.fixture
def connection(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(database)) as connection:
        yield connection


def fill(connection: sqlite3.Connection, lane: str, count: int) -> None:
    connection.execute(
        f"""
        with recursive number (value) as (
          select 1 union all select value + 1 from number where value < :count
        )
        insert into event (lane, event, vt)
        select {lane}, '{{"text": "hello"}}', :vt + value from number
        """,
        {"count": count, "vt": NOW - 10_000_000},
    )


def gather_statistics(connection: sqlite3.Connection, shape: str) -> None:
    """Gather statistics from a table of that shape, then empty the table."""
    if shape in BACKLOGS:
        fill(connection, BACKLOGS[shape], SMALL)
    connection.execute("analyze")
    connection.execute("delete from event")
    # Statistics are read with the schema; this makes the connection read it again.
    connection.execute("analyze sqlite_schema")


def steps(connection: sqlite3.Connection, work: Callable[[Writing], object]) -> int:
    """Count the instructions of SQLite's machine that the work takes, and roll it back."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    connection.execute("begin")
    connection.set_progress_handler(step, 1)
    ids = Ids()
    ids.begin(connection)
    work(Writing(connection, NOW, ids, set(), []))
    connection.set_progress_handler(None, 1)
    connection.execute("rollback")
    return count


def claim_and_settle(db: Writing) -> None:
    request = ClaimRequest(
        queue="inbox",
        targets=["", "other"],
        limit=5,
        lease=LEASE,
        holder="me",
        collect_limit=10,
        max_attempts=3,
    )
    turns = claim(db, request)
    assert turns
    settle(db, [(turn, Done()) for turn in turns], 3)


def look_ahead(db: Writing) -> None:
    assert read_next_due(db.connection, NOW - 5_000_000_000, "inbox", ["", "other"]) is not None


def sweep(db: Writing) -> None:
    policy = SweepPolicy(expire_after=LEASE, keep_history=LEASE, discard_unserved=LEASE)
    for step in (sweeping.bury, sweeping.expire, sweeping.discard_unserved):
        assert step(db, policy) == 0
    assert sweeping.prune(db, policy) == 0


WORK: list[Callable[[Writing], object]] = [claim_and_settle, look_ahead, sweep]


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("backlog", BACKLOGS)
def test_the_cost_does_not_grow_with_the_backlog(
    connection: sqlite3.Connection, backlog: str, statistics: str
) -> None:
    gather_statistics(connection, statistics)
    fill(connection, BACKLOGS[backlog], SMALL)
    small = {work.__name__: steps(connection, work) for work in WORK}
    fill(connection, BACKLOGS[backlog].replace("lane ", "further lane "), LARGE - SMALL)
    large = {work.__name__: steps(connection, work) for work in WORK}
    assert {
        name: (small[name], many) for name, many in large.items() if many > 2 * small[name]
    } == {}
