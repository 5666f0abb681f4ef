"""Many processes on one PostgreSQL: wake-ups after the commit, and one that looks for all."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast.queue.outcome import Done
from holdfast.queue.store import Process, Store
from holdfast.queue.turn import LeasedTurn
from holdfast.store import open_store
from holdfast.store.postgres.lookout import LOOK, TAKE_LOOKOUT
from holdfast.store.postgres.session import Session
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.postgres.waker import COALESCE_FOR, Waker
from holdfast.store.watch import Watch
from holdfast.testing.databases import Databases
from holdfast.testing.harness import until
from tests.conformance.steps import claim_one, end, message, put
from tests.queue.test_consumer import Gate
from tests.steps import consuming, policy

LOCKED = """
select count(*) from pg_locks where locktype = 'advisory' and granted
and (classid::int8 << 32 | objid::int8) = hashtextextended('holdfast looker', 0)
"""
NOBODY_IS_SUSPENDED = """
create function look_forever() returns trigger language plpgsql as $$
begin
    if new.key = 'lookout' then
        new.value := jsonb_set(new.value, '{at}', '"2100-01-01"');
    end if;
    return new;
end $$;
create trigger look_forever before insert or update on agent.setting
for each row execute function look_forever()
"""
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
    url: str, listening: Listening
) -> None:
    busy_at_once = policy(at_once=1, busy_after=timedelta(0))
    async with stores(url, 2) as [store, other]:
        gate = Gate()
        async with consuming(store, gate, busy_at_once) as consumer:
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


@pytest.mark.parametrize("queue", ["inbox", "a queue of the user"])
async def test_an_event_whose_wake_up_was_lost_is_found_by_the_looker(
    url: str, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    # The process dies between its commit and the wake-up.
    monkeypatch.setattr(Waker, "add", lambda *_: None)
    runs: list[float] = []

    async def handle(turn: LeasedTurn) -> Done:
        runs.append(time.monotonic())
        return Done()

    async with (
        stores(url, 3) as [store, dying, looker],
        consuming(store, handle, policy(queue=queue)) as consumer,
    ):
        await until(lambda: consumer._expects)
        await put(dying, queue=queue)
        put_at = time.monotonic()
        while not runs:
            await looker.reap()
            await asyncio.sleep(0.1)
    assert [run_at - put_at < 5 for run_at in runs] == [True]


async def test_a_fleet_looks_once_a_second_and_asks_for_roles_a_few_times(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_calls(monkeypatch)
    expect_no_suspension(url)
    clock = fake_clock(monkeypatch)
    async with stores(url, 20) as fleet:
        for number, store in enumerate(fleet):
            await register(store, f"process {number}")
            await store.reap()
        calls.clear()
        for _ in range(60):
            clock.now += 1
            for store in fleet:
                await store.reap()
    assert calls[LOOK] == 60
    # Per second, the deputy asks once, and all others together about four times.
    assert 4 * 60 <= calls[TAKE_LOOKOUT] <= 6 * 60


def count_calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the statements of all sessions from now on."""
    calls: Counter[str] = Counter()
    fetch = Session.fetch

    async def counting(session: Session, statement: str, arguments: Sequence[Any] = ()) -> Any:
        calls[statement] += 1
        return await fetch(session, statement, arguments)

    monkeypatch.setattr(Session, "fetch", counting)
    return calls


async def test_a_fleet_that_lost_looker_and_deputy_has_a_looker_again_within_a_second(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "random", random.Random(7).random)
    expect_no_suspension(url)
    clock = fake_clock(monkeypatch)
    async with stores(url, 30) as fleet:
        for number, store in enumerate(fleet):
            await register(store, f"process {number}")
            await store.reap()
        waits = [await seconds_without_looker(fleet, clock) for _ in range(10)]
    assert sum(waits) / len(waits) < 0.6
    assert max(waits) < 2.5


def expect_no_suspension(url: str) -> None:
    """A busy machine may leave a looker without time for seconds, which would replace it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(NOBODY_IS_SUSPENDED.encode())


async def seconds_without_looker(fleet: Sequence[Store], clock: FakeClock) -> float:
    """Take the roles of the looker and the deputy away. Returns when another one looks."""
    victims = [store for store, role in zip(fleet, roles([*fleet]), strict=True) if role != "none"]
    assert len(victims) == 2
    for store in victims:
        await engine(store)._fleet._session.fetch("select pg_advisory_unlock_all()")
        engine(store)._fleet._lookout._role = "none"
        engine(store)._fleet._lookout._next_at = clock.now + 10
    began_at = clock.now
    rest = [store for store in fleet if store not in victims]
    while "looker" not in roles(rest):
        clock.now += 0.05
        for store in rest:
            await store.reap()
    taken_after = clock.now - began_at
    while "deputy" not in roles([*fleet]):
        clock.now += 0.05
        for store in rest:
            await store.reap()
    return taken_after


async def test_a_looker_that_dies_with_its_deputy_is_replaced_within_two_seconds(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = fake_clock(monkeypatch)
    async with stores(url, 1) as [rest]:
        async with stores(url, 2) as others:
            for number, store in enumerate([*others, rest]):
                await register(store, f"process {number}")
                await store.reap()
            assert roles([*others, rest]) == ["looker", "deputy", "none"]
        with psycopg.connect(url, autocommit=True) as connection:
            # Their sessions may outlive them for a moment.
            await until(lambda: connection.execute(LOCKED).fetchone() == (0,))
        clock.now += 2
        await rest.reap()
        assert roles([rest]) == ["looker"]


def test_a_large_fleet_spreads_its_reconnects() -> None:
    session = Session("", lambda _: None)
    assert max(session._delay(9) for _ in range(100)) <= 0.5
    session.processes = 1000
    tenths = Counter(int(session._delay(9) * 10) for _ in range(1000))
    assert len(tenths) >= 16
    assert max(tenths.values()) < 120


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
    monkeypatch.setattr("holdfast.store.postgres.lookout.ROLE_REQUEST_SECONDS", 1e-9)
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
            # Pretend that the stored note is from the previous timeline.
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


class FakeClock:
    """The monotonic clock of lookouts, which a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def fake_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr("holdfast.store.postgres.lookout.time", clock)
    return clock


def roles(found: list[Store]) -> list[str]:
    return [engine(store)._fleet._lookout.role for store in found]


async def is_role(store: Store, role: str) -> bool:
    await store.reap()
    return roles([store]) == [role]


def engine(store: Store) -> PostgresStore:
    assert isinstance(store.engine, PostgresStore)
    return store.engine
