"""Collected turns: the head of a lane with what waits behind it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.queue.event import NewEvent
from holdfast.queue.outcome import Dead, Done, Outcome, Retry, Settled, Snooze
from holdfast.queue.store import Filter, Store, SweepPolicy
from holdfast.testing.clock import Clock
from tests.conformance.steps import (
    LEASE,
    claim,
    claim_ids,
    claim_one,
    count,
    drain,
    end,
    ended,
    finished,
    live,
    message,
    put,
    put_lane,
)

KIB = 1024


async def test_a_turn_collects_what_waits_in_its_lane(store: Store, clock: Clock) -> None:
    ids = await put_lane(store, 4)
    turn = await claim_one(store, collect_limit=100, holder="worker-1")
    assert turn.ids == ids
    for event in turn.events:
        assert (event.attempts, event.vt, event.claimed) == (1, clock.now + LEASE, (clock.now,))
        assert (event.fence, event.holder) == (turn.fence, "worker-1")
    assert [event.head for event in turn.events] == [True, False, False, False]


async def test_a_turn_collects_no_more_than_its_limit(store: Store) -> None:
    ids = await put_lane(store, 5)
    turn = await claim_one(store, collect_limit=3)
    assert turn.ids == ids[:3]
    await end(store, turn)
    assert await claim_ids(store, collect_limit=3) == [ids[3:]]


async def test_without_collecting_a_turn_is_one_event(store: Store) -> None:
    first, *_rest = await put_lane(store, 3)
    assert await claim_ids(store, collect_limit=1) == [[first]]


async def test_an_event_without_lane_is_collected_with_nothing(store: Store) -> None:
    await store.put([message() for _ in range(3)])
    assert [len(ids) for ids in await claim_ids(store, collect_limit=10)] == [1, 1, 1]


async def test_each_lane_is_a_turn_of_its_own(store: Store) -> None:
    lanes = [await put_lane(store, 3, lane) for lane in "abc"]
    assert sorted(await claim_ids(store, collect_limit=10)) == lanes


async def test_a_limit_counts_turns_and_not_events(store: Store) -> None:
    lanes = [await put_lane(store, 3, lane) for lane in "abc"]
    assert await claim_ids(store, limit=2, collect_limit=10) == lanes[:2]


async def test_collecting_stops_before_another_target(store: Store) -> None:
    first, second = await put_lane(store, 2, target="coder")
    await put(store, lane="a", target="writer")
    last = await put(store, lane="a", target="coder")
    turn = await claim_one(store, "coder", "writer", collect_limit=10)
    assert turn.ids == [first, second]
    assert (await live(store, last)).attempts == 0


async def test_collecting_stops_before_an_event_that_was_tried(store: Store) -> None:
    first, second, third = await put_lane(store, 3)
    await end(store, await claim_one(store, collect_limit=2), Retry("no"))
    assert await claim_ids(store, collect_limit=10) == [[first]]
    assert (await live(store, second)).attempts == 1
    assert (await live(store, third)).attempts == 0


async def test_an_event_that_was_tried_is_claimed_alone(store: Store, clock: Clock) -> None:
    first, *_rest = await put_lane(store, 3)
    await claim_one(store)
    clock.tick(minutes=11)
    assert await claim_ids(store, collect_limit=10) == [[first]]


async def test_collecting_takes_what_comes_after_the_head_only(store: Store) -> None:
    first, second, third = await put_lane(store, 3)
    await end(store, await claim_one(store), Dead("no"))
    assert await store.retry(Filter(ids=[first])) == [first]
    turn = await claim_one(store, collect_limit=10)
    assert turn.ids == [second, third]
    await end(store, turn)
    assert await claim_ids(store, collect_limit=10) == [[first]]


async def test_collecting_stops_at_one_mebibyte(store: Store) -> None:
    big = {"text": "x" * (300 * KIB)}
    ids = await store.put([NewEvent(event=big, lane="a") for _ in range(5)])
    assert (await claim_one(store, collect_limit=100)).ids == ids[:3]


async def test_a_head_over_one_mebibyte_is_claimed_alone(store: Store) -> None:
    first, _second = await store.put(
        [NewEvent(event={"text": "x" * (1100 * KIB)}, lane="a"), message(lane="a")]
    )
    assert (await claim_one(store, collect_limit=100)).ids == [first]


async def test_size_is_counted_in_bytes(store: Store) -> None:
    snowmen = {"text": "☃" * (200 * KIB)}
    first, _second = await store.put([NewEvent(event=snowmen, lane="a") for _ in range(2)])
    assert (await claim_one(store, collect_limit=100)).ids == [first]


async def test_done_ends_all(store: Store) -> None:
    ids = await put_lane(store, 3)
    after = (await put_lane(store, 1))[0]
    turn = await claim_one(store, collect_limit=3)
    assert await ended(store, turn) == "completed"
    assert [(await finished(store, event_id)).outcome for event_id in ids] == ["completed"] * 3
    assert await claim_ids(store) == [[after]]


@pytest.mark.parametrize(
    ("outcome", "delay"),
    [
        (Retry("no", None, "Crash"), timedelta()),
        (Retry("no", timedelta(hours=1), "Crash"), timedelta(hours=1)),
        (Dead("no", "Crash"), timedelta()),
    ],
    ids=str,
)
async def test_a_failure_of_several_puts_all_back_one_by_one(
    store: Store, clock: Clock, outcome: Outcome, delay: timedelta
) -> None:
    ids = await put_lane(store, 3)
    assert await ended(store, await claim_one(store, collect_limit=10), outcome) == "back"
    for event in [await live(store, event_id) for event_id in ids]:
        assert (event.attempts, event.vt, event.fence, event.holder) == (
            1,
            clock.now + delay,
            0,
            None,
        )
        assert (event.last_error, event.error_class) == ("no", "Crash")
    clock.tick(seconds=delay.total_seconds())
    for event_id in ids:
        turn = await claim_one(store, collect_limit=10)
        assert turn.ids == [event_id]
        await end(store, turn)


async def test_a_failure_of_several_with_no_attempts_left_still_tries_nothing_twice(
    store: Store,
) -> None:
    ids = await put_lane(store, 2, max_attempts=1)
    assert await ended(store, await claim_one(store, collect_limit=10), Retry("no")) == "back"
    assert await claim(store) == []
    assert (await store.sweep(SweepPolicy())).dead == 2
    assert [(await finished(store, event_id)).last_error for event_id in ids] == ["no", "no"]


async def test_a_snooze_of_several_gives_all_attempts_back(store: Store, clock: Clock) -> None:
    ids = await put_lane(store, 3)
    assert (
        await ended(store, await claim_one(store, collect_limit=10), Snooze(timedelta(minutes=1)))
        == "back"
    )
    for event in [await live(store, event_id) for event_id in ids]:
        assert (event.attempts, event.vt, event.fence) == (0, clock.now + timedelta(minutes=1), 0)
    clock.tick(minutes=1)
    assert await claim_ids(store, collect_limit=10) == [ids]


async def test_a_release_of_several_can_be_collected_again(store: Store) -> None:
    ids = await put_lane(store, 3)
    await store.release([await claim_one(store, collect_limit=10)])
    assert await claim_ids(store, collect_limit=10) == [ids]


async def test_after_a_crash_a_collected_turn_is_retried_one_by_one(
    store: Store, clock: Clock
) -> None:
    ids = await put_lane(store, 3)
    zombie = await claim_one(store, collect_limit=10)
    clock.tick(minutes=11)
    turn = await claim_one(store, collect_limit=10)
    assert turn.ids == ids[:1]
    assert await store.renew([zombie], LEASE) == [zombie]
    assert await ended(store, turn) == "completed"
    assert await drain(store) == ids[1:]


async def test_a_renewal_holds_all_of_a_turn(store: Store, clock: Clock) -> None:
    ids = await put_lane(store, 3)
    turn = await claim_one(store, collect_limit=10)
    clock.tick(minutes=9)
    assert await store.renew([turn], LEASE) == []
    assert {(await live(store, event_id)).vt for event_id in ids} == {clock.now + LEASE}


async def test_cancelling_one_of_a_turn_gives_the_others_back(store: Store, clock: Clock) -> None:
    first, second, third = await put_lane(store, 3)
    await claim_one(store, collect_limit=10)
    assert await store.cancel(first, "stop")
    for event in (await live(store, second), await live(store, third)):
        assert (event.fence, event.holder, event.vt, event.attempts) == (0, None, clock.now, 1)
    assert await drain(store) == [second, third]


async def test_cancelling_a_follower_leaves_the_head_first(store: Store) -> None:
    first, second, third = await put_lane(store, 3)
    await claim_one(store, collect_limit=10)
    assert await store.cancel(second, "stop")
    assert await drain(store) == [first, third]


async def test_what_arrives_while_a_turn_runs_waits_for_the_next(store: Store) -> None:
    await put_lane(store, 2)
    turn = await claim_one(store, collect_limit=10)
    late = await put_lane(store, 2)
    assert await claim(store, collect_limit=10) == []
    await end(store, turn)
    assert await claim_ids(store, collect_limit=10) == [late]


async def test_all_events_of_a_collected_turn_count_as_leased(store: Store) -> None:
    await put_lane(store, 4)
    await claim_one(store, collect_limit=3)
    found = await count(store)
    assert (found.leased, found.queued, found.ready) == (3, 1, 0)


async def test_two_collected_turns_end_in_one_call(store: Store) -> None:
    for lane in "ab":
        await put_lane(store, 3, lane)
    turns = await claim(store, limit=10, collect_limit=10)
    assert await store.settle([(turn, Done()) for turn in turns]) == [
        Settled(turn) for turn in turns
    ]
    assert await store.outcomes("inbox") == {"completed": 6}
