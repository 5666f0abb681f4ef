"""The live table stays small through many rounds of events, also after its statistics are lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import cast

import psycopg
import pytest
import pytest_asyncio

from holdfast.queue.outcome import Done
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.postgres.vacuum import LiveTableVacuum
from holdfast.testing.databases import Databases
from tests.conformance.steps import claim, message

ROUND = 12_000
"""More dead rows than a vacuum waits for."""
BATCH = 1_000
SIZE = "select pg_total_relation_size('agent.event')"
VACUUMS = "select vacuum_count from pg_stat_user_tables where relid = 'agent.event'::regclass"
KEEP_ALL = "alter table agent.event set (autovacuum_enabled = off)"

Session = psycopg.Connection[tuple[int]]


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    with databases.fresh("postgres") as url:
        yield url


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    """A session on a database where only we vacuum the live table."""
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(KEEP_ALL)
        yield cast(Session, session)


@pytest_asyncio.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(url) as store:
        yield store


async def work_a_round(store: PostgresStore) -> None:
    for _ in range(ROUND // BATCH):
        await store.put([message(lane=f"{number}") for number in range(BATCH)])
        turns = await claim(store, limit=BATCH)
        await store.settle([(turn, Done()) for turn in turns])


def number(session: Session, statement: str) -> int:
    row = session.execute(statement.encode()).fetchone()
    assert row is not None
    return row[0]


async def rounds(store: PostgresStore, session: Session, *, forgets: bool) -> list[int]:
    vacuum = LiveTableVacuum(store._connections, lambda: True)
    sizes = []
    for _ in range(5):
        await work_a_round(store)
        await store._connections.value("select pg_stat_force_next_flush()")
        if forgets:
            session.execute("select pg_stat_reset()")
        assert await vacuum.vacuum_if_due()
        sizes.append(number(session, SIZE))
    return sizes


@pytest.mark.parametrize("forgets", [False, True], ids=["counted", "after failovers"])
async def test_the_live_table_stays_small_through_many_rounds(
    store: PostgresStore, session: Session, forgets: bool
) -> None:
    sizes = await rounds(store, session, forgets=forgets)
    # Index pages that one vacuum empties are free for use after the next one.
    assert max(sizes[2:]) < 1.1 * sizes[1] < 2 * sizes[0]


async def test_few_dead_rows_are_left_to_the_server(store: PostgresStore, session: Session) -> None:
    await store.put([message(lane="a")])
    [turn] = await claim(store)
    await store.settle([(turn, Done())])
    assert await LiveTableVacuum(store._connections, lambda: True).vacuum_if_due()
    assert number(session, VACUUMS) == 0


async def test_a_vacuum_that_a_snapshot_makes_useless_says_so(
    store: PostgresStore, session: Session, url: str
) -> None:
    with psycopg.connect(url) as holding:
        holding.execute("set transaction isolation level repeatable read")
        holding.execute("select count(*) from agent.event")
        await work_a_round(store)
        await store._connections.value("select pg_stat_force_next_flush()")
        assert not await LiveTableVacuum(store._connections, lambda: True).vacuum_if_due()
    assert number(session, VACUUMS) == 1
