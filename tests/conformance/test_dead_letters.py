"""Dead letters: seen, retried, discarded and replayed, one or many."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.queue.outcome import Dead, Done, Retry
from holdfast.queue.store import Filter, Store, SweepPolicy
from holdfast.testing.clock import Clock
from tests.conformance.steps import (
    bury,
    claim,
    claim_ids,
    claim_one,
    count,
    end,
    finished,
    live,
    message,
    put,
)


async def bury_many(store: Store) -> dict[str, int]:
    """Four dead letters of two queues, two targets and two errors."""
    return {
        "coder time": await bury(
            store, await put(store, target="coder"), "Time Out", target="coder"
        ),
        "coder quota": await bury(
            store, await put(store, target="coder"), "quota used up", target="coder"
        ),
        "writer time": await bury(
            store, await put(store, target="writer"), "time out", target="writer"
        ),
        "outbox time": await bury(
            store, await put(store, queue="outbox"), "time out", queue="outbox"
        ),
    }


FILTERS = {
    "all": (Filter(), ["outbox time", "writer time", "coder quota", "coder time"]),
    "queue": (Filter(queue="outbox"), ["outbox time"]),
    "target": (Filter(target="coder"), ["coder quota", "coder time"]),
    "error in any case": (Filter(error="TIME out"), ["outbox time", "writer time", "coder time"]),
    "all at once": (
        Filter(queue="inbox", target="coder", error="time", outcomes=["dead"]),
        ["coder time"],
    ),
    "outcome": (Filter(outcomes=["expired", "cancelled"]), []),
    "no ids": (Filter(ids=[]), []),
    "no outcomes": (Filter(outcomes=[]), []),
    "a percent sign is no wildcard": (Filter(error="time%out"), []),
    "an underscore is no wildcard": (Filter(error="time_out"), []),
}


@pytest.mark.parametrize("name", FILTERS)
async def test_dead_letters_are_listed_by_filter_newest_first(store: Store, name: str) -> None:
    dead_letters = await bury_many(store)
    which, expected = FILTERS[name]
    assert [letter.id for letter in await store.dead(which)] == [
        dead_letters[key] for key in expected
    ]


@pytest.mark.parametrize("name", FILTERS)
async def test_dead_letters_are_retried_by_filter(store: Store, name: str) -> None:
    dead_letters = await bury_many(store)
    which, expected = FILTERS[name]
    assert sorted(await store.retry(which)) == sorted(dead_letters[key] for key in expected)
    for key, event_id in dead_letters.items():
        assert (await store.live(event_id) is not None) == (key in expected)


@pytest.mark.parametrize("name", FILTERS)
async def test_dead_letters_are_discarded_by_filter(store: Store, name: str) -> None:
    dead_letters = await bury_many(store)
    which, expected = FILTERS[name]
    assert sorted(await store.discard(which)) == sorted(dead_letters[key] for key in expected)
    for key, event_id in dead_letters.items():
        assert (await finished(store, event_id)).outcome == (
            "discarded" if key in expected else "dead"
        )


async def test_dead_expired_and_cancelled_are_dead_letters_and_the_rest_is_not(
    store: Store, clock: Clock
) -> None:
    completed, dead, cancelled, discarded, expired = [await put(store) for _ in range(5)]
    turns = {turn.primary.id: turn for turn in await claim(store, limit=4)}
    await store.settle(
        [(turns[completed], Done()), (turns[dead], Dead("no")), (turns[discarded], Dead("no"))]
    )
    await store.cancel(cancelled, "stop")
    await store.discard(Filter(ids=[discarded]))
    clock.tick(hours=2)
    await store.sweep(SweepPolicy(expire_after=timedelta(hours=1)))
    assert [letter.id for letter in await store.dead(Filter())] == [expired, cancelled, dead]
    assert await store.dead(Filter(outcomes=["completed", "discarded"])) == []
    assert len(await store.finished(Filter())) == 5


async def test_a_retried_dead_letter_keeps_its_id_and_has_full_attempts(
    store: Store, clock: Clock
) -> None:
    event_id = await put(store, "hi", lane="a", message_id="m1", max_attempts=1)
    turn = await claim_one(store)
    await store.checkpoint(turn, {"part": 1})
    await end(store, turn, Retry("boom", error_class="Crash"))
    clock.tick(hours=1)
    assert await store.retry(Filter(ids=[event_id])) == [event_id]
    event = await live(store, event_id)
    assert (event.id, event.attempts, event.vt, event.fence, event.holder) == (
        event_id,
        0,
        clock.now,
        0,
        None,
    )
    assert (event.lane, event.head, event.message_id, event.event) == (
        "a",
        True,
        "m1",
        {"text": "hi"},
    )
    assert (event.claimed, event.state, event.last_error) == (
        turn.primary.claimed,
        {"part": 1},
        "boom",
    )
    assert await store.finished(Filter(ids=[event_id])) == []
    assert (await claim_one(store)).primary.attempts == 1


async def test_only_a_dead_letter_can_be_retried(store: Store) -> None:
    completed, waiting = [await put(store), await put(store)]
    await end(store, await claim_one(store))
    assert await store.retry(Filter(ids=[completed, waiting, 10_000])) == []
    assert await store.discard(Filter(ids=[completed, waiting, 10_000])) == []
    assert (await finished(store, completed)).outcome == "completed"


async def test_a_dead_letter_can_be_retried_once(store: Store) -> None:
    event_id = await bury(store, await put(store))
    assert await store.retry(Filter(ids=[event_id])) == [event_id]
    assert await store.retry(Filter(ids=[event_id])) == []
    assert (await count(store)).ready == 1


async def test_a_retried_dead_letter_is_known_again_after_its_key_was_forgotten(
    store: Store, clock: Clock
) -> None:
    event_id = await bury(store, await put(store, message_id="m1"))
    clock.tick(days=8)
    assert (await store.sweep(SweepPolicy())).forgotten == 1
    await store.retry(Filter(ids=[event_id]))
    assert await store.put([message(message_id="m1")]) == [None]


async def test_a_retried_dead_letter_comes_back_beside_its_successor(
    store: Store, clock: Clock
) -> None:
    event_id = await bury(store, await put(store, message_id="m1"))
    clock.tick(days=8)
    await store.sweep(SweepPolicy())
    successor = await put(store, message_id="m1")
    assert await store.retry(Filter(ids=[event_id])) == [event_id]
    assert sorted(await claim_ids(store)) == [[event_id], [successor]]


async def test_a_discarded_dead_letter_keeps_ids_and_times_alone(
    store: Store, clock: Clock
) -> None:
    event_id = await put(store, "secret", message_id="m1", target="coder")
    turn = await claim_one(store, "coder")
    await store.checkpoint(turn, {"part": "secret"})
    await end(store, turn, Dead("secret", "Secret"))
    before = await finished(store, event_id)
    clock.tick(hours=1)
    assert await store.discard(Filter(ids=[event_id])) == [event_id]
    after = await finished(store, event_id)
    assert (after.outcome, after.event, after.state) == ("discarded", {}, None)
    assert (after.last_error, after.error_class) == (None, None)
    assert (after.message_id, after.target) == ("m1", "coder")
    assert (after.created_at, after.event_ts, after.finished_at) == (
        before.created_at,
        before.event_ts,
        before.finished_at,
    )


async def test_a_discarded_event_is_neither_retried_nor_replayed(store: Store) -> None:
    event_id = await bury(store, await put(store))
    await store.discard(Filter())
    assert await store.retry(Filter(ids=[event_id])) == []
    assert await store.replay([event_id]) == []
    assert await store.counts() == []


async def test_a_replay_is_a_new_event(store: Store, clock: Clock) -> None:
    sent_at = datetime(2025, 1, 1, tzinfo=UTC)
    old_id = await put(
        store, "hi", target="coder", lane="a", message_id="m1", event_ts=sent_at, max_attempts=4
    )
    await end(store, await claim_one(store, "coder"))
    clock.tick(days=1)
    [new_id] = await store.replay([old_id])
    event = await live(store, new_id)
    assert new_id > old_id
    assert (event.queue, event.target, event.lane, event.head) == ("inbox", "coder", "a", True)
    assert (event.event, event.event_ts, event.max_attempts) == ({"text": "hi"}, sent_at, 4)
    assert (event.message_id, event.parent_id, event.root_id, event.hops) == (
        f"m1~{new_id}",
        None,
        new_id,
        0,
    )
    assert (event.attempts, event.claimed, event.vt, event.last_error) == (0, (), clock.now, None)
    assert (await finished(store, old_id)).outcome == "completed"


async def test_a_replay_of_an_emit_is_a_root(store: Store) -> None:
    await put(store)
    await end(store, await claim_one(store), Done((message(target="writer"),)))
    turn = await claim_one(store, "writer")
    await end(store, turn)
    [new_id] = await store.replay(turn.ids)
    event = await live(store, new_id)
    assert (event.parent_id, event.root_id, event.hops) == (None, new_id, 0)


async def test_any_finished_event_can_be_replayed_again_and_again(store: Store) -> None:
    dead = await bury(store, await put(store, message_id="m1"))
    new = await store.replay([dead]) + await store.replay([dead])
    assert len(set(new)) == 2
    assert sorted(await claim_ids(store)) == [[event_id] for event_id in new]


async def test_what_is_live_or_unknown_is_not_replayed(store: Store) -> None:
    event_id = await put(store)
    assert await store.replay([event_id, 10_000]) == []
    assert await store.replay([]) == []
    assert (await count(store)).ready == 1


async def test_a_thousand_dead_letters_are_retried_in_one_call(store: Store) -> None:
    await store.put([message(lane=str(n % 10)) for n in range(1000)])
    while turns := await claim(store, limit=1000):
        await store.settle([(turn, Dead("outage")) for turn in turns])
    assert len(await store.retry(Filter(error="outage"))) == 1000
    found = await count(store)
    assert (found.ready, found.queued) == (10, 990)


async def test_dead_letters_are_read_in_the_order_in_which_they_died(
    store: Store, clock: Clock
) -> None:
    later, sooner = await put(store), await put(store)
    began = clock.now
    await bury(store, sooner, "first")
    clock.tick(seconds=1)
    await bury(store, later, "second")
    clock.tick(hours=25)
    expired = [await put(store) for _ in range(3)]
    clock.tick(hours=25)
    await store.sweep(SweepPolicy(queue="inbox", expire_after=timedelta(hours=24)))
    seen: list[int] = []
    after = (began, 0)
    while page := await store.died("inbox", after, limit=2):
        seen += [letter.id for letter in page]
        after = (page[-1].finished_at, page[-1].id)
    # Those of one sweep died at the same moment.
    assert seen == [sooner, later, *expired]
    assert await store.died("outbox", (began, 0), limit=2) == []
