"""The pool under the PostgreSQL store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.errors import StoreUnavailable
from holdfast.store import open_store
from holdfast.store.postgres.connections import PREPARE_AFTER, Connections, translate_errors
from holdfast.store.postgres.outage import with_timeouts
from holdfast.testing.databases import Databases
from holdfast.testing.harness import until
from tests.conformance.steps import claim_ids, put
from tests.crash.test_postgres_faults import END_ALL_OTHERS


async def test_a_cancelled_wait_for_a_connection_stays_cancelled(databases: Databases) -> None:
    with databases.fresh("postgres") as url:
        async with Connections(url, clock=None, size=1) as connections:
            # The pool hands the connection over in a few turns of the loop: cancel in each of them.
            for turns in range(60):
                ended = await _cancelled_after(connections, turns)
                assert ended, (
                    f"the cancellation {turns} turns after the connection came free was swallowed"
                )


SESSION_BEHIND_LOCK = (
    "select pg_backend_pid() from (select pg_advisory_xact_lock_shared(7)) as lock"
)
ALL_WAIT = "select count(*) = 3 from pg_locks where locktype = 'advisory' and not granted"


async def test_a_lone_caller_keeps_to_one_session(databases: Databases) -> None:
    with databases.fresh("postgres") as url:
        async with (
            Connections(url, clock=None, size=3) as connections,
            await psycopg.AsyncConnection.connect(url, autocommit=True) as other,
        ):
            await other.execute("select pg_advisory_lock(7)")
            calls = [asyncio.create_task(connections.value(SESSION_BEHIND_LOCK)) for _ in range(3)]
            await until(lambda: _first(other, ALL_WAIT))
            await other.execute("select pg_advisory_unlock(7)")
            at_once = {await call for call in calls}
            alone = {await connections.value("select pg_backend_pid()") for _ in range(6)}
    assert (len(at_once), len(alone)) == (3, 1)


async def test_a_cancellation_that_meets_an_error_of_the_server_stays_one() -> None:
    async def ask() -> None:
        with translate_errors():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                # The driver does so if the server is gone before the cancellation reaches it.
                raise psycopg.OperationalError("terminating connection") from None

    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


REPLACE_ALL = """do $$ declare _definition text; begin
    for _definition in select pg_get_functiondef(oid) from pg_proc
                       where pronamespace = 'agent'::regnamespace and prokind = 'f' loop
        execute _definition;
    end loop; end $$"""
WAITS = (
    "select exists (select from pg_locks where relation = 'agent.event'::regclass and not granted)"
)


async def test_a_claim_that_waits_for_a_migration_of_its_table_succeeds(
    databases: Databases,
) -> None:
    with databases.fresh("postgres") as url:
        async with (
            open_store(url) as store,
            await psycopg.AsyncConnection.connect(url) as migration,
        ):
            first, second = await put(store), await put(store)
            assert await claim_ids(store, limit=1) == [[first]]
            await migration.execute("alter table agent.event add column of_a_later_release text")
            await migration.execute(REPLACE_ALL)
            claim = asyncio.create_task(claim_ids(store, limit=1))
            await until(lambda: _first(migration, WAITS))
            await migration.commit()
            assert await claim == [[second]]


async def _first(
    connection: psycopg.AsyncConnection[tuple[object, ...]], query: LiteralString
) -> object:
    row = await (await connection.execute(query)).fetchone()
    return row and row[0]


async def _cancelled_after(connections: Connections, turns: int) -> bool:
    async def ask_and_stay() -> None:
        await connections.value("select 1")
        await asyncio.Event().wait()

    async with connections.transaction():
        task = asyncio.create_task(ask_and_stay())
        await asyncio.sleep(0.01)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    ended, _ = await asyncio.wait([task], timeout=1)
    task.cancel()
    return bool(ended)


async def test_a_url_may_name_hosts_that_are_away(databases: Databases, tmp_path: Path) -> None:
    with databases.fresh("postgres") as url:
        name, _, folder = url.partition("?host=")
        several = f"{name}?host={tmp_path},{folder}&target_session_attrs=read-write"
        async with open_store(several) as store, open_store(several) as other:
            await other.expect("inbox")
            assert await put(store) is not None


def test_a_url_keeps_its_own_time_limits() -> None:
    given = with_timeouts("postgresql://a,b/db?connect_timeout=7&keepalives_idle=60")
    found = conninfo_to_dict(given)
    assert (found["connect_timeout"], found["keepalives_idle"]) == ("7", "60")
    assert conninfo_to_dict(with_timeouts("postgresql://a,b/db"))["connect_timeout"] == "2"


COUNT_OTHERS = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()
"""


async def test_connections_that_a_server_ended_are_not_given_out_again(
    databases: Databases,
) -> None:
    with databases.fresh("postgres") as url:
        async with Connections(url, clock=None, size=4) as connections:
            await asyncio.gather(*[connections.value("select pg_sleep(0.1)") for _ in range(4)])
            with psycopg.connect(url, autocommit=True) as other:
                other.execute(END_ALL_OTHERS)
                # A server ends its sessions after it has answered.
                await until(lambda: other.execute(COUNT_OTHERS).fetchone() == (0,))
            failures = 0
            for _ in range(8):
                try:
                    await connections.value("select 1")
                except StoreUnavailable:
                    failures += 1
            # One call finds out; the other connections are checked before they are used.
            assert failures <= 1


async def test_a_pooler_without_prepared_statements_is_used_without_them(
    databases: Databases,
) -> None:
    with databases.fresh("postgres") as url:
        async with Connections(url, clock=None, size=1) as connections:
            for _ in range(5):
                await connections.value("select %s::int4", [1])
            # As if the pooler gave the next call another session.
            async with connections.transaction() as connection:
                connection.pgconn.exec_(b"deallocate all")
            assert await connections.value("select %s::int4", [2]) == 2
            async with connections.transaction() as connection:
                assert connection.prepare_threshold is None


async def test_a_failed_transaction_leaves_its_connection_with_prepared_statements(
    databases: Databases,
) -> None:
    with databases.fresh("postgres") as url:
        async with Connections(url, clock=None, size=1) as connections:
            with pytest.raises(RuntimeError):
                async with connections.transaction() as connection:
                    raise RuntimeError
            assert connection.prepare_threshold == PREPARE_AFTER
