"""Lanes: first in, first out, and one turn at a time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.queue.outcome import Dead, Outcome, Retry, Snooze
from holdfast.queue.store import Filter, Store, SweepPolicy
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory
from tests.conformance.steps import (
    bury,
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


async def test_a_lane_is_worked_in_order(store: Store) -> None:
    ids = await put_lane(store, 5)
    assert await drain(store) == ids


async def test_only_the_first_of_a_lane_is_ready(store: Store) -> None:
    first, *_rest = await put_lane(store, 3)
    assert await claim_ids(store) == [[first]]
    assert await claim_ids(store) == []


async def test_lanes_run_in_parallel(store: Store) -> None:
    heads = [(await put_lane(store, 2, lane))[0] for lane in "abc"]
    assert sorted(await claim_ids(store)) == [[head] for head in heads]


async def test_events_without_lane_run_in_parallel(store: Store) -> None:
    ids = [await put(store) for _ in range(3)]
    assert sorted(await claim_ids(store)) == [[event_id] for event_id in ids]


async def test_an_empty_lane_name_is_a_lane(store: Store) -> None:
    first, _second = await put_lane(store, 2, "")
    assert await claim_ids(store) == [[first]]


async def test_one_lane_name_in_two_queues_is_two_lanes(store: Store) -> None:
    await put_lane(store, 2)
    await claim_one(store)
    [first, _second] = await put_lane(store, 2, queue="outbox")
    assert await claim_ids(store, queue="outbox") == [[first]]


async def test_a_lane_has_exactly_one_head(store: Store) -> None:
    ids = await put_lane(store, 3)
    assert [(await live(store, event_id)).head for event_id in ids] == [True, False, False]


async def test_a_lane_goes_across_targets(store: Store) -> None:
    first = await put(store, lane="a", target="coder")
    second = await put(store, lane="a", target="writer")
    assert await claim_ids(store, "writer") == []
    turn = await claim_one(store, "coder")
    assert turn.ids == [first]
    await end(store, turn)
    assert await claim_ids(store, "writer") == [[second]]


@pytest.mark.parametrize(
    "outcome", [Retry("no", timedelta(minutes=1)), Snooze(timedelta(minutes=1))], ids=str
)
async def test_an_event_that_comes_back_holds_its_lane(
    store: Store, clock: Clock, outcome: Outcome
) -> None:
    first, _second = await put_lane(store, 2)
    assert await ended(store, await claim_one(store), outcome) == "back"
    assert await claim_ids(store) == []
    clock.tick(minutes=1)
    assert await claim_ids(store) == [[first]]


async def test_a_released_event_is_first_of_its_lane_again(store: Store) -> None:
    first, _second = await put_lane(store, 2)
    await store.release([await claim_one(store)])
    assert await claim_ids(store) == [[first]]


async def test_a_dead_letter_lets_its_lane_go_on(store: Store) -> None:
    _first, second = await put_lane(store, 2)
    assert await ended(store, await claim_one(store), Dead("no")) == "dead"
    assert await claim_ids(store) == [[second]]


async def test_a_cancelled_event_lets_its_lane_go_on(store: Store) -> None:
    first, second = await put_lane(store, 2)
    await claim_one(store)
    assert await store.cancel(first, "stop")
    assert await claim_ids(store) == [[second]]


async def test_an_expired_lease_is_worked_again_before_what_follows(
    store: Store, clock: Clock
) -> None:
    first, second = await put_lane(store, 2)
    await claim_one(store)
    clock.tick(minutes=11)
    assert await drain(store) == [first, second]


async def test_a_swept_head_lets_its_lane_go_on(store: Store, clock: Clock) -> None:
    _first, second = await put_lane(store, 2, max_attempts=1)
    await claim_one(store)
    clock.tick(minutes=11)
    assert (await store.sweep(SweepPolicy())).dead == 1
    assert await claim_ids(store) == [[second]]


async def test_waiting_behind_another_does_not_count_as_waiting(store: Store, clock: Clock) -> None:
    _first, second = await put_lane(store, 2)
    turn = await claim_one(store, lease=timedelta(days=2))
    clock.tick(days=1)
    await end(store, turn)
    event = await live(store, second)
    assert (event.head, event.vt) == (True, clock.now)


async def test_a_retried_dead_letter_queues_behind_the_head(store: Store) -> None:
    first, second, third = await put_lane(store, 3)
    await end(store, await claim_one(store), Dead("no"))
    turn = await claim_one(store)
    assert turn.ids == [second]
    assert await store.retry(Filter(ids=[first])) == [first]
    assert [(await live(store, event_id)).head for event_id in (first, second, third)] == [
        False,
        True,
        False,
    ]
    await end(store, turn)
    assert await drain(store) == [first, third]


async def test_a_retried_dead_letter_of_an_empty_lane_is_its_head(store: Store) -> None:
    event_id = await put(store, lane="a")
    await bury(store, event_id)
    await store.retry(Filter())
    after = await put(store, lane="a")
    assert await drain(store) == [event_id, after]


async def test_retried_dead_letters_of_one_lane_run_in_order(store: Store) -> None:
    ids = await put_lane(store, 4)
    for _ in ids:
        await end(store, await claim_one(store), Dead("no"))
    assert sorted(await store.retry(Filter())) == ids
    assert await drain(store) == ids


async def test_a_lane_that_ran_empty_starts_anew(store: Store) -> None:
    first = await put(store, lane="a")
    assert await drain(store) == [first]
    second, third = await put_lane(store, 2)
    assert await drain(store) == [second, third]


async def test_many_lanes_in_one_settle_all_go_on(store: Store) -> None:
    lanes = [await put_lane(store, 2, f"lane {n}") for n in range(20)]
    turns = await claim(store, limit=100)
    assert len(turns) == 20
    await store.settle([(turn, Dead("no")) for turn in reversed(turns)])
    assert sorted(await claim_ids(store)) == [[second] for _first, second in lanes]


async def test_a_lane_is_in_order_over_two_stores(
    store: Store, another_store: StoreFactory
) -> None:
    other = await another_store()
    ids = [await put(s, lane="a") for s in (store, other, store, other)]
    turn = await claim_one(other)
    assert (turn.ids, await claim(store)) == ([ids[0]], [])
    await end(store, turn)
    assert await drain(other) == ids[1:]


async def test_a_sweep_of_a_sound_store_mends_nothing(store: Store, clock: Clock) -> None:
    await store.put([message(lane=str(n % 5)) for n in range(25)])
    for _ in range(3):
        await store.settle([(turn, Dead("no")) for turn in await claim(store, limit=3)])
        clock.tick(minutes=1)
        assert (await store.sweep(SweepPolicy())).repaired_lanes == 0
