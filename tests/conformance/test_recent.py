"""Reads without claiming: waiting and recent events, and the ack of a client."""

from __future__ import annotations

from datetime import timedelta

from holdfast.queue.event import INBOX, OUTBOX, NewEvent
from holdfast.queue.outcome import Dead, Done, Outcome
from holdfast.queue.store import Filter, Store

LEASE = timedelta(minutes=10)


async def put(store: Store, count: int, queue: str = OUTBOX) -> list[int]:
    ids = await store.put(
        [NewEvent(event={"n": n}, queue=queue, target="api") for n in range(count)]
    )
    return [id_ for id_ in ids if id_ is not None]


async def test_recent_events_are_live_and_finished_ones_without_those_discarded(
    store: Store,
) -> None:
    done, dead, discarded, live = await put(store, 4)
    turns = await store.claim(OUTBOX, ["api"], limit=3, lease=LEASE)
    ends: dict[int, Outcome] = {done: Done(), dead: Dead("no"), discarded: Dead("no")}
    await store.settle([(turn, ends[turn.primary.id]) for turn in turns])
    await store.discard(Filter(ids=[discarded]))
    await put(store, 1, INBOX)
    assert [event.id for event in await store.recent(OUTBOX)] == [live, dead, done]
    assert [event.id for event in await store.recent(OUTBOX, limit=1)] == [live]
    assert [event.id for event in await store.recent(OUTBOX, before_id=live, since_id=done)] == [
        dead
    ]


async def test_waiting_events_page_by_their_ids(store: Store) -> None:
    first, second, third = await put(store, 3)
    assert [event.id for event in await store.waiting(OUTBOX, "api", since_id=first)] == [
        second,
        third,
    ]
    assert [event.id for event in await store.waiting(OUTBOX, "api", before_id=third, limit=1)] == [
        first
    ]


async def test_an_ack_reaches_no_other_queue(store: Store) -> None:
    [message] = await put(store, 1, INBOX)
    assert await store.ack(message) == "unknown"
    assert await store.live(message) is not None
    assert await store.ack(message, INBOX) == "acked"
    assert await store.ack(message) == "unknown"
