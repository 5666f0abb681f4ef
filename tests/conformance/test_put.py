"""Puts: duplicates are dropped, missing fields get defaults, and the rest is stored as given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.queue.event import NewEvent
from holdfast.queue.outcome import Dead
from holdfast.queue.store import Filter, Store, SweepPolicy
from holdfast.testing.clock import Clock
from tests.conformance.steps import (
    bury,
    claim,
    claim_ids,
    claim_one,
    count,
    ended,
    finished,
    live,
    message,
    put,
)


async def test_an_event_is_stored_as_it_was_given(store: Store, clock: Clock) -> None:
    sent_at = datetime(2025, 12, 31, 23, 59, 59, 123456, tzinfo=UTC)
    event_id = await put(
        store,
        "hi",
        queue="memory",
        target="coder",
        lane="a",
        message_id="m1",
        event_ts=sent_at,
        max_attempts=7,
    )
    event = await live(store, event_id)
    assert (event.id, event.queue, event.target, event.lane) == (event_id, "memory", "coder", "a")
    assert (event.event, event.message_id, event.event_ts, event.max_attempts) == (
        {"text": "hi"},
        "m1",
        sent_at,
        7,
    )
    assert (event.attempts, event.claimed, event.fence, event.holder) == (0, (), 0, None)
    assert (event.state, event.last_error, event.error_class) == (None, None, None)
    assert (event.vt, event.created_at, event.updated_at) == (clock.now, clock.now, clock.now)


async def test_an_event_of_nobody_is_its_own_root(store: Store) -> None:
    event = await live(store, await put(store))
    assert (event.parent_id, event.root_id, event.hops) == (None, event.id, 0)


@pytest.mark.parametrize("count", [1, 2, 300])
async def test_an_event_may_belong_to_another_message(store: Store, count: int) -> None:
    root = await put(store)
    ids = await store.put([NewEvent(event={}, root_id=root, queue="outbox", target="x")] * count)
    found = await store.waiting("outbox", "x", limit=1000)
    assert [(event.id, event.root_id, event.hops) for event in found] == [
        (id, root, 0) for id in ids
    ]


async def test_what_is_left_out_is_inbox_no_target_no_lane_and_now(
    store: Store, clock: Clock
) -> None:
    event = await live(store, await put(store))
    assert (event.queue, event.target, event.lane, event.message_id) == ("inbox", "", None, None)
    assert (event.event_ts, event.vt, event.max_attempts, event.head) == (
        clock.now,
        clock.now,
        None,
        True,
    )


async def test_a_payload_comes_back_unchanged(store: Store) -> None:
    payload = {
        "text": "naïve ☃ 'quoted' \"twice\"",
        "n": [1, 2.5, None, True],
        "deep": {"a": {"b": []}},
        "": "",
    }
    [event_id] = await store.put([NewEvent(event=payload)])
    assert event_id is not None
    assert (await live(store, event_id)).event == payload
    assert (await claim_one(store)).primary.event == payload


@pytest.mark.parametrize("year", [1, 1969, 2201, 9999])
async def test_an_event_time_out_of_range_is_stored_as_now(
    store: Store, clock: Clock, year: int
) -> None:
    event = await live(store, await put(store, event_ts=datetime(year, 6, 1, tzinfo=UTC)))
    assert event.event_ts == clock.now


@pytest.mark.parametrize(
    "moment", [datetime(1970, 1, 1, tzinfo=UTC), datetime(2199, 12, 31, 23, 59, 59, 999999, UTC)]
)
async def test_an_event_time_at_the_edge_is_kept_and_reaches_history(
    store: Store, moment: datetime
) -> None:
    event_id = await put(store, event_ts=moment)
    assert await ended(store, await claim_one(store)) == "completed"
    assert (await finished(store, event_id)).event_ts == moment


async def test_ids_rise_in_the_order_of_the_list(store: Store) -> None:
    ids = [
        event_id for event_id in await store.put([message(str(n)) for n in range(50)]) if event_id
    ]
    assert len(ids) == 50
    assert ids == sorted(ids)
    assert [(await live(store, event_id)).event["text"] for event_id in ids] == [
        str(n) for n in range(50)
    ]


async def test_a_known_message_id_is_not_stored_again(store: Store) -> None:
    await put(store, message_id="m1")
    assert await store.put([message(message_id="m1")]) == [None]
    assert (await count(store)).ready == 1


async def test_the_first_of_a_repeat_within_one_list_wins(store: Store) -> None:
    first, second, other = await store.put(
        [
            message("one", message_id="m1"),
            message("two", message_id="m1"),
            message("three", message_id="m2"),
        ]
    )
    assert second is None
    assert first is not None
    assert other is not None
    assert (await live(store, first)).event == {"text": "one"}


async def test_a_known_event_in_a_list_does_not_hold_up_the_others(store: Store) -> None:
    await put(store, message_id="m1")
    before, known, after = await store.put([message(), message(message_id="m1"), message()])
    assert (before is None, known is None, after is None) == (False, True, False)


async def test_one_message_id_may_be_in_two_queues(store: Store) -> None:
    await put(store, message_id="m1")
    await put(store, message_id="m1", queue="outbox")


async def test_events_without_message_id_are_never_duplicates(store: Store) -> None:
    assert None not in await store.put([message(), message(), message()])


async def test_a_finished_message_is_known_within_the_window(store: Store, clock: Clock) -> None:
    await put(store, message_id="m1")
    await ended(store, await claim_one(store))
    clock.tick(days=6, hours=23)
    await store.sweep(SweepPolicy())
    assert await store.put([message(message_id="m1")]) == [None]


async def test_a_finished_message_is_known_after_its_history_was_pruned(
    store: Store, clock: Clock
) -> None:
    await put(store, message_id="m1")
    await ended(store, await claim_one(store))
    clock.tick(days=2)
    assert (await store.sweep(SweepPolicy(keep_history=timedelta(days=1)))).pruned == 1
    assert await store.put([message(message_id="m1")]) == [None]


async def test_a_finished_message_is_forgotten_after_the_window(store: Store, clock: Clock) -> None:
    await put(store, message_id="m1")
    await ended(store, await claim_one(store))
    clock.tick(days=7, seconds=1)
    assert (await store.sweep(SweepPolicy())).forgotten == 1
    await put(store, message_id="m1")


async def test_a_live_message_is_never_forgotten(store: Store, clock: Clock) -> None:
    await put(store, message_id="m1")
    clock.tick(days=30)
    assert (await store.sweep(SweepPolicy())).forgotten == 0
    assert await store.put([message(message_id="m1")]) == [None]


async def test_a_discarded_message_is_still_known(store: Store) -> None:
    event_id = await put(store, message_id="m1")
    await bury(store, event_id)
    await store.discard(Filter(ids=[event_id]))
    assert await store.put([message(message_id="m1")]) == [None]


async def test_a_dead_letter_is_not_stored_again(store: Store) -> None:
    await put(store, message_id="m1")
    await ended(store, await claim_one(store), Dead("no"))
    assert await store.put([message(message_id="m1")]) == [None]


async def test_a_delayed_event_waits_for_its_time(store: Store, clock: Clock) -> None:
    await put(store, vt=clock.now + timedelta(minutes=5))
    assert await claim(store) == []
    clock.tick(minutes=5)
    assert len(await claim(store)) == 1


async def test_a_delayed_event_carries_no_lane(store: Store, clock: Clock) -> None:
    delayed = await put(store, lane="a", vt=clock.now + timedelta(hours=1))
    event = await live(store, delayed)
    assert (event.lane, event.head) == (None, True)
    after = await put(store, lane="a")
    assert await claim_ids(store) == [[after]]


async def test_a_delayed_event_among_others_carries_no_lane(store: Store, clock: Clock) -> None:
    later = clock.now + timedelta(hours=1)
    delayed, after = await store.put([message(lane="a", vt=later), message(lane="a")])
    assert delayed is not None
    assert (await live(store, delayed)).lane is None
    assert await claim_ids(store) == [[after]]


async def test_an_event_that_is_visible_now_keeps_its_lane(store: Store, clock: Clock) -> None:
    assert (await live(store, await put(store, lane="a", vt=clock.now))).lane == "a"


async def test_putting_nothing_stores_nothing(store: Store) -> None:
    assert await store.put([]) == []
    assert await store.counts() == []


async def test_putting_ten_thousand_at_once_is_one_call(store: Store) -> None:
    ids = await store.put(
        [message(str(n), lane=str(n % 7), message_id=str(n)) for n in range(10_000)]
    )
    assert len(set(ids) - {None}) == 10_000
    found = await count(store)
    assert (found.ready, found.queued) == (7, 9_993)
