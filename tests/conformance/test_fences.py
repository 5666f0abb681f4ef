"""Fences: only the current holder of a turn can renew, checkpoint or settle it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.chat import AgentMessage, ChatStore
from holdfast.errors import LeaseLost
from holdfast.queue.outcome import Dead, Done, Lost, Outcome, Retry, Settled, Snooze
from holdfast.queue.store import Filter
from holdfast.queue.turn import LeasedTurn
from holdfast.testing.clock import Clock
from tests.conformance.steps import (
    LEASE,
    claim_ids,
    claim_one,
    end,
    ended,
    finished,
    live,
    message,
    outbox,
    put,
    put_lane,
)

OUTCOMES = [Done(), Retry("no"), Snooze(timedelta()), Dead("no")]


async def lose(store: ChatStore, clock: Clock) -> tuple[LeasedTurn, LeasedTurn]:
    """A turn whose lease ran out, and that of the worker who has it now."""
    await put(store, lane="a", message_id="m1")
    old = await claim_one(store, holder="old")
    clock.tick(minutes=11)
    return old, await claim_one(store, holder="new")


async def test_a_paused_worker_cannot_settle_what_another_finished(
    store: ChatStore, clock: Clock
) -> None:
    old, new = await lose(store, clock)
    assert await end(store, new) == Settled(new)
    assert await end(store, old) == Lost(old)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=str)
async def test_a_lost_turn_ends_in_no_way(store: ChatStore, clock: Clock, outcome: Outcome) -> None:
    old, new = await lose(store, clock)
    assert await end(store, old, outcome) == Lost(old)
    assert await live(store, new.primary.id) == new.primary
    assert await end(store, new) == Settled(new)


async def test_a_lost_turn_emits_and_records_nothing(store: ChatStore, clock: Clock) -> None:
    old, _new = await lose(store, clock)
    line = AgentMessage(
        agent_id="coder", role="user", channel="api", sender="ann", message_id="m1", content="hi"
    )
    assert await end(store, old, Done((message(queue="outbox"),), (line,))) == Lost(old)
    assert await outbox(store) == []
    assert await store.agent_messages("coder") == []


async def test_a_lost_turn_cannot_be_renewed(store: ChatStore, clock: Clock) -> None:
    old, new = await lose(store, clock)
    assert await store.renew([old, new], timedelta(hours=1)) == [old]
    assert (await live(store, new.primary.id)).vt == clock.now + timedelta(hours=1)


async def test_a_lost_turn_cannot_be_checkpointed(store: ChatStore, clock: Clock) -> None:
    old, new = await lose(store, clock)
    with pytest.raises(LeaseLost):
        await store.checkpoint(old, {"part": 1})
    assert (await live(store, new.primary.id)).state is None


async def test_a_lost_turn_cannot_be_released(store: ChatStore, clock: Clock) -> None:
    old, new = await lose(store, clock)
    assert await store.release([old]) == [Lost(old)]
    assert await live(store, new.primary.id) == new.primary


async def test_a_lost_turn_fails_no_other(store: ChatStore, clock: Clock) -> None:
    old, new = await lose(store, clock)
    other_id = await put(store)
    other = await claim_one(store)
    assert await store.settle([(other, Done()), (old, Dead("no")), (new, Done())]) == [
        Settled(other),
        Lost(old),
        Settled(new),
    ]
    assert (await finished(store, other_id)).outcome == "completed"


async def test_the_same_turn_twice_in_one_settle_ends_once(store: ChatStore) -> None:
    await put(store)
    turn = await claim_one(store)
    emits = (message(queue="outbox"),)
    assert await store.settle([(turn, Done(emits)), (turn, Done(emits))]) == [
        Settled(turn),
        Lost(turn),
    ]
    assert len(await outbox(store)) == 1


async def test_a_turn_cannot_be_settled_twice(store: ChatStore) -> None:
    await put(store)
    turn = await claim_one(store)
    assert await end(store, turn, Retry("no")) == Settled(turn)
    assert await end(store, turn) == Lost(turn)


async def test_a_lease_that_ran_out_is_its_holders_until_another_takes_it(
    store: ChatStore, clock: Clock
) -> None:
    event_id = await put(store)
    turn = await claim_one(store)
    clock.tick(minutes=11)
    assert await store.renew([turn], LEASE) == []
    assert (await live(store, event_id)).vt == clock.now + LEASE
    clock.tick(minutes=11)
    assert await ended(store, turn) == "completed"


async def test_every_turn_has_a_fence_of_its_own(store: ChatStore, clock: Clock) -> None:
    fences: list[int] = []
    await put_lane(store, 3)
    await put(store)
    for _ in range(4):
        turn = await claim_one(store)
        fences.append(turn.fence)
        await store.release([turn])
        clock.tick(seconds=1)
    assert len(set(fences)) == 4


async def test_turns_of_one_claim_have_fences_of_their_own(store: ChatStore) -> None:
    await store.put([message() for _ in range(5)])
    turns = await store.claim("inbox", [""], limit=5, lease=LEASE)
    assert len({turn.fence for turn in turns}) == 5


async def test_a_fence_is_not_used_again_after_the_store_was_emptied(store: ChatStore) -> None:
    await put(store)
    first = await claim_one(store)
    await end(store, first)
    await put(store)
    assert (await claim_one(store)).fence != first.fence


@pytest.mark.parametrize("outcome", [Retry("no"), Snooze(timedelta()), Dead("no")], ids=str)
async def test_a_turn_that_ended_has_no_fence(store: ChatStore, outcome: Outcome) -> None:
    event_id = await put(store)
    turn = await claim_one(store)
    await end(store, turn, outcome)
    event = await store.live(event_id) or await finished(store, event_id)
    assert event.fence == 0
    assert await store.renew([turn], LEASE) == [turn]


async def test_a_cancelled_turn_is_lost_to_its_worker(store: ChatStore) -> None:
    event_id = await put(store)
    turn = await claim_one(store)
    assert await store.cancel(event_id, "stop")
    assert await store.renew([turn], LEASE) == [turn]
    assert await end(store, turn) == Lost(turn)
    assert (await finished(store, event_id)).outcome == "cancelled"


async def test_a_dead_letter_retried_by_hand_is_lost_to_its_old_worker(store: ChatStore) -> None:
    event_id = await put(store)
    turn = await claim_one(store)
    await store.cancel(event_id, "stop")
    await store.retry(Filter(ids=[event_id]))
    assert await end(store, turn) == Lost(turn)
    assert await claim_ids(store) == [[event_id]]


async def test_a_made_up_fence_matches_nothing(store: ChatStore) -> None:
    event_id = await put(store)
    event = await live(store, event_id)
    for fence in (0, -1, 12345):
        made_up = LeasedTurn("inbox", fence, (replace(event, fence=fence),))
        assert await end(store, made_up) == Lost(made_up)
        assert await store.renew([made_up], LEASE) == [made_up]
    assert await live(store, event_id) == event


async def test_one_lost_event_loses_the_whole_turn(store: ChatStore) -> None:
    ids = await put_lane(store, 3)
    turn = await claim_one(store, collect_limit=10)
    assert turn.ids == ids
    assert await store.cancel(ids[1], "stop")
    assert await store.renew([turn], LEASE) == [turn]
    assert await end(store, turn) == Lost(turn)
    with pytest.raises(LeaseLost):
        await store.checkpoint(turn, {})


async def test_a_turn_with_an_event_of_another_is_lost(store: ChatStore) -> None:
    await store.put([message(), message()])
    one, two = await store.claim("inbox", [""], limit=2, lease=LEASE)
    mixed = LeasedTurn("inbox", one.fence, (*one.events, *two.events))
    assert await end(store, mixed) == Lost(mixed)
    assert await store.settle([(one, Done()), (two, Done())]) == [Settled(one), Settled(two)]


async def test_an_event_that_waits_is_cancelled_only_if_asked_for(store: ChatStore) -> None:
    first, second = await put_lane(store, 2)
    turn = await claim_one(store)
    await end(store, turn, Snooze(timedelta(days=1)))
    for waiting in (first, second):
        assert not await store.cancel(waiting, "stop")
    assert await store.cancel(first, "stop", leased_only=False)
    assert not await store.cancel(first, "stop", leased_only=False)
    cancelled = await finished(store, first)
    assert (cancelled.outcome, cancelled.last_error) == ("cancelled", "cancelled: stop")
    other = await claim_one(store)
    assert other.ids == [second]
    assert await store.cancel(second, "stop", leased_only=False)
    assert await end(store, other) == Lost(other)


async def test_cancelling_what_is_not_leased_leaves_all_others_alone(store: ChatStore) -> None:
    cancelled, other = await put(store), await put(store)
    before = await live(store, other)
    assert await store.cancel(cancelled, "stop", leased_only=False)
    assert await live(store, other) == before
