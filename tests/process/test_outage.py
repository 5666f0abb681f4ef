"""During a database outage the process stays up and handlers run on; turns are settled later."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast.agents.echo import echo
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.chat import ChatStore
from holdfast.errors import StoreUnavailable
from holdfast.queue.outcome import Done, Outcome
from holdfast.queue.store import Process, SweepPolicy
from holdfast.queue.sweeper import Sweeper
from holdfast.queue.turn import LeasedTurn
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.testing.servers import Unavailable
from tests.private_server import Server, private_server
from tests.queue.test_consumer import Gate, done
from tests.steps import (
    AT_ONCE,
    Proxy,
    consuming,
    event,
    finished,
    policy,
    put,
    running,
    until,
)


@pytest.fixture
def server() -> Iterator[Server]:
    try:
        with private_server() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


async def test_handlers_survive_an_outage_and_settle_afterwards(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    await put(proxy, 2)
    gate = Gate()
    async with consuming(proxy, gate, policy(at_once=2)) as consumer:
        await until(lambda: len(gate.inside) == 2)
        proxy.down = True
        gate.open.set()
        tried = proxy.calls["settle"]
        await until(lambda: proxy.calls["settle"] > tried + 3)
        assert consumer.running == 2
        proxy.down = False
        ended = await finished(proxy, 2)
        await put(proxy)
        await finished(proxy, 3)
    assert [one.attempts for one in ended] == [1, 1]
    assert len(caplog.records) <= 2


async def test_an_idle_consumer_backs_off_while_the_database_is_down(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.down = True
    async with consuming(proxy, done, policy()):
        await until(lambda: proxy.calls["claim"] >= 4)
        began, calls = time.monotonic(), proxy.calls["claim"]
        await until(lambda: time.monotonic() > began + 1)
        assert proxy.calls["claim"] - calls <= 4
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        proxy.down = False
        await put(proxy)
        await finished(proxy)


async def test_settles_are_retried_until_the_lease_ends_and_then_dropped(proxy: Proxy) -> None:
    await put(proxy)
    runs = []

    async def handle(turn: LeasedTurn) -> Outcome:
        runs.append(turn.attempt)
        proxy.down = turn.attempt == 1
        return Done()

    async with consuming(proxy, handle, policy(lease=timedelta(seconds=1))) as consumer:
        await until(lambda: runs and consumer.running == 0)
        proxy.down = False
        [ended] = await finished(proxy)
    assert runs == [1, 2]
    assert ended.attempts == 2


async def test_a_settle_whose_answer_was_lost_is_not_repeated(proxy: Proxy) -> None:
    """The settle was committed, but its answer was lost: a second try finds nothing to settle."""

    async def handle(turn: LeasedTurn) -> Outcome:
        return Done((event(queue="outbox"),))

    async def break_once() -> None:
        proxy.after.clear()
        raise StoreUnavailable("the database cannot be reached: the connection broke")

    proxy.after["settle"] = break_once
    await put(proxy)
    async with consuming(proxy, handle) as consumer:
        await finished(proxy)
        await until(lambda: consumer.running == 0)
    assert len(await proxy.waiting("outbox", "")) == 1


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
async def test_a_claim_whose_answer_was_lost_is_given_back_within_5_s(proxy: Proxy) -> None:
    async def break_once() -> None:
        proxy.after.clear()
        raise StoreUnavailable("the database cannot be reached: the connection broke")

    await put(proxy)
    proxy.after["claim"] = break_once
    began_at = time.monotonic()
    async with consuming(proxy, done, policy(lease=timedelta(minutes=10))):
        [ended] = await finished(proxy)
    assert time.monotonic() - began_at < 5
    assert (ended.attempts, len(ended.claimed)) == (1, 2)


async def test_a_turn_that_runs_is_not_given_back_after_a_lost_claim(proxy: Proxy) -> None:
    gate = Gate()
    async with consuming(proxy, gate, policy(at_once=2)) as consumer:
        [id] = await put(proxy)
        await until(lambda: gate.inside)
        consumer._lost_claims.note_lost()
        await until(lambda: proxy.calls["held"] > 2)
        assert (proxy.calls["release"], consumer.running) == (0, 1)
        gate.open.set()
        [ended] = await finished(proxy)
    assert (ended.id, ended.attempts) == (id, 1)


async def test_a_handler_that_meets_an_outage_uses_no_attempt(proxy: Proxy) -> None:
    async def handle(turn: LeasedTurn) -> Outcome:
        if len(turn.primary.claimed) == 1:
            raise StoreUnavailable("the database cannot be reached: the connection broke")
        return Done()

    await put(proxy, max_attempts=1)
    async with consuming(proxy, handle):
        [ended] = await finished(proxy)
    assert (ended.outcome, ended.attempts, len(ended.claimed)) == ("completed", 1, 2)


async def test_a_stop_during_an_outage_ends_in_time(proxy: Proxy) -> None:
    await put(proxy, 2)
    gate = Gate()
    async with consuming(
        proxy, gate, policy(at_once=2), grace=timedelta(milliseconds=100)
    ) as consumer:
        await until(lambda: len(gate.inside) == 2)
        proxy.down = True
        began = time.monotonic()
        consumer.stop()
        await until(lambda: not gate.inside)
    assert time.monotonic() - began < 10


async def test_maintenance_waits_for_the_database(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    now = await proxy.now()
    process = Process(id="one", host="here", started_at=now, seen_at=now)
    await proxy.register(process)
    proxy.down = True
    sweeper = Sweeper(proxy, [SweepPolicy()], lambda: process, timedelta(milliseconds=10))
    async with asyncio.TaskGroup() as group:
        sweeping = group.create_task(sweeper.run())
        await until(lambda: proxy.calls["sweep"] > 3)
        assert len(caplog.records) <= 3
        proxy.down = False
        await until(lambda: proxy.calls["sweep"] > 6)
        sweeping.cancel()


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_postgresql_stops_and_starts_under_a_running_handler(
    how: str, server: Server, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    gate = Gate()

    async def answer(turn: Turn) -> str:
        await gate(turn)
        return await echo(turn)

    app = AgentHarness(answer)
    url: dict[str, Any] = {"database": server.url, "database_direct": server.url}
    async with running(app, settings, **url, poll=timedelta(seconds=2), poll_jitter=AT_ONCE):
        await app.put("first", message_id="first")
        await until(lambda: gate.inside)
        await asyncio.to_thread(server.stop, how)
        gate.open.set()
        down_until = time.monotonic() + 2
        await until(lambda: time.monotonic() > down_until)
        await asyncio.to_thread(server.start)
        async with open_store(server.url) as other:
            [ended] = await finished(other, queue="inbox")
            [reply] = await other.waiting("outbox", "api")
            assert (ended.attempts, ended.outcome) == (1, "completed")
            assert reply.event["message"] == "you said first"
            await hears_again(other)
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) <= 8, "\n".join(lines)


async def test_a_server_that_is_read_only_for_a_while_uses_no_attempt_and_ends_nobody(
    server: Server, settings: Settings
) -> None:
    gate = Gate()

    async def answer(turn: Turn) -> str:
        await gate(turn)
        return await echo(turn)

    app = AgentHarness(answer)
    url: dict[str, Any] = {"database": server.url, "database_direct": server.url}
    async with running(app, settings, **url, poll=timedelta(seconds=2), poll_jitter=AT_ONCE):
        await app.put("first", message_id="first")
        await until(lambda: gate.inside)
        set_read_only(server, "on")
        gate.open.set()
        with pytest.raises(StoreUnavailable, match="read-only"):
            await app.put("second", message_id="second")
        down_until = time.monotonic() + 2
        await until(lambda: time.monotonic() > down_until)
        set_read_only(server, "off")
        back_at = time.monotonic()
        async with open_store(server.url) as other:
            [ended] = await finished(other, queue="inbox")
            assert (ended.attempts, ended.outcome) == (1, "completed")
            await hears_again(other)
        assert time.monotonic() - back_at < 10


def set_read_only(server: Server, value: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("set default_transaction_read_only = off")
        connection.execute(f"alter system set default_transaction_read_only = {value}".encode())
        connection.execute("select pg_reload_conf()")


async def hears_again(other: ChatStore) -> None:
    await other.put([event(message_id="second")])
    await finished(other, 2, queue="inbox")


async def test_a_harness_is_stopped_while_postgresql_is_down(
    server: Server, settings: Settings
) -> None:
    app = AgentHarness(echo)
    async with running(app, settings, database=server.url, database_direct=server.url):
        await asyncio.to_thread(server.stop)
        began = time.monotonic()
    assert time.monotonic() - began < 15
