"""History on PostgreSQL: a hypertable if possible, pruned by chunk or row, except dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from holdfast.migrations.runner import migrate
from holdfast.queue.event import NewEvent, new_id
from holdfast.queue.outcome import Dead, Done
from holdfast.queue.store import Filter, Store, SweepPolicy
from holdfast.store import open_store
from holdfast.testing.clock import Clock
from holdfast.testing.databases import Databases
from holdfast.testing.fixtures import available
from tests.conformance.steps import claim

KEEP = SweepPolicy(keep_history=timedelta(days=30))


@pytest.fixture
def timescale_url(databases: Databases) -> Iterator[str]:
    with available("timescale", databases.fresh("timescale")) as url:
        yield url


@contextmanager
def role_without_extensions(url: str) -> Iterator[str]:
    """A role that owns schema agent and may create nothing else in its database."""
    role = new_id("keeper")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create role {role} login")
        connection.execute(f"create schema agent authorization {role}")
        try:
            yield as_role(url, role)
        finally:
            connection.execute(f"drop owned by {role} cascade")
            connection.execute(f"drop role {role}")


def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))


def value(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()
        return row[0] if row else None


def chunks(url: str) -> object:
    return value(
        url,
        "select count(*)::int from timescaledb_information.chunks"
        " where hypertable_name = 'event_hist'",
    )


async def finish(store: Store, clock: Clock, *outcomes: Done | Dead) -> None:
    await store.put([NewEvent(event={}, event_ts=clock.now) for _ in outcomes])
    turns = await claim(store, limit=len(outcomes))
    await store.settle(list(zip(turns, outcomes, strict=True)))


def test_history_is_a_hypertable_where_timescaledb_is(timescale_url: str) -> None:
    assert (
        value(timescale_url, "select hypertable_name from timescaledb_information.hypertables")
        == "event_hist"
    )
    assert value(timescale_url, "select agent.history_to_hypertable()") is True


def test_elsewhere_history_stays_a_plain_table(databases: Databases) -> None:
    with available("postgres", databases.fresh("postgres")) as url:
        assert value(url, "select agent.history_to_hypertable()") is False


async def test_a_plain_history_becomes_a_hypertable_with_what_it_holds(
    databases: Databases, clock: Clock
) -> None:
    with (
        available("timescale", databases.empty("timescale")) as url,
        role_without_extensions(url) as own_url,
    ):
        migrate(own_url)
        assert (
            value(url, "select count(*)::int from pg_extension where extname = 'timescaledb'") == 0
        )
        async with open_store(own_url, clock=clock) as store:
            await finish(store, clock, Done(), Dead("no"))
            assert value(url, "select agent.history_to_hypertable()") is True
            await finish(store, clock, Done())
            assert len(await store.finished(Filter())) == 3
        assert chunks(url) == 1


async def test_a_chunk_goes_whole_when_all_of_it_may_go(timescale_url: str, clock: Clock) -> None:
    async with open_store(timescale_url, clock=clock) as store:
        await finish(store, clock, Done(), Done())
        clock.tick(days=60)
        await finish(store, clock, Done())
        assert chunks(timescale_url) == 2
        assert (await store.sweep(KEEP)).pruned == 2
        assert chunks(timescale_url) == 1
        assert len(await store.finished(Filter())) == 1


async def test_a_chunk_with_a_dead_letter_stays_and_its_other_rows_go(
    timescale_url: str, clock: Clock
) -> None:
    async with open_store(timescale_url, clock=clock) as store:
        await finish(store, clock, Done(), Dead("no"), Done())
        clock.tick(days=60)
        assert (await store.sweep(KEEP)).pruned == 2
        assert [event.outcome for event in await store.finished(Filter())] == ["dead"]
        assert chunks(timescale_url) == 1
