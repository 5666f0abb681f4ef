"""Activity is stored with the change it reports, and read in a stable order."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from holdfast.queue.event import OUTBOX, NewEvent
from holdfast.queue.outcome import Dead, Done, Retry, Snooze
from holdfast.queue.record import Activity
from holdfast.queue.store import Filter, Store, SweepPolicy
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory
from tests.conformance.steps import bury, claim_one, end, message, put

HELLO = {"kind": "message", "channel": "api", "sender": "ann", "message": "hello"}
ABOUT = {"messageId": "m1", "agent": "coder", "channel": "api", "sender": "ann"}


@pytest_asyncio.fixture(autouse=True)
async def there_was_an_api(store: Store) -> None:
    """Else nothing is written: nobody could read it."""
    await store.set_setting("activity", True)


async def read_frames(store: Store, position: int = 0) -> list[dict[str, Any]]:
    return [frame for row in await store.activity(position) for frame in row.frames]


async def types(store: Store) -> list[str]:
    return [frame["type"] for frame in await read_frames(store)]


async def test_a_message_is_received_and_routed(store: Store, clock: Clock) -> None:
    await store.put([NewEvent(event=HELLO, target="coder", message_id="m1")])
    at = int(clock.now.timestamp() * 1000)
    assert await read_frames(store) == [
        {"type": "message_received", "timestamp": at, **ABOUT, "message": "hello"},
        {"type": "agent_routed", "timestamp": at, **ABOUT},
    ]


async def test_a_message_for_nobody_is_the_default_agents(store: Store) -> None:
    await store.set_setting("routing", {"default": "coder"})
    event_id = await put(store, "hi")
    received, routed = await read_frames(store)
    assert (received["agent"], received["messageId"], received["channel"]) == (
        "coder",
        str(event_id),
        "slack",
    )
    assert routed["agent"] == "coder"


async def test_a_message_that_is_known_is_not_received_again(store: Store) -> None:
    await put(store, message_id="m1")
    await store.put([message(message_id="m1"), message(message_id="m2")])
    assert [frame["messageId"] for frame in await read_frames(store)] == ["m1", "m1", "m2", "m2"]


async def test_a_response_is_no_message_received(store: Store) -> None:
    await put(store, queue=OUTBOX)
    assert await read_frames(store) == []


async def test_a_put_that_is_rolled_back_tells_nothing(store: Store) -> None:
    async def fail() -> None:
        async with store.transaction() as tx:
            await store.put([message()], records=[Activity(({"type": "note"},))], tx=tx)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await read_frames(store) == []


async def test_frames_may_be_put_alone(store: Store, clock: Clock) -> None:
    await store.put([], records=[Activity(({"type": "one", "timestamp": 5}, {"type": "two"}))])
    at = int(clock.now.timestamp() * 1000)
    assert await read_frames(store) == [
        {"type": "one", "timestamp": 5},
        {"type": "two", "timestamp": at},
    ]


async def test_ends_settled_together_are_told_in_one_row(store: Store) -> None:
    await store.put([message(str(number)) for number in range(3)])
    turns = [await claim_one(store) for _ in range(3)]
    [_, following] = await store.activity_span()
    done = Done(
        records=(Activity(({"type": "chain_step_done", "response": 'a "quoted" \x00 ☃'},)),)
    )
    await store.settle([(turn, done) for turn in turns])
    [row] = await store.activity(following)
    assert [frame["response"] for frame in row.frames] == ['a "quoted" \ufffd ☃'] * 3


async def test_a_lost_turn_tells_nothing(store: Store, clock: Clock) -> None:
    await put(store)
    old = await claim_one(store)
    clock.tick(minutes=11)
    await claim_one(store)
    before = await types(store)
    await end(store, old, Done(records=(Activity(({"type": "chain_step_done"},)),)))
    assert await types(store) == before


async def test_the_end_of_a_turn_comes_before_what_it_emits(store: Store) -> None:
    await put(store)
    done = Done(
        emits=(message(target="mate"),), records=(Activity(({"type": "chain_step_done"},)),)
    )
    await end(store, await claim_one(store), done)
    assert (await types(store))[2:] == ["chain_step_done", "message_received", "agent_routed"]


async def test_a_failed_turn_that_comes_back_is_told(store: Store) -> None:
    event_id = await put(store, target="coder", message_id="m1")
    await end(store, await claim_one(store, "coder"), Retry("no luck", error_class="luck"))
    frame = (await read_frames(store))[-1]
    assert frame["type"] == "message_failed"
    assert (frame["error"], frame["errorClass"], frame["dead"]) == ("no luck", "luck", False)
    assert (frame["eventId"], frame["messageId"], frame["agent"], frame["attempts"]) == (
        event_id,
        "m1",
        "coder",
        1,
    )


async def test_a_turn_that_is_snoozed_or_given_back_has_not_failed(store: Store) -> None:
    await put(store)
    before = await types(store)
    await end(store, await claim_one(store), Snooze(timedelta(0)))
    await store.release([await claim_one(store)])
    assert await types(store) == before


@pytest.mark.parametrize("outcome", [Dead("broken"), Retry("broken")])
async def test_a_dead_letter_is_told(store: Store, outcome: Dead | Retry) -> None:
    event_id = await put(store, max_attempts=1)
    await end(store, await claim_one(store), outcome)
    frame = (await read_frames(store))[-1]
    assert (frame["type"], frame["error"], frame["dead"], frame["eventId"]) == (
        "message_failed",
        "broken",
        True,
        event_id,
    )


async def test_what_the_sweep_buries_is_told(store: Store, clock: Clock) -> None:
    await put(store)
    clock.tick(hours=25)
    await store.sweep(SweepPolicy(expire_after=timedelta(hours=24)))
    frame = (await read_frames(store))[-1]
    assert (frame["type"], frame["error"], frame["dead"]) == ("message_failed", "expired", True)


async def test_what_is_cancelled_is_told(store: Store) -> None:
    event_id = await put(store)
    await claim_one(store)
    await store.cancel(event_id, "by hand")
    frame = (await read_frames(store))[-1]
    assert (frame["type"], frame["error"], frame["dead"]) == (
        "message_failed",
        "cancelled: by hand",
        True,
    )


async def test_a_dead_letter_that_is_live_again_is_received_again(store: Store) -> None:
    event_id = await bury(store, await put(store, message_id="m1"))
    await store.retry(Filter(ids=[event_id]))
    assert (await types(store))[2:] == ["message_failed", "message_received", "agent_routed"]


async def test_positions_follow_each_other_and_stay(
    store: Store, another_store: StoreFactory
) -> None:
    for number in range(5):
        await put(store, str(number))
    first, following = await store.activity_span()
    rows = await store.activity(first)
    assert [row.position for row in rows] == list(range(first, following))
    assert await (await another_store()).activity(first + 2, limit=2) == rows[2:4]
    assert await store.activity(following) == []


async def test_positions_have_no_holes_whoever_writes_and_whatever_is_rolled_back(
    store: Store, another_store: StoreFactory
) -> None:
    """A hole would be told as a gap to whoever resumes before it."""
    other = await another_store()
    for writer in (store, store, store, other, store, other, other, store):
        await put(writer)
        with suppress(ZeroDivisionError):
            async with writer.transaction() as tx:
                await writer.put([message()], tx=tx)
                raise ZeroDivisionError
        async with writer.transaction() as tx:
            await writer.put([message()], tx=tx)
        await writer.activity_span()
        await writer.forget_activity(timedelta(days=1))
    first, following = await other.activity_span()
    assert following - first == 16
    assert [row.position for row in await store.activity(0)] == list(range(first, following))


async def test_what_is_old_is_forgotten_from_the_oldest_on(store: Store, clock: Clock) -> None:
    await put(store)
    clock.tick(hours=2)
    await put(store)
    assert await store.forget_activity(timedelta(hours=1)) == 1
    first, following = await store.activity_span()
    assert following - first == 1
    assert [row.position for row in await store.activity(0)] == [first]
    clock.tick(hours=2)
    assert await store.forget_activity(timedelta(hours=1)) == 1
    assert await store.activity_span() == (following, following)
    await put(store)
    assert [row.position for row in await store.activity(0)] == [following]


async def test_activity_can_be_switched_off(store: Store) -> None:
    await store.set_setting("activity", False)
    await bury(store, await put(store))
    assert await read_frames(store) == []


async def test_without_an_api_nothing_is_written(another_store: StoreFactory) -> None:
    store = await another_store()
    await store.set_setting("activity", None)
    await store.put(
        [NewEvent(event=HELLO, message_id="m1")],
        records=[Activity(({"type": "chain_step_start"},))],
    )
    assert await store.activity(0) == []
