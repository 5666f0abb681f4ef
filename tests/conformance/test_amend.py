"""Edits and withdrawals of a message: they count until it is claimed."""

from __future__ import annotations

from holdfast.queue.outcome import Done, Settled
from holdfast.queue.store import Filter, Store
from tests.conformance.steps import LEASE, claim, claim_one, end, message, put, put_lane


async def test_an_edit_counts_until_the_claim(store: Store) -> None:
    event_id = await put(store, "first")
    assert await store.amend(event_id, {"text": "second"}, "routed")
    turn = await claim_one(store)
    assert (turn.primary.event, turn.primary.routed_text) == ({"text": "second"}, "routed")
    assert not await store.amend(event_id, {"text": "third"})
    assert await end(store, turn) == Settled(turn)
    assert not await store.amend(event_id, {"text": "fourth"})
    [ended] = await store.finished(Filter(ids=[event_id]))
    assert ended.event == {"text": "second"}


async def test_an_edit_after_a_claim_that_was_given_back_changes_nothing(store: Store) -> None:
    event_id = await put(store, "first")
    await store.release([await claim_one(store)])
    assert not await store.amend(event_id, {"text": "second"})
    assert (await claim_one(store)).primary.event == {"text": "first"}


async def test_a_withdrawn_message_is_erased_and_the_next_of_its_lane_follows(
    store: Store,
) -> None:
    first, second = await put_lane(store, 2)
    assert await store.amend(first, None)
    assert not await store.amend(first, None)
    turn = await claim_one(store)
    assert turn.ids == [second]
    assert await store.settle([(turn, Done())]) == [Settled(turn)]
    assert await claim(store, lease=LEASE) == []
    [withdrawn] = await store.finished(Filter(ids=[first]))
    assert (withdrawn.outcome, withdrawn.event) == ("discarded", {})


async def test_a_withdrawn_message_that_comes_again_is_known(store: Store) -> None:
    event_id = await put(store, message_id="one")
    assert await store.amend(event_id, None)
    assert await store.put([message(message_id="one")]) == [None]
