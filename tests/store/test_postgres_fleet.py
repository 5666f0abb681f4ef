"""Many processes on one PostgreSQL: wake-ups after the commit, and one looker for all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import psycopg
import pytest

from holdfast.queue.outcome import Done
from holdfast.queue.store import Process, Store
from holdfast.queue.turn import LeasedTurn
from holdfast.store import open_store
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.postgres.waker import COALESCE_FOR, Waker
from holdfast.store.watch import Watch
from holdfast.testing.databases import Databases
from holdfast.testing.harness import until
from tests.conformance.steps import claim_one, end, message, put
from tests.queue.test_consumer import Gate
from tests.steps import consuming, policy

Listening = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    with databases.fresh("postgres") as url:
        yield url


@pytest.fixture
def listening(url: str) -> Iterator[Listening]:
    """A session that hears every notification, and waits for none."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("listen holdfast")
        yield connection


def notifications(listening: Listening) -> list[str]:
    """Return what was notified so far. A notification of our own comes after all others."""
    with psycopg.connect(listening.info.dsn, autocommit=True) as other:
        other.execute("notify holdfast, 'end'")
    notes: list[str] = []
    for note in listening.notifies(timeout=10):
        if note.payload == "end":
            return notes
        notes.append(note.payload)
    raise AssertionError("the last notification never came")


@asynccontextmanager
async def stores(url: str, count: int) -> AsyncIterator[list[Store]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(open_store(url, watch=Watch(timedelta())))
            for _ in range(count)
        ]


async def register(store: Store, name: str) -> None:
    now = await store.now()
    await store.register(Process(id=name, host="here", started_at=now, seen_at=now))


async def test_no_wake_up_is_sent_where_nobody_waits(url: str, listening: Listening) -> None:
    async with stores(url, 1) as [store]:
        await put(store)
        await store.put([message(lane="a"), message(lane="b")])
        await store.put([message(lane=f"{number}") for number in range(300)])
        await end(store, await claim_one(store), Done((message(queue="outbox"),)))
    assert notifications(listening) == []


async def test_a_process_that_waits_for_a_queue_is_woken_for_it_alone(
    url: str, listening: Listening
) -> None:
    async with stores(url, 2) as [store, waiting]:
        await register(waiting, "waiting")
        await waiting.expect("outbox")
        await put(store)
        await end(store, await claim_one(store), Done((message(queue="outbox"),)))
        await until(lambda: "outbox" in notifications(listening))
        await waiting.expect("outbox", False)
        await put(store, queue="outbox")
    assert notifications(listening) == []


async def test_a_process_does_not_wake_itself_by_way_of_the_database(
    url: str, listening: Listening
) -> None:
    async with stores(url, 1) as [store]:
        await register(store, "alone")
        await store.expect("inbox")
        await put(store)
    assert notifications(listening) == []


async def test_wake_ups_of_one_process_are_sent_together(url: str, listening: Listening) -> None:
    async with stores(url, 2) as [store, waiting]:
        await register(waiting, "waiting")
        await waiting.expect("inbox")
        began_at = time.monotonic()
        for _ in range(100):
            await put(store)
        took = time.monotonic() - began_at
    notes = notifications(listening)
    assert 1 <= len(notes) <= took / COALESCE_FOR.total_seconds() + 2
    assert len(notes) < 100


async def test_wake_ups_that_are_due_when_a_store_closes_are_sent(
    url: str, listening: Listening
) -> None:
    async with stores(url, 1) as [waiting]:
        await register(waiting, "waiting")
        await waiting.expect("inbox")
        async with open_store(url) as store:
            await put(store)
        assert notifications(listening) == ["inbox"]


@pytest.mark.parametrize("lanes", ["", ", 'channel': '%s', 'ts': '1'"], ids=["none", "own"])
def test_a_transaction_of_a_sql_caller_sends_one_wake_up(
    url: str, listening: Listening, lanes: str
) -> None:
    with psycopg.connect(url) as caller:
        for number in range(100):
            event = "{'type': 'app_mention'" + (lanes % number if lanes else "") + "}"
            caller.execute("select agent.insert_event(%s)", [event.replace("'", '"')])
        assert notifications(listening) == []
        caller.commit()
    assert notifications(listening) == ["inbox"]


