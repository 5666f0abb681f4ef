"""Faults of other queues in order, one test per line of the list."""

from __future__ import annotations

import asyncio

from holdfast.queue.outcome import Done
from holdfast.queue.store import Store, SweepPolicy
from holdfast.queue.turn import LeasedTurn
from holdfast.testing.fixtures import StoreFactory
from tests.conformance.steps import (
    claim,
    claim_ids,
    claim_one,
    drain,
    end,
    ended,
    live,
    message,
    put,
    put_lane,
)

ROUNDS = 30


async def test_prefetching_breaks_order(store: Store) -> None:
    """However much a process fetches at once, it holds one turn of a lane."""
    ids = await put_lane(store, 5)
    turns = await claim(store, limit=10) + await claim(store, limit=10)
    assert [turn.ids for turn in turns] == [ids[:1]]
    await end(store, turns[0])
    assert await drain(store) == ids[1:]


async def test_mailbox_empty_read_then_the_lane_released(
    store: Store, another_store: StoreFactory
) -> None:
    """A message that arrives while the last of its lane ends is ready at once."""
    other = await another_store()
    for _ in range(ROUNDS):
        await put(store, lane="a")
        turn = await claim_one(store)
        _settled, arrived = await asyncio.gather(end(store, turn), put(other, lane="a"))
        assert await drain(store) == [arrived]
    assert (await store.sweep(SweepPolicy())).repaired_lanes == 0


async def test_skip_locked_slides_past_a_locked_head(
    store: Store, another_store: StoreFactory
) -> None:
    """Claims that meet at one lane never give two of its events, nor the second one."""
    stores = [store, await another_store(), await another_store()]
    ids = await put_lane(store, ROUNDS)
    for event_id in ids:
        found = await asyncio.gather(*(claim(s, limit=2) for s in stores for _ in range(2)))
        [turn] = [turn for turns in found for turn in turns]
        assert turn.ids == [event_id]
        await end(store, turn)


async def test_order_by_a_millisecond_clock(store: Store) -> None:
    """A thousand events of one lane at one moment run in the order they were put."""
    ids = await put_lane(store, 1000)
    seen: list[int] = []
    while turns := await claim(store, collect_limit=50):
        seen += turns[0].ids
        assert await ended(store, turns[0]) == "completed"
    assert seen == ids


async def test_choosing_the_head_of_each_lane_by_scanning_events(store: Store) -> None:
    """Readiness is stored with the event, at every step of its lane."""
    first, second, third = await put_lane(store, 3)
    assert [(await live(store, event_id)).head for event_id in (first, second, third)] == [
        True,
        False,
        False,
    ]
    turn = await claim_one(store)
    assert [(await live(store, event_id)).head for event_id in (first, second, third)] == [
        True,
        False,
        False,
    ]
    await end(store, turn)
    assert [(await live(store, event_id)).head for event_id in (second, third)] == [True, False]


async def test_a_shared_limit_counted_and_then_claimed_without_a_lock(
    store: Store, another_store: StoreFactory
) -> None:
    """Stores that claim at once take no more than the limit together, in every round."""
    stores = [store, await another_store(), await another_store(), await another_store()]
    await store.put([message(target="coder") for _ in range(200)])
    await store.limit("inbox", "coder", 3)
    running: list[LeasedTurn] = []
    for _ in range(ROUNDS):
        found = await asyncio.gather(*(claim(s, "coder", limit=2) for s in stores))
        running += [turn for turns in found for turn in turns]
        assert len(running) == 3
        assert len(await store.leased("inbox")) == 3
        await end(store, running.pop(0))
        await end(store, running.pop(0))


async def test_puts_that_meet_in_one_lane_leave_one_head(
    store: Store, another_store: StoreFactory
) -> None:
    """Two first messages of a conversation at once: one is its head, and both are worked."""
    stores = [store, await another_store(), await another_store()]
    for number in range(ROUNDS):
        lane = f"lane {number}"
        ids = await asyncio.gather(*(put(s, lane=lane) for s in stores))
        assert sorted([(await live(store, event_id)).head for event_id in ids]) == [
            False,
            False,
            True,
        ]
        assert sorted(await drain(store)) == sorted(ids)
    assert (await store.sweep(SweepPolicy())).repaired_lanes == 0


async def test_emits_that_meet_in_one_lane_leave_one_head(
    store: Store, another_store: StoreFactory
) -> None:
    """Turns that emit to each other's lanes neither deadlock nor strand a lane."""
    stores = [store, await another_store(), await another_store(), await another_store()]
    lanes = [f"lane {number}" for number in range(8)]
    await store.put([message(lane=lane) for lane in lanes])
    for number in range(ROUNDS // 3):
        turns = await claim(store, limit=8)
        assert len(turns) == 8
        emits = tuple(message(str(number), lane=lane) for lane in lanes)
        ends = [
            (turn, Done(emits if position == number % 8 else ()))
            for position, turn in enumerate(turns)
        ]
        await asyncio.gather(*(s.settle(ends[start::4]) for start, s in enumerate(stores)))
    assert len(await claim_ids(store)) == 8
    assert (await store.sweep(SweepPolicy())).repaired_lanes == 0
