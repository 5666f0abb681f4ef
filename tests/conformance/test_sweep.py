"""The sweep ends and prunes events, but never a live lease or a dead letter."""

from __future__ import annotations

from datetime import timedelta

from holdfast.queue.outcome import Dead, Done, Retry
from holdfast.queue.store import Filter, Store, SweepPolicy, Swept
from holdfast.store import open_store
from holdfast.testing.clock import Clock
from tests.conformance.by_hand import insert
from tests.conformance.steps import (
    bury,
    claim,
    claim_ids,
    claim_one,
    end,
    ended,
    finished,
    live,
    message,
    put,
    put_lane,
)

HOUR = timedelta(hours=1)
EXPIRE = SweepPolicy(expire_after=HOUR)


async def test_an_event_whose_last_attempt_crashed_is_a_dead_letter(
    store: Store, clock: Clock
) -> None:
    event_id = await put(store, max_attempts=1)
    await claim_one(store)
    clock.tick(minutes=11)
    assert await store.sweep(SweepPolicy()) == Swept(dead=1)
    event = await finished(store, event_id)
    assert (event.outcome, event.last_error, event.finished_at) == (
        "dead",
        "no attempts left",
        clock.now,
    )


async def test_a_swept_event_keeps_its_last_error(store: Store, clock: Clock) -> None:
    event_id = await put(store, max_attempts=2)
    await end(store, await claim_one(store), Retry("boom", error_class="Crash"))
    await claim_one(store)
    clock.tick(minutes=11)
    await store.sweep(SweepPolicy())
    event = await finished(store, event_id)
    assert (event.last_error, event.error_class) == ("boom", "Crash")


async def test_the_policys_attempts_decide_where_the_event_has_none(
    store: Store, clock: Clock
) -> None:
    await put(store)
    await put(store, max_attempts=5)
    await claim(store, limit=2)
    clock.tick(minutes=11)
    assert (await store.sweep(SweepPolicy(max_attempts=2))).dead == 0
    assert (await store.sweep(SweepPolicy(max_attempts=1))).dead == 1


async def test_a_live_lease_is_never_swept(store: Store, clock: Clock) -> None:
    await put(store, max_attempts=1)
    turn = await claim_one(store, lease=timedelta(days=30))
    clock.tick(days=29)
    policy = SweepPolicy(
        max_attempts=1, expire_after=HOUR, discard_unserved=HOUR, keep_history=HOUR
    )
    assert await store.sweep(policy) == Swept()
    assert await ended(store, turn) == "completed"


async def test_what_waited_too_long_expires_as_a_dead_letter(store: Store, clock: Clock) -> None:
    event_id = await put(store)
    clock.tick(hours=1)
    assert await store.sweep(EXPIRE) == Swept()
    clock.tick(microseconds=1)
    assert await store.sweep(EXPIRE) == Swept(expired=1)
    event = await finished(store, event_id)
    assert (event.outcome, event.last_error, event.event) == (
        "expired",
        "expired",
        {"text": "hello"},
    )


async def test_an_expired_event_keeps_its_last_error(store: Store, clock: Clock) -> None:
    event_id = await put(store)
    await end(store, await claim_one(store), Retry("boom"))
    clock.tick(hours=2)
    assert (await store.sweep(EXPIRE)).expired == 1
    assert (await finished(store, event_id)).last_error == "boom"


async def test_without_a_limit_nothing_expires(store: Store, clock: Clock) -> None:
    await put(store)
    clock.tick(days=300)
    assert await store.sweep(SweepPolicy()) == Swept()


async def test_a_delayed_event_does_not_expire_before_it_was_ready(
    store: Store, clock: Clock
) -> None:
    await put(store, vt=clock.now + timedelta(hours=5))
    clock.tick(hours=6)
    assert (await store.sweep(EXPIRE)).expired == 0
    clock.tick(seconds=1)
    assert (await store.sweep(EXPIRE)).expired == 1


async def test_what_waits_behind_another_does_not_expire(store: Store, clock: Clock) -> None:
    first, second = await put_lane(store, 2)
    clock.tick(hours=2)
    assert (await store.sweep(EXPIRE)).expired == 1
    assert (await finished(store, first)).outcome == "expired"
    assert (await live(store, second)).vt == clock.now
    assert (await store.sweep(EXPIRE)).expired == 0
    clock.tick(hours=1, seconds=1)
    assert (await store.sweep(EXPIRE)).expired == 1


async def test_an_event_without_attempts_left_dies_rather_than_expires(
    store: Store, clock: Clock
) -> None:
    await put(store, max_attempts=1)
    await claim_one(store)
    clock.tick(hours=3)
    assert await store.sweep(EXPIRE) == Swept(dead=1)


async def test_what_nobody_serves_is_discarded_in_the_end(store: Store, clock: Clock) -> None:
    event_id = await put(store, "secret", queue="outbox", message_id="m1")
    clock.tick(days=7, seconds=1)
    swept = await store.sweep(SweepPolicy(queue="outbox", discard_unserved=timedelta(days=7)))
    assert (swept.discarded, swept.expired, swept.dead) == (1, 0, 0)
    event = await finished(store, event_id)
    assert (event.outcome, event.event, event.last_error, event.message_id) == (
        "discarded",
        {},
        None,
        "m1",
    )


