"""A stop lets running turns finish and releases the rest; a second signal does not wait."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby
from pathlib import Path

import pytest

from holdfast.agents.base import Answer
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.chat import ChatStore
from holdfast.memory import IndexUnavailable
from holdfast.queue.outcome import Done, Outcome, Retry
from holdfast.queue.turn import LeasedTurn
from holdfast.settings import Settings
from holdfast.store import open_store
from tests.process.app import app_process
from tests.queue.test_consumer import Gate, done
from tests.steps import (
    NEVER,
    TIMEOUT_SECONDS,
    Proxy,
    both_engines,
    consuming,
    finished,
    policy,
    put,
    running,
    until,
)

SOON = timedelta(milliseconds=50)
NO_RESTART_GRACE = """
do $$ begin
    execute format('alter database %I set holdfast.restart_grace = ''0s''', current_database());
end $$
"""


@both_engines
async def test_running_turns_finish_and_no_others_are_claimed(store: ChatStore) -> None:
    await put(store, 3)
    gate = Gate()
    async with consuming(store, gate, policy(at_once=1)) as consumer:
        await until(lambda: gate.inside)
        consumer.stop()
        gate.open.set()
    [ended] = await finished(store)
    assert (ended.outcome, ended.attempts) == ("completed", 1)
    assert await store.leased("inbox") == []
    assert len(await store.waiting("inbox", "")) == 2


async def test_turns_claimed_during_a_stop_are_released_without_using_an_attempt(
    proxy: Proxy,
) -> None:
    [id] = await put(proxy)
    started: list[LeasedTurn] = []

    async def start(turn: LeasedTurn) -> Outcome:
        started.append(turn)
        return Done()

    async with consuming(proxy, start) as consumer:

        async def stop() -> None:
            consumer.stop()

        proxy.after["claim"] = stop
        await until(lambda: proxy.calls["claim"])
    back = await proxy.live(id)
    assert (back.attempts, back.fence, len(back.claimed)) == (0, 0, 1)
    assert started == []


@both_engines
async def test_turns_that_do_not_finish_in_time_are_released_without_using_an_attempt(
    store: ChatStore,
) -> None:
    [id] = await put(store)
    gate = Gate()
    async with consuming(store, gate, grace=SOON):
        await until(lambda: gate.inside)
    back = await store.live(id)
    assert back is not None
    assert (back.attempts, back.fence, back.holder, len(back.claimed)) == (0, 0, None, 1)
    assert gate.inside == []


async def test_an_answer_returned_during_cancellation_is_kept(store: ChatStore) -> None:
    async def hurry(turn: LeasedTurn) -> Outcome:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Done()
        raise AssertionError

    await put(store)
    async with consuming(store, hurry, grace=SOON) as consumer:
        await until(lambda: consumer.running)
    [ended] = await finished(store)
    assert (ended.outcome, ended.attempts) == ("completed", 1)
    assert consumer.running == 0


async def test_an_error_during_cancellation_is_no_failure(store: ChatStore) -> None:
    async def stumble(turn: LeasedTurn) -> Outcome:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("while cleaning up") from None
        raise AssertionError

    [id] = await put(store)
    async with consuming(store, stumble, grace=SOON) as consumer:
        await until(lambda: consumer.running)
    back = await store.live(id)
    assert back is not None
    assert (back.attempts, back.last_error) == (0, None)


async def test_a_stop_before_the_first_claim_does_not_wait_for_it(store: ChatStore) -> None:
    await put(store)
    began = time.monotonic()
    async with consuming(store, done, policy(start_stagger=NEVER)) as consumer:
        consumer.stop()
    assert time.monotonic() - began < 5


async def test_leases_are_kept_during_the_grace_period(proxy: Proxy) -> None:
    [id] = await put(proxy)
    gate = Gate()
    async with consuming(proxy, gate, policy(lease=timedelta(seconds=1))) as consumer:
        await until(lambda: gate.inside)
        consumer.stop()
        renewed = proxy.calls["renew"]
        await until(lambda: proxy.calls["renew"] > renewed + 4)
        gate.open.set()
    [ended] = await finished(proxy)
    assert (ended.id, ended.attempts) == (id, 1)


@both_engines
async def test_a_released_turn_is_claimed_by_another_process_at_once(
    store: ChatStore, settings: Settings
) -> None:
    gates = [Gate(), Gate()]

    def harness(gate: Gate) -> AgentHarness:
        async def answer(turn: Turn) -> Answer:
            await gate(turn)
            return None

        return AgentHarness(answer)

    async with running(harness(gates[0]), settings, grace=SOON) as first:
        await first.put("hello")
        await until(lambda: gates[0].inside)
        async with running(harness(gates[1]), settings, grace=SOON):
            first.stop()
            await until(lambda: gates[1].inside)
            assert gates[0].inside == []
            gates[1].open.set()
            [ended] = await finished(store)
    assert (ended.attempts, len(ended.claimed)) == (1, 2)
    assert await store.processes() == []


@both_engines
async def test_a_process_drains_on_sigterm_and_leaves_no_row(
    store: ChatStore, database_url: str
) -> None:
    [first, second] = await put(store, 2)
    with app_process(database_url, "wait_for_line", grace="5s", workers=1) as process:
        assert {process.read_line(), process.read_line()} == {"ready", f"started {first}"}
        process.send_signal(signal.SIGTERM)
        assert process.read_line() == "stopping"
        process.write_line("go on")
        assert process.wait(TIMEOUT_SECONDS) == 0
    [ended] = await finished(store)
    assert (ended.id, ended.outcome) == (first, "completed")
    assert [one.id for one in await store.waiting("inbox", "")] == [second]
    assert await store.processes() == []


async def test_a_process_releases_its_turns_after_the_grace_period_and_ends(
    store: ChatStore, database_url: str
) -> None:
    [id] = await put(store)
    with app_process(database_url, "hang", grace="200ms") as process:
        assert {process.read_line(), process.read_line()} == {"ready", f"started {id}"}
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_SECONDS) == 0
    back = await store.live(id)
    assert back is not None
    assert (back.attempts, back.fence) == (0, 0)


@pytest.mark.parametrize("kind", ["hang", "hang_in_thread", "hang_on"])
async def test_a_second_signal_stops_at_once(
    store: ChatStore, database_url: str, kind: str
) -> None:
    [id] = await put(store)
    with app_process(database_url, kind, grace="1h") as process:
        assert {process.read_line(), process.read_line()} == {"ready", f"started {id}"}
        process.send_signal(signal.SIGTERM)
        assert process.read_line() == "stopping"
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_SECONDS)
    left = await store.live(id)
    assert left is not None
    assert (left.attempts, left.fence > 0) == (1, True)


@both_engines
async def test_a_thread_that_does_not_end_keeps_its_turn_until_its_process_is_gone(
    store: ChatStore, engine: str, database_url: str, tmp_path: Path
) -> None:
    """The thread cannot be cancelled, so no other process may claim its event meanwhile."""
    if engine == "postgres":
        await spare_nobody(store)
    marks = tmp_path / "marks"
    message = {"kind": "message", "channel": "api", "message": "hi", "marks": str(marks)}
    [id] = await put(store, event=message, max_attempts=2)
    with app_process(database_url, "tick_in_thread", grace="200ms") as first:
        assert {first.read_line(), first.read_line()} == {"ready", f"started {id}"}
        with app_process(database_url, "tick_in_thread") as second:
            assert second.read_line() == "ready"
            first.send_signal(signal.SIGTERM)
            assert first.wait(TIMEOUT_SECONDS) == 128 + signal.SIGTERM
            assert second.read_line() == f"started {id}"
            [ended] = await finished(store)
    workers = [worker for worker, _ in groupby(marks.read_text().splitlines())]
    assert len(workers) == len(set(workers)) == 2
    assert (ended.outcome, ended.attempts) == ("completed", 2)


async def spare_nobody(store: ChatStore) -> None:
    """Turn off the 30 s after a server start in which no process is declared dead."""
    async with store.transaction() as transaction:
        await transaction.execute(NO_RESTART_GRACE)


async def test_a_handler_that_ignores_cancellation_does_not_delay_the_exit(
    store: ChatStore, database_url: str
) -> None:
    [id] = await put(store)
    with app_process(database_url, "hang_on", grace="200ms") as process:
        assert {process.read_line(), process.read_line()} == {"ready", f"started {id}"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == 128 + signal.SIGTERM
    left = await store.live(id)
    assert left is not None
    assert (left.attempts, left.fence > 0) == (1, True)
    assert len(await store.processes()) == 1


async def test_a_failure_during_the_drain_is_stored_as_a_retry(
    store: ChatStore, database_url: str
) -> None:
    """The handler fails during the drain; the next process retries its message."""
    gate = Gate()

    async def fail(turn: LeasedTurn) -> Outcome:
        await gate(turn)
        return Retry("busy")

    [id] = await put(store)
    async with consuming(store, fail) as consumer:
        await until(lambda: gate.inside)
        consumer.stop()
        gate.open.set()
    async with open_store(database_url) as other, consuming(other, done):
        [ended] = await finished(other)
    assert (ended.id, ended.attempts, ended.last_error) == (id, 2, "busy")


class UnreachableEmbedder:
    """An embedder whose model is unreachable."""

    model, dimensions = "away", 3

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        raise IndexUnavailable("nobody is there")


async def test_a_stop_does_not_wait_for_an_unreachable_index(
    settings: Settings, store: ChatStore
) -> None:
    def remember(turn: Turn) -> Answer:
        turn.memory.observe("likes tea")
        return "noted"

    app = AgentHarness(embedder=UnreachableEmbedder())
    app.add("coder", remember, memory=True)
    async with running(app, settings):
        await app.put("hello")
        await finished(app.store, 1, queue="inbox")
        await until(lambda: is_leased(store, "memory"))
        asked_at = time.monotonic()
    assert time.monotonic() - asked_at < settings.grace.total_seconds() / 2
    [waiting] = await store.waiting("memory", "")
    assert (waiting.attempts, waiting.fence) == (0, 0)


async def is_leased(store: ChatStore, queue: str) -> bool:
    return bool(await store.leased(queue))
