"""Claims: ready events of the named targets, with their attempts counted at once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.queue.outcome import Done, Retry
from holdfast.queue.store import Store
from holdfast.testing.clock import Clock
from tests.conformance.steps import (
    LEASE,
    claim,
    claim_ids,
    claim_one,
    end,
    ended,
    live,
    message,
    put,
)


async def test_a_claim_counts_the_attempt_and_sets_the_lease(store: Store, clock: Clock) -> None:
    event_id = await put(store)
    clock.tick(seconds=5)
    turn = await claim_one(store, holder="worker-1")
    event = turn.primary
    assert (event.id, event.attempts, event.vt, event.claimed) == (
        event_id,
        1,
        clock.now + LEASE,
        (clock.now,),
    )
    assert (event.fence, event.holder, event.updated_at) == (turn.fence, "worker-1", clock.now)
    assert await live(store, event_id) == event


async def test_every_claim_adds_its_time(store: Store, clock: Clock) -> None:
    await put(store)
    first = clock.now
    await claim_one(store)
    second = clock.tick(minutes=11)
    assert (await claim_one(store)).primary.claimed == (first, second)


async def test_an_empty_queue_gives_no_turn(store: Store) -> None:
    assert await claim(store, "", "coder", limit=10) == []


async def test_a_limit_of_zero_gives_no_turn(store: Store) -> None:
    await put(store)
    assert await claim(store, limit=0) == []


async def test_no_targets_give_no_turn(store: Store) -> None:
    await put(store)
    assert await store.claim("inbox", [], limit=10, lease=LEASE) == []


async def test_no_more_turns_than_the_limit(store: Store) -> None:
    await store.put([message() for _ in range(10)])
    assert len(await claim(store, limit=3)) == 3
    assert len(await claim(store, limit=100)) == 7


async def test_only_the_named_targets_are_claimed(store: Store) -> None:
    await put(store, target="writer")
    coder = await put(store, target="coder")
    assert await claim_ids(store, "coder", "reader") == [[coder]]


async def test_no_target_is_a_target_like_any_other(store: Store) -> None:
    nobody = await put(store)
    await put(store, target="coder")
    assert await claim_ids(store, "") == [[nobody]]


async def test_a_target_named_twice_is_claimed_once(store: Store) -> None:
    event_id = await put(store, target="coder")
    assert await claim_ids(store, "coder", "coder") == [[event_id]]


async def test_only_the_named_queue_is_claimed(store: Store) -> None:
    await put(store)
    other = await put(store, queue="outbox")
    assert await claim_ids(store, queue="outbox") == [[other]]


async def test_a_lease_that_ran_out_waits_since_it_did(store: Store, clock: Clock) -> None:
    tried = await put(store, "tried", message_id="m")
    await claim_one(store, holder="crashed")
    before = await put(store)
    ran_out_at = clock.tick(minutes=10)
    after = await put(store, vt=clock.tick(seconds=1))
    clock.tick(minutes=1)
    turns = await claim(store, limit=9)
    assert [turn.ids for turn in turns] == [[before], [tried], [after]]
    again = turns[1].primary
    assert (again.attempts, again.claimed, again.holder) == (
        2,
        (ran_out_at - LEASE, clock.now),
        "worker",
    )
    assert await live(store, tried) == again


async def test_a_target_is_claimed_in_the_order_of_visibility_then_id(
    store: Store, clock: Clock
) -> None:
    late = await put(store, vt=clock.now + timedelta(seconds=20))
    early = await put(store, vt=clock.now + timedelta(seconds=10))
    first, second = [await put(store), await put(store)]
    clock.tick(minutes=1)
    assert [(await claim_one(store)).ids for _ in range(4)] == [[first], [second], [early], [late]]


async def test_many_targets_share_one_claim(store: Store) -> None:
    ids = {target: await put(store, target=target) for target in "abcde"}
    assert sorted(await claim_ids(store, *"abcde")) == sorted(
        [event_id] for event_id in ids.values()
    )


async def test_a_busy_target_does_not_hold_up_another(store: Store) -> None:
    await store.put([message(target="a", lane="one") for _ in range(5)])
    await claim_one(store, "a")
    event_id = await put(store, target="b")
    assert await claim_ids(store, "a", "b") == [[event_id]]


async def test_a_leased_event_is_not_claimed_before_its_lease_ends(
    store: Store, clock: Clock
) -> None:
    await put(store)
    await claim_one(store, lease=timedelta(minutes=1))
    clock.tick(seconds=59)
    assert await claim(store) == []
    clock.tick(seconds=1)
    assert len(await claim(store)) == 1


async def test_an_event_without_attempts_left_is_not_claimed(store: Store, clock: Clock) -> None:
    await put(store)
    for _ in range(3):
        await claim_one(store)
        clock.tick(minutes=11)
    assert await claim(store) == []


async def test_the_attempts_of_the_claim_decide_where_the_event_has_none(
    store: Store, clock: Clock
) -> None:
    await put(store)
    await claim_one(store, max_attempts=1)
    clock.tick(minutes=11)
    assert await claim(store, max_attempts=1) == []
    assert len(await claim(store, max_attempts=2)) == 1


async def test_the_events_own_attempts_win(store: Store, clock: Clock) -> None:
    await put(store, max_attempts=2)
    for _ in range(2):
        await claim_one(store, max_attempts=1)
        clock.tick(minutes=11)
    assert await claim(store, max_attempts=10) == []


@pytest.mark.parametrize("holder", [None, "worker-1"])
async def test_a_holder_is_optional(store: Store, holder: str | None) -> None:
    await put(store)
    assert (await claim_one(store, holder=holder)).primary.holder == holder


async def test_a_turn_knows_its_queue_and_events(store: Store) -> None:
    event_id = await put(store, queue="memory")
    turn = await claim_one(store, queue="memory")
    assert (turn.queue, turn.ids, turn.primary.id, turn.fence > 0) == (
        "memory",
        [event_id],
        event_id,
        True,
    )


async def test_nothing_waits_nothing_is_due(store: Store) -> None:
    assert await store.next_due("inbox", [""]) is None


async def test_the_next_due_is_the_earliest_of_the_named_targets(
    store: Store, clock: Clock
) -> None:
    await put(store, target="a", vt=clock.now + timedelta(minutes=5))
    await put(store, target="a", vt=clock.now + timedelta(minutes=3))
    await put(store, target="b", vt=clock.now + timedelta(minutes=1))
    assert await store.next_due("inbox", ["a"]) == clock.now + timedelta(minutes=3)
    assert await store.next_due("inbox", ["a", "b"]) == clock.now + timedelta(minutes=1)
    assert await store.next_due("inbox", []) is None
    assert await store.next_due("outbox", ["a", "b"]) is None


async def test_the_end_of_a_lease_is_due(store: Store, clock: Clock) -> None:
    await put(store, lane="a")
    await put(store, lane="a")
    await claim_one(store)
    assert await store.next_due("inbox", [""]) == clock.now + LEASE


async def test_a_back_off_is_due(store: Store, clock: Clock) -> None:
    await put(store)
    await end(store, await claim_one(store), Retry("no", timedelta(seconds=30)))
    assert await store.next_due("inbox", [""]) == clock.now + timedelta(seconds=30)


async def test_what_is_finished_is_not_due(store: Store) -> None:
    await put(store)
    assert await ended(store, await claim_one(store), Done()) == "completed"
    assert await store.next_due("inbox", [""]) is None


async def test_now_is_what_the_clock_says(store: Store, clock: Clock) -> None:
    assert await store.now() == clock.now
    clock.tick(days=3, microseconds=1)
    assert await store.now() == clock.now
