"""The consumer fills its slots, settles every turn in order and loses no wake-up."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.agents.turn import Turn
from holdfast.chat import ChatStore
from holdfast.errors import StoreUnavailable
from holdfast.queue.consumer import Handler
from holdfast.queue.event import Event
from holdfast.queue.outcome import Dead, Done, Outcome, Retry, Snooze
from holdfast.queue.policy import Backoff
from holdfast.queue.store import Filter
from holdfast.queue.turn import LeasedTurn
from holdfast.store import open_store
from tests.steps import (
    AT_ONCE,
    NEVER,
    Proxy,
    both_engines,
    consuming,
    event,
    finished,
    policy,
    put,
    until,
)


async def done(turn: LeasedTurn) -> Outcome:
    return Done()


class Gate:
    """A handler that keeps its turns until it is opened."""

    def __init__(self) -> None:
        self.inside: list[LeasedTurn | Turn] = []
        self.most = 0
        self.open = asyncio.Event()

    async def __call__(self, turn: LeasedTurn | Turn) -> Outcome:
        self.inside.append(turn)
        self.most = max(self.most, len(self.inside))
        try:
            await self.open.wait()
        finally:
            self.inside.remove(turn)
        return Done()


@both_engines
async def test_a_consumer_claims_as_many_turns_as_it_has_slots(store: ChatStore) -> None:
    await put(store, 12)
    gate = Gate()
    async with consuming(store, gate, policy(at_once=4)) as consumer:
        await until(lambda: len(gate.inside) == 4)
        assert consumer.running == 4
        assert len(await store.leased("inbox")) == 4
        gate.open.set()
        await finished(store, 12)
    assert gate.most == 4


@both_engines
async def test_many_slots_are_claimed_in_halves_until_all_are_taken(store: ChatStore) -> None:
    await put(store, 150)
    gate = Gate()
    async with consuming(store, gate, policy(at_once=120)):
        await until(lambda: len(gate.inside) == 120)
        assert len({turn.primary.claimed[0] for turn in gate.inside}) == 2
        gate.open.set()
        await finished(store, 150)
    assert gate.most == 120


class Crowd:
    """A handler that counts the turns inside and ends each after one step of the loop."""

    def __init__(self) -> None:
        self.inside = self.most = 0

    async def __call__(self, turn: LeasedTurn) -> Outcome:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0)
        self.inside -= 1
        return Done()


async def test_turns_that_end_at_once_share_claims_beyond_the_slots(proxy: Proxy) -> None:
    await put(proxy, 600)
    crowd = Crowd()
    async with consuming(proxy, crowd, policy(at_once=2)):
        await finished(proxy, 600)
    assert crowd.most == 2
    # Without claiming ahead at least 300.
    assert proxy.calls["claim"] < 150


def stall_after(turns: int, gate: Gate) -> Handler:
    """End the first turns at once, and keep the others."""
    ended = itertools.count()

    async def work(turn: LeasedTurn) -> Outcome:
        return Done() if next(ended) < turns else await gate(turn)

    return work


@both_engines
async def test_a_turn_that_finds_no_slot_in_time_is_given_back_with_its_attempt(
    store: ChatStore,
) -> None:
    await put(store, 300)
    gate = Gate()
    at_once = policy(at_once=2, wait_for_slot=AT_ONCE)
    async with consuming(store, stall_after(200, gate), at_once):
        await until(lambda: len(gate.inside) == 2)
        await until(lambda: holds(store, 2))
        waiting = await unleased(store)
        assert len(waiting) == 98
        assert any(event.claimed for event in waiting)
        assert {event.attempts for event in waiting} == {0}
        gate.open.set()
        await finished(store, 300)
    assert gate.most == 2


async def unleased(store: ChatStore) -> list[Event]:
    return [event for event in await store.waiting("inbox", "", limit=1000) if not event.fence]


async def holds(store: ChatStore, turns: int) -> bool:
    return len(await store.leased("inbox")) == turns


@both_engines
async def test_a_stop_gives_back_what_was_claimed_ahead(store: ChatStore) -> None:
    await put(store, 300)
    gate = Gate()
    async with consuming(store, stall_after(200, gate), policy(at_once=2)) as consumer:
        await until(lambda: consumer.running > 2 and len(gate.inside) == 2)
        consumer.stop()
        await until(lambda: holds(store, 2))
        gate.open.set()
    left = await unleased(store)
    assert len(left) == 98
    assert any(event.claimed for event in left)
    assert {event.attempts for event in left} == {0}


async def test_turns_claimed_ahead_start_once_an_outage_is_over(proxy: Proxy) -> None:
    """They cannot be given back while the database is away."""
    await put(proxy, 300)
    gate = Gate()
    at_once = policy(at_once=2, wait_for_slot=AT_ONCE)
    async with consuming(proxy, stall_after(200, gate), at_once):
        proxy.before["release"] = take_down(proxy)
        await until(lambda: proxy.down)
        gate.open.set()
        proxy.before.clear()
        proxy.down = False
        await finished(proxy, 300)


def take_down(proxy: Proxy) -> Callable[[], Awaitable[None]]:
    async def hook() -> None:
        proxy.down = True
        raise StoreUnavailable("the database cannot be reached: it is down on purpose")

    return hook


async def test_a_full_consumer_claims_nothing(proxy: Proxy) -> None:
    await put(proxy, 2)
    gate = Gate()
    async with consuming(proxy, gate, policy(at_once=1)) as consumer:
        await until(lambda: gate.inside)
        asked = proxy.calls["claim"]
        consumer.wake.set()
        await put(proxy, 3)
        await until(lambda: consumer.last_wake_reason == "triggered")
        assert proxy.calls["claim"] == asked
        gate.open.set()
        await finished(proxy, 5)


@both_engines
async def test_an_exception_is_a_retry_and_at_last_a_dead_letter(store: ChatStore) -> None:
    attempts = []

    async def fail(turn: LeasedTurn) -> Outcome:
        attempts.append(turn.attempt)
        raise ValueError("no such luck")

    [bad] = await put(store)
    async with consuming(store, fail, policy(max_attempts=3)):
        [letter] = await finished(store)
    assert attempts == [1, 2, 3]
    assert (letter.id, letter.outcome, letter.attempts) == (bad, "dead", 3)
    assert letter.last_error == "ValueError: no such luck"
    assert letter.error_class == "ValueError"


async def test_retries_come_back_with_growing_delays() -> None:
    backoff = Backoff(first=timedelta(seconds=2), most=timedelta(minutes=5))
    for attempt, most in ((1, 4), (2, 8), (3, 16), (7, 256), (8, 300), (40, 300)):
        delays = [backoff.delay(attempt).total_seconds() for _ in range(200)]
        assert min(delays) >= 2
        assert max(delays) <= most
        assert max(delays) > 2 + (most - 2) * 0.8


async def test_a_returned_failure_waits_for_its_back_off_and_not_for_its_lease(
    store: ChatStore,
) -> None:
    async def fail(turn: LeasedTurn) -> Outcome:
        raise ValueError

    [bad] = await put(store)
    slow = Backoff(first=timedelta(seconds=100), most=timedelta(seconds=200))
    async with consuming(store, fail, policy(backoff=slow)):
        back = await until(lambda: find_released(store, bad))
    waits = (back.vt - datetime.now(UTC)).total_seconds()
    assert 60 < waits <= 200


async def find_released(store: ChatStore, id: int) -> object:
    found = await store.live(id)
    return found if found and found.fence == 0 and found.attempts else None


@both_engines
async def test_outcomes_are_values(store: ChatStore) -> None:
    ends: dict[str, list[Outcome]] = {
        "retry": [Retry("not yet", timedelta(milliseconds=1), "busy"), Done()],
        "snooze": [Snooze(timedelta(milliseconds=1)), Snooze(timedelta(milliseconds=1)), Done()],
        "dead": [Dead("never", "gone")],
    }

    async def handle(turn: LeasedTurn) -> Outcome:
        return ends[turn.primary.event["how"]].pop(0)

    await store.put([event(event={"how": how}) for how in ends])
    async with consuming(store, handle, policy(max_attempts=2)):
        found = {one.event["how"]: one for one in await finished(store, 3)}
    assert {how: one.outcome for how, one in found.items()} == {
        "retry": "completed",
        "snooze": "completed",
        "dead": "dead",
    }
    assert (found["retry"].attempts, found["retry"].last_error, found["retry"].error_class) == (
        2,
        "not yet",
        "busy",
    )
    assert (found["snooze"].attempts, len(found["snooze"].claimed)) == (1, 3)
    assert (found["dead"].last_error, found["dead"].error_class) == ("never", "gone")


async def test_a_snoozed_turn_is_claimed_when_it_is_due(store: ChatStore) -> None:
    ends: list[Outcome] = [Snooze(timedelta(milliseconds=300)), Done()]
    reasons = []

    async def handle(turn: LeasedTurn) -> Outcome:
        reasons.append(consumer.last_wake_reason)
        return ends.pop(0)

    await put(store)
    async with consuming(store, handle) as consumer:
        await finished(store)
    assert reasons[1] == "due"


async def test_two_events_due_shortly_after_each_other_are_both_claimed(proxy: Proxy) -> None:
    """The second event falls due between the claim and the read of the next due time."""
    gate = Gate()
    second_due = datetime.now(UTC)

    async def let_the_second_fall_due() -> None:
        await until(lambda: datetime.now(UTC) > second_due)

    proxy.before["next_due"] = let_the_second_fall_due
    async with consuming(proxy, gate, policy(at_once=5)):
        second_due = datetime.now(UTC) + timedelta(milliseconds=200)
        await proxy.put([event(), event(vt=second_due)])
        await until(lambda: len(gate.inside) == 2)
        gate.open.set()
        await finished(proxy, 2)


async def test_the_poll_finds_an_event_without_any_signal(
    store: ChatStore, database_url: str
) -> None:
    seen = asyncio.Event()

    async def handle(turn: LeasedTurn) -> Outcome:
        seen.set()
        return Done()

    deaf = Proxy(store)
    deaf.wakeups = silence
    async with consuming(deaf, handle, policy(poll=timedelta(milliseconds=50))) as consumer:
        await until(lambda: consumer.last_wake_reason == "timeout")
        async with open_store(database_url) as other:
            await put(other)
        await asyncio.wait_for(seen.wait(), 10)


async def silence(queue: str | None = None) -> AsyncIterator[str]:
    await asyncio.Event().wait()
    yield ""


@both_engines
async def test_a_put_of_another_process_wakes_a_consumer(
    store: ChatStore, database_url: str
) -> None:
    async with (
        consuming(store, done, policy(poll=NEVER)) as consumer,
        open_store(database_url) as other,
    ):
        await until(lambda: bool(consumer.wake._event._waiters))  # it has looked, and waits
        await put(other)
        await finished(store)
        assert consumer.last_wake_reason == "triggered"


async def test_a_wake_up_during_a_claim_is_not_swallowed(proxy: Proxy) -> None:
    claimed = asyncio.Event()

    async def put_behind_its_back() -> None:
        if not claimed.is_set():
            claimed.set()
            await put(proxy)

    proxy.after["claim"] = put_behind_its_back
    async with consuming(proxy, done):
        await finished(proxy)


@both_engines
async def test_lanes_stay_in_order_across_two_processes(
    store: ChatStore, database_url: str
) -> None:
    lanes = [f"lane {number}" for number in range(5)]
    running: set[str | None] = set()
    order: dict[str | None, list[int]] = {}

    async def handle(turn: LeasedTurn) -> Outcome:
        lane = turn.primary.lane
        assert lane not in running, "two turns of one lane at the same time"
        running.add(lane)
        await asyncio.sleep(0)
        order.setdefault(lane, []).append(turn.primary.id)
        running.discard(lane)
        return (
            Retry("again", timedelta(0))
            if turn.attempt == 1 and turn.primary.id % 7 == 0
            else Done()
        )

    await store.put([event(lane=lanes[number % 5]) for number in range(100)])
    async with (
        open_store(database_url) as other,
        consuming(store, handle, policy(at_once=2), holder="one"),
        consuming(other, handle, policy(at_once=2), holder="two"),
    ):
        ended = await finished(store, 100)
    assert {one.outcome for one in ended} == {"completed"}
    assert all(ids == sorted(ids) for ids in order.values())
    assert {one.holder for one in ended} == {"one", "two"}


@both_engines
async def test_a_collected_turn_is_one_call_and_fails_one_by_one(store: ChatStore) -> None:
    calls: list[int] = []

    async def handle(turn: LeasedTurn) -> Outcome:
        calls.append(len(turn.events))
        if len(turn.events) > 1:
            raise ValueError("too much")
        return Done()

    await put(store, 4, lane="a")
    async with consuming(store, handle, policy(collect_limit=3)):
        await finished(store, 4)
    assert calls == [3, 1, 1, 1, 1]


async def test_a_failing_event_holds_up_its_lane_and_no_other(store: ChatStore) -> None:
    async def handle(turn: LeasedTurn) -> Outcome:
        return Retry("busy", NEVER) if turn.primary.lane == "a" else Done()

    await put(store, 2, lane="a")
    await put(store, 2, lane="b")
    async with consuming(store, handle):
        assert [one.lane for one in await finished(store, 2)] == ["b", "b"]
    assert len(await store.finished(Filter())) == 2


@pytest.mark.parametrize(
    "raised",
    [asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt(), TimeoutError("theirs")],
)
async def test_any_exception_of_a_handler_ends_only_its_own_turn(
    store: ChatStore, raised: BaseException
) -> None:
    async def handle(turn: LeasedTurn) -> Outcome:
        if turn.primary.event["message"] == "bad":
            raise raised
        return Done()

    [bad] = await put(store, event={"kind": "message", "message": "bad"})
    async with consuming(store, handle, policy(at_once=1, max_attempts=1)) as consumer:
        [letter] = await finished(store, ids=[bad])
        await put(store)
        await finished(store, 2)
        await until(lambda: consumer.running == 0)
    assert letter.outcome == "dead"
    assert letter.error_class == type(raised).__name__
    text = f": {raised}" if str(raised) else ""
    assert letter.last_error == f"{letter.error_class}{text}"
