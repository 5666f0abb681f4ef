"""Steps that the conformance tests share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast.queue.event import INBOX, Event, FinishedEvent, NewEvent
from holdfast.queue.outcome import Dead, Done, Lost, Outcome, Settled
from holdfast.queue.store import DEFAULT_MAX_ATTEMPTS, Count, Filter, Store
from holdfast.queue.turn import LeasedTurn

LEASE = timedelta(minutes=10)


def message(text: str = "hello", **fields: Any) -> NewEvent:
    return NewEvent(event={"text": text}, **fields)


async def put(store: Store, text: str = "hello", **fields: Any) -> int:
    """One event that is not there yet; its id."""
    [event_id] = await store.put([message(text, **fields)])
    assert event_id is not None
    return event_id


async def put_lane(store: Store, count: int, lane: str = "a", **fields: Any) -> list[int]:
    """So many events of one lane; their ids, in order."""
    ids = await store.put([message(str(number), lane=lane, **fields) for number in range(count)])
    return [event_id for event_id in ids if event_id is not None]


async def claim(
    store: Store,
    *targets: str,
    queue: str = INBOX,
    limit: int = 1,
    lease: timedelta = LEASE,
    holder: str | None = "worker",
    collect_limit: int = 1,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    at_most: Sequence[int | None] | None = None,
) -> list[LeasedTurn]:
    """Without targets: the events that name none."""
    return await store.claim(
        queue,
        targets or ("",),
        limit=limit,
        lease=lease,
        holder=holder,
        collect_limit=collect_limit,
        max_attempts=max_attempts,
        at_most=at_most,
    )


async def claim_one(store: Store, *targets: str, **options: Any) -> LeasedTurn:
    [turn] = await claim(store, *targets, **options)
    return turn


async def claim_ids(store: Store, *targets: str, **options: Any) -> list[list[int]]:
    """The ids of each turn that a claim of everything gives."""
    return [turn.ids for turn in await claim(store, *targets, **{"limit": 1000, **options})]


async def end(
    store: Store, turn: LeasedTurn, outcome: Outcome | None = None, **options: Any
) -> Settled | Lost:
    [result] = await store.settle([(turn, outcome or Done())], **options)
    return result


async def ended(
    store: Store, turn: LeasedTurn, outcome: Outcome | None = None, **options: Any
) -> str:
    """How a turn that was ours ended."""
    result = await end(store, turn, outcome, **options)
    assert isinstance(result, Settled), f"{result} should have been ours"
    return result.ended


async def live(store: Store, event_id: int) -> Event:
    event = await store.live(event_id)
    assert event is not None, f"event {event_id} is not live"
    return event


async def finished(store: Store, event_id: int) -> FinishedEvent:
    [event] = await store.finished(Filter(ids=[event_id]))
    return event


async def outbox(store: Store, *targets: str, queue: str = "outbox") -> list[Event]:
    """Claim all responses of the outbox."""
    turns = await claim(store, *targets, queue=queue, limit=1000)
    return sorted((event for turn in turns for event in turn.events), key=lambda event: event.id)


async def count(store: Store, queue: str = INBOX, target: str = "") -> Count:
    """The counts of one place; zeros where nothing lives."""
    for found in await store.counts():
        if (found.queue, found.target) == (queue, target):
            return found
    return Count(queue=queue, target=target, ready=0, delayed=0, queued=0, leased=0)


async def bury(
    store: Store, event_id: int, reason: str = "broken", *, target: str = "", queue: str = INBOX
) -> int:
    """Make a waiting event a dead letter."""
    turns = await claim(store, target, queue=queue, limit=1000)
    ends: Sequence[tuple[LeasedTurn, Outcome]] = [
        (turn, Dead(reason)) for turn in turns if turn.ids == [event_id]
    ]
    assert len(ends) == 1, f"event {event_id} was not ready"
    await store.settle(ends)
    await store.release([turn for turn in turns if turn.ids != [event_id]])
    return event_id


async def drain(store: Store, *targets: str, queue: str = INBOX) -> list[int]:
    """Claim and finish turns until nothing is ready. Returns ids in the order they ran."""
    order: list[int] = []
    while turns := await claim(store, *targets, queue=queue):
        order += turns[0].ids
        assert await ended(store, turns[0]) == "completed"
    return order
