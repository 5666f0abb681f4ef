"""Processes: known to each other, and relieved of their work once they are gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest_asyncio

from holdfast.queue.store import Process, Store
from holdfast.store import open_store
from holdfast.store.life import read_life
from holdfast.store.watch import Watch
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory
from tests.conformance.steps import (
    claim,
    claim_ids,
    claim_one,
    count,
    ended,
    finished,
    live,
    put,
    put_lane,
)
from tests.conformance.worker_process import worker_process

TIMEOUT_SECONDS = 60


def process(name: str, now: datetime) -> Process:
    return Process(id=name, host="here", started_at=now, seen_at=now)


async def reap_until_seen(store: Store) -> list[str]:
    """Look again and again, as a process does; the first dead ones."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (gone := await store.reap()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return gone


@pytest_asyncio.fixture
async def hasty(database_url: str, clock: Clock) -> AsyncIterator[Store]:
    """A store for which two looks suffice, however close."""
    async with open_store(database_url, clock=clock, watch=Watch(timedelta())) as store:
        yield store


async def test_a_registered_process_is_seen_by_all(
    store: Store, another_store: StoreFactory, clock: Clock
) -> None:
    other = await another_store()
    await store.register(process("one", clock.now))
    await other.register(process("two", clock.now))
    for seen_by in (store, other):
        assert sorted(
            (found.id, found.host, found.started_at) for found in await seen_by.processes()
        ) == [
            ("one", "here", clock.now),
            ("two", "here", clock.now),
        ]


async def test_a_beat_says_when_and_why(store: Store, clock: Clock) -> None:
    started_at = clock.now
    await store.register(process("one", started_at))
    clock.tick(minutes=1)
    stored = Process(
        id="one",
        host="here",
        started_at=started_at,
        seen_at=clock.now,
        last_wake_reason="triggered",
        turns=3,
    )
    await store.refresh_process(stored)
    assert await store.processes() == [stored]


async def test_seen_at_moves_with_every_beat_by_the_clock_of_the_database(
    store: Store, clock: Clock
) -> None:
    started = process("one", clock.now)
    await store.register(started)
    for _ in range(3):
        clock.tick(minutes=5)
        await store.refresh_process(started)
        [found] = await store.processes()
        assert (found.started_at, found.seen_at) == (started.started_at, clock.now)


async def test_a_process_that_lives_is_not_reaped(
    hasty: Store, another_store: StoreFactory, clock: Clock
) -> None:
    other = await another_store()
    await other.register(process("two", clock.now))
    await put(hasty)
    turn = await claim_one(other, holder="two")
    for _ in range(3):
        clock.tick(hours=1)
        assert await hasty.reap() == []
    assert await ended(other, turn) == "completed"


async def test_one_look_declares_nobody_dead(
    store: Store, another_store: StoreFactory, clock: Clock
) -> None:
    other = await another_store()
    await other.register(process("two", clock.now))
    await other.close()
    assert await store.reap() == []
    assert await store.reap() == []
    assert [found.id for found in await store.processes()] in ([], ["two"])


async def test_a_process_that_was_killed_is_seen_within_seconds(
    store: Store, database_url: str, clock: Clock
) -> None:
    event_id = await put(store, lane="a")
    with worker_process(database_url, "doomed", clock.now) as doomed:
        assert (await live(store, event_id)).holder == "doomed"
        assert await claim(store) == []
        doomed.kill()
        doomed.wait()
        assert await reap_until_seen(store) == ["doomed"]
    event = await live(store, event_id)
    assert (event.fence, event.holder, event.vt, event.attempts) == (0, None, clock.now, 1)
    assert await claim_ids(store) == [[event_id]]
    assert await store.processes() == []
    life = await read_life(store, event_id)
    assert life is not None
    [attempt] = life.attempts
    assert (attempt.worker, attempt.error) == ("doomed", "process doomed died")


async def test_what_a_dead_process_had_without_attempts_left_is_buried(
    store: Store, database_url: str, clock: Clock
) -> None:
    last = await put(store, lane="a", max_attempts=1)
    follower = await put(store, lane="a")
    free = await put(store)
    with worker_process(database_url, "doomed", clock.now) as doomed:
        doomed.kill()
        doomed.wait()
        await reap_until_seen(store)
    event = await finished(store, last)
    assert (event.outcome, event.last_error) == ("dead", "process doomed died")
    assert sorted(await claim_ids(store)) == [[follower], [free]]


async def test_the_stream_shows_what_died_with_its_process(
    hasty: Store, another_store: StoreFactory, clock: Clock
) -> None:
    await hasty.set_setting("activity", True)
    other = await another_store()
    await other.register(process("two", clock.now))
    dead, back = await put(hasty, max_attempts=1), await put(hasty)
    assert len(await claim(other, holder="two", limit=2)) == 2
    await other.close()
    await reap_until_seen(hasty)
    frames = [frame for row in await hasty.activity(0) for frame in row.frames]
    assert [
        (frame["eventId"], frame["error"], frame["attempts"], frame["dead"])
        for frame in frames
        if frame["type"] == "message_failed"
    ] == [(dead, "process two died", 1, True)]
    assert (await live(hasty, back)).fence == 0


async def test_how_many_attempts_a_dead_process_leaves_is_the_queue_s_policy(
    hasty: Store, another_store: StoreFactory, clock: Clock
) -> None:
    other = await another_store()
    await other.register(process("two", clock.now))
    tried = {queue: await put(hasty, queue=queue) for queue in ("inbox", "outbox")}
    for _ in range(3):
        clock.tick(minutes=11)
        for queue in tried:
            assert len(await claim(other, queue=queue, holder="two", max_attempts=10)) == 1
    await other.close()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not await hasty.reap({"outbox": 10}):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert (await finished(hasty, tried["inbox"])).outcome == "dead"
    assert (await live(hasty, tried["outbox"])).fence == 0


async def test_the_work_of_others_is_left_alone(
    store: Store, database_url: str, clock: Clock
) -> None:
    ours, theirs = [await put(store) for _ in range(2)]
    turn = await claim_one(store, holder="survivor")
    with worker_process(database_url, "doomed", clock.now) as doomed:
        assert (await live(store, theirs)).holder == "doomed"
        doomed.kill()
        doomed.wait()
        await reap_until_seen(store)
    assert await live(store, ours) == turn.primary
    assert await claim_ids(store) == [[theirs]]


async def test_a_dead_process_gives_back_all_of_a_collected_turn(
    hasty: Store, another_store: StoreFactory, clock: Clock
) -> None:
    other = await another_store()
    await other.register(process("two", clock.now))
    ids = await put_lane(hasty, 3)
    assert (await claim_one(other, holder="two", collect_limit=10)).ids == ids
    await other.close()
    await reap_until_seen(hasty)
    events = await count(hasty)
    assert (events.leased, events.ready, events.queued) == (0, 1, 2)


async def test_a_claim_without_holder_belongs_to_no_process(
    hasty: Store, another_store: StoreFactory, clock: Clock
) -> None:
    other = await another_store()
    await other.register(process("two", clock.now))
    event_id = await put(hasty)
    await claim_one(other, holder=None)
    await other.close()
    await reap_until_seen(hasty)
    assert (await live(hasty, event_id)).fence > 0
    assert await claim(hasty) == []
