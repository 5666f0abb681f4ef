"""The life of an event: failed attempts with their workers, steps, hand-offs and responses."""

from __future__ import annotations

from datetime import timedelta

from holdfast.queue.event import OUTBOX, NewEvent
from holdfast.queue.outcome import Dead, Done, Retry
from holdfast.queue.store import Filter, Store, SweepPolicy
from holdfast.store.life import read_life
from holdfast.testing.clock import Clock

from .steps import claim_one, end, put


async def test_failed_attempts_are_kept_with_worker_error_and_traceback(
    store: Store, clock: Clock
) -> None:
    event_id = await put(store)
    await end(store, await claim_one(store, holder="one"), Retry("busy", None, "Busy", "trace 1"))
    clock.tick(seconds=5)
    await end(store, await claim_one(store, holder="two"), Dead("broken", "Broken"))

    life = await read_life(store, event_id)

    assert life is not None
    first, second = life.attempts
    assert (first.attempt, first.worker, first.error) == (1, "one", "busy")
    assert (first.error_class, first.traceback) == ("Busy", "trace 1")
    assert (second.attempt, second.worker, second.error) == (2, "two", "broken")
    assert second.at - first.at == timedelta(seconds=5)
    assert life.state == "dead"


async def test_a_retried_letter_keeps_its_attempts(store: Store) -> None:
    event_id = await put(store)
    await end(store, await claim_one(store), Dead("no"))
    await store.retry(Filter(ids=[event_id]))
    await end(store, await claim_one(store), Done())

    life = await read_life(store, event_id)

    assert life is not None
    assert (life.state, [one.error for one in life.attempts]) == ("completed", ["no"])


async def test_discarding_a_letter_erases_its_errors(store: Store) -> None:
    event_id = await put(store)
    await end(store, await claim_one(store), Dead("secret", "Secret", "trace"))
    await store.discard(Filter(ids=[event_id]))

    life = await read_life(store, event_id)

    assert life is not None
    assert life.state == "discarded"
    [attempt] = life.attempts
    assert (attempt.error, attempt.error_class, attempt.traceback) == (None, None, None)


async def test_pruned_history_leaves_no_attempts(store: Store, clock: Clock) -> None:
    event_id = await put(store)
    await end(store, await claim_one(store), Retry("busy"))
    await end(store, await claim_one(store), Done())
    clock.tick(days=2)
    await store.sweep(SweepPolicy(keep_history=timedelta(days=1)))

    assert await read_life(store, event_id) is None
    assert await _attempts(store) == 0


async def _attempts(store: Store) -> int:
    from holdfast.store.scoped import dialect_of

    dialect = dialect_of(store)
    [(count,)] = await dialect.rows(f"select count(*) from {dialect.schema}attempt", {})
    return int(count)


async def test_only_the_first_hundred_attempts_are_kept(store: Store) -> None:
    await put(store, max_attempts=1000)
    for _ in range(105):
        await end(store, await claim_one(store), Retry("busy"))

    assert await _attempts(store) == 100


async def test_hand_offs_and_responses_are_part_of_a_life(store: Store) -> None:
    root = await put(store, target="coder", message_id="m1")
    turn = await claim_one(store, "coder")
    handed = NewEvent(event={"kind": "message", "message": "review"}, target="reviewer")
    answer = NewEvent(
        event={"kind": "response", "channel": "api", "message": "done"}, queue=OUTBOX, target="api"
    )
    await end(store, turn, Done((handed, answer)))
    [child] = [event.id for event in await store.waiting("inbox", "reviewer")]

    for event_id in (root, child):
        life = await read_life(store, event_id)
        assert life is not None
        assert [event.id for event in life.messages] == [root, child]
        assert [event.event["message"] for event in life.responses] == ["done"]


async def test_an_unknown_event_has_no_life(store: Store) -> None:
    assert await read_life(store, 4711) is None
