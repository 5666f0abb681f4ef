"""Counts: every live event in exactly one of four, every finished one under its outcome."""

from __future__ import annotations

from datetime import timedelta

from holdfast.queue.outcome import Dead, Done, Retry
from holdfast.queue.store import Count, Filter, Store, SweepPolicy
from holdfast.testing.clock import Clock
from tests.conformance.steps import claim, claim_one, count, end, put, put_lane


async def test_an_empty_store_counts_nothing(store: Store) -> None:
    assert await store.counts() == []
    assert await store.outcomes("inbox") == {}
    assert await store.leased("inbox") == []


async def test_every_live_event_is_ready_delayed_queued_or_leased(
    store: Store, clock: Clock
) -> None:
    await put_lane(store, 3, "a")
    await put_lane(store, 2, "b")
    await put(store, vt=clock.now + timedelta(hours=1))
    await claim_one(store, collect_limit=2)
    assert await count(store) == Count(
        queue="inbox", target="", ready=1, delayed=1, queued=2, leased=2
    )


async def test_counts_are_by_queue_and_target(store: Store) -> None:
    for queue, target in (("inbox", "coder"), ("inbox", "writer"), ("outbox", "slack")):
        await put(store, queue=queue, target=target)
    found = sorted(await store.counts(), key=lambda count: (count.queue, count.target))
    assert [(count.queue, count.target, count.ready) for count in found] == [
        ("inbox", "coder", 1),
        ("inbox", "writer", 1),
        ("outbox", "slack", 1),
    ]


async def test_a_lease_that_ran_out_counts_as_ready(store: Store, clock: Clock) -> None:
    await put_lane(store, 2)
    await claim_one(store, collect_limit=2)
    clock.tick(minutes=11)
    found = await count(store)
    assert (found.leased, found.ready, found.queued) == (0, 1, 1)


async def test_a_back_off_counts_as_delayed(store: Store) -> None:
    await put_lane(store, 2)
    await end(store, await claim_one(store), Retry("no", timedelta(minutes=1)))
    found = await count(store)
    assert (found.delayed, found.queued, found.ready) == (1, 1, 0)


async def test_a_place_that_ran_empty_is_not_counted(store: Store) -> None:
    await put(store, target="coder")
    await end(store, await claim_one(store, "coder"))
    assert await store.counts() == []


async def test_outcomes_are_counted_by_queue(store: Store, clock: Clock) -> None:
    ids = [await put(store) for _ in range(5)]
    await put(store, queue="outbox")
    turns = await claim(store, limit=4)
    await store.settle([(turns[0], Done()), (turns[1], Dead("no")), (turns[2], Dead("no"))])
    await store.cancel(ids[3], "stop")
    await store.discard(Filter(ids=[ids[2]]))
    clock.tick(hours=2)
    await store.sweep(SweepPolicy(expire_after=timedelta(hours=1)))
    assert await store.outcomes("inbox") == {
        "completed": 1,
        "dead": 1,
        "discarded": 1,
        "cancelled": 1,
        "expired": 1,
    }
    assert await store.outcomes("outbox") == {}


async def test_what_is_being_worked_is_listed_by_queue(store: Store, clock: Clock) -> None:
    ids = [await put(store) for _ in range(3)]
    await put(store, queue="outbox")
    await claim(store, limit=2, holder="worker-1")
    # Newest first, as every list that has pages.
    assert [(event.id, event.holder) for event in await store.leased("inbox")] == [
        (ids[1], "worker-1"),
        (ids[0], "worker-1"),
    ]
    assert await store.leased("outbox") == []
    clock.tick(minutes=11)
    assert await store.leased("inbox") == []


async def test_an_unknown_event_is_not_live(store: Store) -> None:
    assert await store.live(12345) is None