async def test_what_was_tried_is_not_unserved(store: Store, clock: Clock) -> None:
    await put(store)
    await end(store, await claim_one(store), Retry("no"))
    clock.tick(days=8)
    assert (await store.sweep(SweepPolicy(discard_unserved=timedelta(days=7)))).discarded == 0


async def test_a_sweep_is_of_one_queue(store: Store, clock: Clock) -> None:
    for queue in ("inbox", "outbox"):
        await put(store, queue=queue, max_attempts=1, message_id="m1")
        await claim_one(store, queue=queue)
        await put(store, queue=queue)
    clock.tick(hours=2)
    assert await store.sweep(SweepPolicy(queue="outbox", expire_after=HOUR)) == Swept(
        dead=1, expired=1
    )
    assert await store.outcomes("inbox") == {}


async def test_history_is_pruned_after_its_time(store: Store, clock: Clock) -> None:
    old = await put(store)
    await end(store, await claim_one(store))
    clock.tick(hours=1, seconds=1)
    young = await put(store)
    await end(store, await claim_one(store))
    assert await store.sweep(SweepPolicy(keep_history=HOUR)) == Swept(pruned=1)
    assert [event.id for event in await store.finished(Filter(ids=[old, young]))] == [young]


async def test_more_than_a_batch_of_history_is_pruned_in_one_sweep(
    store: Store, clock: Clock
) -> None:
    await store.put([message() for _ in range(2500)])
    await store.settle([(turn, Done()) for turn in await claim(store, limit=2500)])
    clock.tick(hours=2)
    assert (await store.sweep(SweepPolicy(keep_history=HOUR))).pruned == 2500


async def test_discarded_events_are_pruned(store: Store, clock: Clock) -> None:
    await bury(store, await put(store))
    await store.discard(Filter())
    clock.tick(hours=2)
    assert (await store.sweep(SweepPolicy(keep_history=HOUR))).pruned == 1


async def test_a_dead_letter_is_never_pruned(store: Store, clock: Clock) -> None:
    dead, cancelled, expired = [await put(store), await put(store), await put(store)]
    turns = await claim(store, limit=2)
    await end(store, turns[0], Dead("no"))
    await store.cancel(cancelled, "stop")
    clock.tick(days=3000)
    await store.sweep(EXPIRE)
    clock.tick(days=3000)
    assert (await store.sweep(SweepPolicy(keep_history=HOUR))).pruned == 0
    assert [letter.id for letter in await store.dead(Filter())] == [expired, cancelled, dead]


async def test_a_swept_dead_letter_can_be_retried(store: Store, clock: Clock) -> None:
    event_id = await put(store, lane="a")
    clock.tick(hours=2)
    await store.sweep(EXPIRE)
    assert await store.retry(Filter()) == [event_id]
    assert await claim_ids(store) == [[event_id]]


async def test_keys_are_forgotten_after_the_window_of_the_policy(
    store: Store, clock: Clock
) -> None:
    await put(store, message_id="m1")
    await end(store, await claim_one(store))
    clock.tick(hours=1)
    assert (await store.sweep(SweepPolicy(dedup_window=HOUR))).forgotten == 0
    clock.tick(seconds=1)
    assert (await store.sweep(SweepPolicy(dedup_window=HOUR))).forgotten == 1


async def test_keys_of_another_queue_are_kept(store: Store, clock: Clock) -> None:
    for queue in ("inbox", "outbox"):
        await put(store, queue=queue, message_id="m1")
        await end(store, await claim_one(store, queue=queue))
    clock.tick(hours=2)
    assert (await store.sweep(SweepPolicy(queue="outbox", dedup_window=HOUR))).forgotten == 1
    assert await store.put([message(message_id="m1")]) == [None]


async def test_what_nobody_serves_loses_its_error_too(store: Store, clock: Clock) -> None:
    event_id = await bury(store, await put(store), "secret")
    await store.retry(Filter())
    clock.tick(hours=2)
    assert (await store.sweep(SweepPolicy(discard_unserved=HOUR))).discarded == 1
    assert (await finished(store, event_id)).last_error is None


async def test_a_finished_event_of_the_future_is_pruned_too(store: Store, clock: Clock) -> None:
    await put(store, event_ts=clock.now + timedelta(days=20_000))
    await end(store, await claim_one(store), Done())
    clock.tick(days=2)
    assert (await store.sweep(SweepPolicy(keep_history=timedelta(days=1)))).pruned == 1


async def test_a_vt_that_lies_ahead_is_spared_whoever_wrote_it(database_url: str) -> None:
    ahead = {
        "attempts": "3",
        "vt": "4102444800000000" if database_url.startswith("sqlite") else "'2100-01-01Z'",
    }
    insert(database_url, ahead)
    over = insert(database_url, {"attempts": "3"})
    async with open_store(database_url) as store:
        assert (await store.sweep(SweepPolicy())).dead == 1
        assert [letter.id for letter in await store.dead(Filter())] == [over]
