"""A waiting turn of several events comes back whole, also after a signal to one of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.queue.event import NewEvent
from holdfast.queue.journal import JournalEntry, Step
from holdfast.queue.outcome import Dead, Outcome, Retry, Snooze
from holdfast.queue.store import Filter, Store
from holdfast.queue.turn import LeasedTurn
from holdfast.testing.clock import Clock
from tests.conformance.steps import claim, claim_ids, claim_one, end, live, put, put_lane

A_DAY = timedelta(days=1)
WAIT = Step(key="signal paid", state="started", attempt=1, kind="signal", signal="paid", events=2)
DONE = Step(key="fetch", state="done", attempt=1, result="1", events=2)


async def put_back(
    store: Store, clock: Clock, outcome: Outcome, step: Step | None = WAIT
) -> LeasedTurn:
    """Claim two events together, record a step, and give them back. Another one comes later."""
    await put_lane(store, 2)
    turn = await claim_one(store, collect_limit=10)
    if step is not None:
        await store.record(JournalEntry(turn=turn, steps=[step]))
    await end(store, turn, outcome)
    clock.tick(hours=1)
    return turn


async def test_a_turn_that_waits_comes_back_with_its_own_events(store: Store, clock: Clock) -> None:
    waiting = await put_back(store, clock, Snooze(A_DAY))
    later = await put_lane(store, 2)
    assert await claim(store, collect_limit=10) == []
    clock.tick(days=1)
    turn = await claim_one(store, collect_limit=10)
    assert (turn.ids, {event.attempts for event in turn.events}) == (waiting.ids, {1})
    assert {event.claimed for event in turn.events} == {turn.primary.claimed}
    await end(store, turn)
    assert await claim_ids(store, collect_limit=10) == [later]


async def test_it_may_wait_again_and_again(store: Store, clock: Clock) -> None:
    waiting = await put_back(store, clock, Snooze(A_DAY))
    for _ in range(3):
        await put(store, lane="a")
        clock.tick(days=1)
        turn = await claim_one(store, collect_limit=10)
        assert turn.ids == waiting.ids
        await end(store, turn, Snooze(A_DAY))


async def test_one_event_that_waits_is_joined_by_none(store: Store, clock: Clock) -> None:
    first = await put(store, lane="a")
    turn = await claim_one(store, collect_limit=10)
    await store.record(JournalEntry(turn=turn, steps=[WAIT]))
    await end(store, turn, Snooze(A_DAY))
    await put_lane(store, 2)
    clock.tick(days=1)
    assert await claim_ids(store, collect_limit=10) == [[first]]


async def test_a_dead_letter_that_came_back_in_between_is_left_out(
    store: Store, clock: Clock
) -> None:
    first, second, third = await put_lane(store, 3)
    await store.cancel(second, "not now", leased_only=False)
    turn = await claim_one(store, collect_limit=10)
    assert turn.ids == [first, third]
    await store.record(JournalEntry(turn=turn, steps=[WAIT]))
    await end(store, turn, Snooze(A_DAY))
    await store.retry(Filter(ids=[second]))
    clock.tick(days=1)
    turn = await claim_one(store, collect_limit=10)
    assert turn.ids == [first, third]
    await end(store, turn)
    assert await claim_ids(store, collect_limit=10) == [[second]]


async def test_a_released_turn_with_steps_keeps_its_events(store: Store, clock: Clock) -> None:
    waiting = await put_back(store, clock, Snooze(timedelta(0)), DONE)
    await put(store, lane="a")
    assert await claim_ids(store, collect_limit=10) == [waiting.ids]


async def test_a_turn_without_steps_is_collected_anew(store: Store, clock: Clock) -> None:
    waiting = await put_back(store, clock, Snooze(timedelta(0)), None)
    later = await put(store, lane="a")
    assert await claim_ids(store, collect_limit=10) == [[*waiting.ids, later]]


@pytest.mark.parametrize("outcome", [Retry("no", timedelta(0)), Dead("no")], ids=str)
async def test_a_turn_that_failed_is_worked_one_by_one(
    store: Store, clock: Clock, outcome: Outcome
) -> None:
    [first, _] = (await put_back(store, clock, outcome)).ids
    assert await claim_ids(store, collect_limit=10) == [[first]]


@pytest.mark.parametrize("member", [0, 1])
async def test_a_signal_to_any_event_resumes_the_turn(
    store: Store, clock: Clock, member: int
) -> None:
    waiting = await put_back(store, clock, Snooze(A_DAY))
    later = await put(store, lane="a")
    assert await store.signal(later, "paid", "not for this turn")
    assert await claim(store, collect_limit=10) == []
    assert await store.signal(waiting.ids[member], "paid", 7)
    turn = await claim_one(store, collect_limit=10)
    assert turn.ids == waiting.ids
    taken = await store.take_signal(turn, WAIT)
    assert taken is not None
    assert taken.result == "7"
    assert (await store.journal(turn.primary.id)).steps["signal paid"].state == "done"
    assert await store.take_signal(turn, WAIT) is None


async def test_signals_to_the_events_of_a_turn_are_taken_in_order(store: Store) -> None:
    first, second = await put_lane(store, 2)
    for event_id, value in ((second, 1), (first, 2), (second, 3)):
        assert await store.signal(event_id, "paid", value)
    turn = await claim_one(store, collect_limit=10)
    taken = [await store.take_signal(turn, WAIT) for _ in range(4)]
    assert [step and step.result for step in taken] == ["1", "2", "3", None]


async def test_a_signal_to_an_event_of_a_turn_that_is_about_to_wait_is_found(
    store: Store, clock: Clock
) -> None:
    _, second = await put_lane(store, 2)
    turn = await claim_one(store, collect_limit=10)
    await store.record(JournalEntry(turn=turn, steps=[WAIT]))
    assert await store.signal(second, "paid", 1)
    await end(store, turn, Snooze(A_DAY))
    assert await store.resume_signalled(second) == 1
    assert (await live(store, turn.primary.id)).vt == clock.now


async def test_the_sweep_resumes_a_turn_by_a_signal_to_its_second_event(store: Store) -> None:
    _, second = await put_lane(store, 2)
    turn = await claim_one(store, collect_limit=10)
    await store.record(JournalEntry(turn=turn, steps=[WAIT]))
    assert await store.signal(second, "paid", 1)
    await end(store, turn, Snooze(A_DAY))
    assert await store.resume_signalled() == 1
    assert await store.resume_signalled() == 0
    assert await claim_ids(store, collect_limit=10) == [turn.ids]


async def test_gathered_lines_of_a_room_come_back_together(store: Store, clock: Clock) -> None:
    lines = [NewEvent(event={"kind": "room"}, lane="a") for _ in range(2)]
    await store.put(lines)
    turn = await claim_one(store)
    # Gathering is a second look, later than the claim.
    clock.tick(seconds=1)
    assert await store.gather(turn, 100)
    await store.record(JournalEntry(turn=turn, steps=[WAIT]))
    await end(store, turn, Snooze(A_DAY))
    await store.put(lines)
    assert await store.signal(turn.ids[1], "paid", 1)
    again = await claim_one(store)
    assert await store.gather(again, 100)
    assert again.ids == turn.ids


async def test_signals_and_claims_of_one_turn_do_not_wait_for_each_other(
    store: Store, clock: Clock
) -> None:
    waiting = await put_back(store, clock, Snooze(timedelta(0)))

    async def claim_and_wait() -> None:
        for _ in range(10):
            for turn in await claim(store, collect_limit=10):
                assert turn.ids == waiting.ids
                await end(store, turn, Snooze(timedelta(0)))

    async def signal() -> None:
        for number in range(10):
            assert await store.signal(waiting.ids[number % 2], "paid", number)

    await asyncio.gather(claim_and_wait(), signal(), signal())
