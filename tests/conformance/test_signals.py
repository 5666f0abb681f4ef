"""Signals: kept for an event, taken in order by its steps, and resuming an event that waits."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.errors import LeaseLost
from holdfast.queue.journal import JournalEntry, Step
from holdfast.queue.outcome import Dead, Done, Snooze
from holdfast.queue.store import Store
from holdfast.queue.turn import LeasedTurn
from holdfast.store.payload import parse
from holdfast.testing.clock import Clock
from tests.conformance.steps import claim, claim_one, end, live, put

A_DAY = timedelta(days=1)


def wait(name: str = "paid", key: str | None = None) -> Step:
    return Step(key=key or name, state="started", attempt=1, kind="signal", signal=name)


async def waiting(store: Store, name: str = "paid") -> int:
    """Return the id of an event that waits for a signal."""
    event_id = await put(store, lane="a")
    turn = await claim_one(store)
    await store.record(JournalEntry(turn=turn, steps=[wait(name)]))
    await end(store, turn, Snooze(A_DAY))
    return event_id


async def held(store: Store) -> LeasedTurn:
    await put(store)
    return await claim_one(store)


async def test_a_signal_resumes_the_event_that_waits_for_it(store: Store, clock: Clock) -> None:
    event_id = await waiting(store)
    assert await claim(store) == []
    assert await store.signal(event_id, "paid", {"amount": 3})
    [turn] = await claim(store)
    assert (turn.primary.id, turn.attempt, turn.primary.vt > clock.now) == (event_id, 1, True)
    taken = await store.take_signal(turn, wait())
    assert taken is not None
    assert (taken.state, taken.result) == ("done", '{"amount":3}')
    [step] = (await store.journal(event_id)).steps.values()
    assert (step.state, step.result, step.ended_at) == ("done", '{"amount":3}', clock.now)


async def test_a_signal_of_another_name_resumes_nothing(store: Store, clock: Clock) -> None:
    event_id = await waiting(store)
    assert await store.signal(event_id, "cancelled", None)
    assert (await live(store, event_id)).vt == clock.now + A_DAY
    assert await store.resume_signalled() == 0


async def test_a_signal_to_an_event_that_is_not_live_is_refused(store: Store) -> None:
    assert not await store.signal(404, "paid", None)
    turn = await held(store)
    await end(store, turn)
    assert not await store.signal(turn.primary.id, "paid", None)


async def test_a_signal_does_not_touch_a_lease(store: Store) -> None:
    turn = await held(store)
    await store.record(JournalEntry(turn=turn, steps=[wait()]))
    assert await store.signal(turn.primary.id, "paid", None)
    assert await store.resume_signalled() == 0
    assert await live(store, turn.primary.id) == turn.primary


async def test_signals_of_a_name_are_taken_in_order_each_once(store: Store) -> None:
    turn = await held(store)
    for name, value in (("paid", 1), ("other", 9), ("paid", 2)):
        await store.signal(turn.primary.id, name, value)
    keys = ("paid", "paid#2", "paid#3")
    taken = [await store.take_signal(turn, wait(key=key)) for key in keys]
    assert [step and step.result for step in taken] == ["1", "2", None]
    assert [*(await store.journal(turn.primary.id)).steps] == ["paid", "paid#2"]


async def test_a_lost_turn_takes_no_signal(store: Store, clock: Clock) -> None:
    old = await held(store)
    await store.signal(old.primary.id, "paid", 1)
    clock.tick(minutes=11)
    new = await claim_one(store)
    with pytest.raises(LeaseLost):
        await store.take_signal(old, wait())
    taken = await store.take_signal(new, wait())
    assert taken is not None
    assert taken.result == "1"


@pytest.mark.parametrize("by_id", [True, False])
async def test_a_signal_that_came_while_the_turn_was_about_to_wait_resumes_it(
    store: Store, clock: Clock, by_id: bool
) -> None:
    turn = await held(store)
    await store.record(JournalEntry(turn=turn, steps=[wait()]))
    assert await store.take_signal(turn, wait()) is None
    await store.signal(turn.primary.id, "paid", 1)
    await end(store, turn, Snooze(A_DAY))
    assert await store.resume_signalled(turn.primary.id if by_id else None) == 1
    assert (await live(store, turn.primary.id)).vt == clock.now
    assert await store.resume_signalled() == 0


async def test_resuming_one_event_leaves_the_others(store: Store, clock: Clock) -> None:
    turns = [await held(store) for _ in range(2)]
    for turn in turns:
        await store.record(JournalEntry(turn=turn, steps=[wait()]))
        await store.signal(turn.primary.id, "paid", 1)
        await end(store, turn, Snooze(A_DAY))
    assert await store.resume_signalled(turns[0].primary.id) == 1
    assert (await live(store, turns[1].primary.id)).vt == clock.now + A_DAY


async def test_a_wait_that_is_over_is_not_resumed_again(store: Store, clock: Clock) -> None:
    turn = await held(store)
    await store.signal(turn.primary.id, "paid", 1)
    assert await store.take_signal(turn, wait()) is not None
    await store.signal(turn.primary.id, "paid", 2)
    await end(store, turn, Snooze(A_DAY))
    assert await store.resume_signalled() == 0
    assert (await live(store, turn.primary.id)).vt == clock.now + A_DAY


@pytest.mark.parametrize("outcome", [Done(), Dead("no")], ids=str)
async def test_waits_of_ended_events_are_not_resumed(store: Store, outcome: Done | Dead) -> None:
    turn = await held(store)
    await store.record(JournalEntry(turn=turn, steps=[wait()]))
    await store.signal(turn.primary.id, "paid", 1)
    await end(store, turn, outcome)
    assert await store.resume_signalled() == 0


async def test_a_signal_wakes_the_consumers(store: Store) -> None:
    event_id = await waiting(store)
    wakeups = store.wakeups()
    first = asyncio.ensure_future(anext(wakeups))
    await asyncio.sleep(0)
    await store.signal(event_id, "paid", None)
    assert await asyncio.wait_for(first, 30) in ("", "inbox")


async def test_any_text_can_name_a_signal_and_be_its_value(store: Store) -> None:
    turn = await held(store)
    odd = "a\0b\ud800c👩‍👩‍👧\"'"
    await store.signal(turn.primary.id, odd, {odd: odd})
    taken = await store.take_signal(turn, wait(odd))
    assert taken is not None
    stored = odd.replace("\0", "\ufffd").replace("\ud800", "\ufffd")
    assert parse(taken.result or "") == {stored: stored}