async def test_a_consumer_with_all_slots_taken_asks_for_no_wake_ups(
    url: str, listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.queue.consumer.BUSY_AFTER", timedelta(0))
    async with stores(url, 2) as [store, other]:
        gate = Gate()
        async with consuming(store, gate, policy(at_once=1)) as consumer:
            await put(other)
            await until(lambda: gate.inside)
            notifications(listening)
            # It finds that out when it is woken.
            await put(other)
            await until(lambda: not consumer._expects)
            notifications(listening)
            await put(other)
            assert notifications(listening) == []
            gate.open.set()
            await until(lambda: consumer._expects)


async def test_an_event_whose_wake_up_was_lost_is_found_by_the_looker(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The process dies between its commit and the wake-up.
    monkeypatch.setattr(Waker, "add", lambda *_: None)
    runs: list[int] = []

    async def handle(turn: LeasedTurn) -> Done:
        runs.append(turn.primary.id)
        return Done()

    async with stores(url, 3) as [store, dying, looker], consuming(store, handle) as consumer:
        await until(lambda: consumer._expects)
        await put(dying)
        while not runs:
            await looker.reap()
            await asyncio.sleep(0.1)
    assert len(runs) == 1


async def test_one_process_looks_one_stands_by_and_the_rest_wait(url: str) -> None:
    async with stores(url, 5) as all_of_them:
        for number, store in enumerate(all_of_them):
            await register(store, f"process {number}")
        for _ in range(3):
            for store in all_of_them:
                await store.reap()
        assert roles(all_of_them) == ["looker", "deputy", "none", "none", "none"]


async def test_the_deputy_takes_over_from_a_dead_looker(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.lookout.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("holdfast.store.postgres.lookout.ROLE_REQUEST_SECONDS", 0.0)
    async with stores(url, 2) as rest:
        async with open_store(url) as looker:
            await register(looker, "looker")
            await until(lambda: is_role(looker, "looker"))
            for store in rest:
                await register(store, f"process {rest.index(store)}")
                await store.reap()
            assert roles(rest) == ["deputy", "none"]
        # Its session may outlive it for a moment.
        await until(lambda: is_role(rest[0], "looker"))
        assert await until(lambda: is_role(rest[1], "deputy"))


async def test_a_suspended_looker_is_replaced_and_replaces_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.lookout.LOOK_SECONDS", 0.0)
    async with stores(url, 2) as [looker, deputy]:
        for store in (looker, deputy):
            await register(store, f"process {id(store)}")
            await store.reap()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "update agent.setting set value = jsonb_set(value, '{at}', to_jsonb(now()"
                " - interval '4 seconds')) where key = 'lookout'"
            )
        await deputy.reap()
        assert roles([looker, deputy]) == ["looker", "looker"]
        await looker.reap()
        await deputy.reap()
        assert roles([looker, deputy])[1] != "looker"


async def test_a_promoted_standby_declares_nobody_dead_for_a_while(url: str) -> None:
    async with stores(url, 1) as [store]:
        async with open_store(url) as other:
            await register(other, "other")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("select agent.up_since()")
            # As if the note came from the timeline before.
            connection.execute("select agent.set_setting('timeline', '{\"id\": \"0\"}')")
            name = connection.info.dbname
            connection.execute(f"alter database {name} set holdfast.restart_grace = '1h'".encode())
            for _ in range(3):
                assert await store.reap() == []
            assert connection.execute("select agent.silent_processes()").fetchone() == ([],)
            connection.execute(f"alter database {name} set holdfast.restart_grace = '0'".encode())
        async with open_store(url, watch=Watch(timedelta())) as later:
            await store.close()
            assert await until(later.reap) == ["other"]


async def test_the_first_process_back_after_a_promotion_notes_it(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select agent.set_setting('timeline', '{\"id\": \"0\"}')")
        async with stores(url, 1) as [store]:
            await register(store, "back")
            noted = "select value ->> 'id' from agent.setting where key = 'timeline'"
            assert connection.execute(noted).fetchone() == ("00000001",)


async def test_a_dead_process_is_found_when_the_grace_after_a_promotion_ends(url: str) -> None:
    async with open_store(url) as other:
        await register(other, "other")
    with psycopg.connect(url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"alter database {name} set holdfast.restart_grace = '0.7s'".encode())
        async with stores(url, 1) as [store]:
            connection.execute("select agent.set_setting('timeline', '{\"id\": \"0\"}')")
            await register(store, "living")
            # The second look follows within the same call, not with the next one a second later.
            assert await store.reap() == ["other"]


def roles(found: list[Store]) -> list[str]:
    return [engine(store)._fleet._lookout.role for store in found]


async def is_role(store: Store, role: str) -> bool:
    await store.reap()
    return roles([store]) == [role]


def engine(store: Store) -> PostgresStore:
    assert isinstance(store.engine, PostgresStore)
    return store.engine
