"""Limits on the number of running turns of a target, over all processes."""

from __future__ import annotations

import asyncio

from holdfast.queue.outcome import Retry
from holdfast.queue.store import Store
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory
from tests.conformance.steps import claim, claim_ids, claim_one, end, message, put, put_lane


async def fill(store: Store, target: str, count: int = 5) -> None:
    await store.put([message(target=target) for _ in range(count)])


async def test_a_limited_target_runs_no_more_than_its_limit(store: Store) -> None:
    await fill(store, "coder")
    await store.limit("inbox", "coder", 2)
    assert len(await claim(store, "coder", limit=10)) == 2
    assert await claim(store, "coder", limit=10) == []


async def test_a_turn_that_ends_makes_room_for_one(store: Store) -> None:
    await fill(store, "coder")
    await store.limit("inbox", "coder", 2)
    first, _second = await claim(store, "coder", limit=10)
    await end(store, first)
    assert len(await claim(store, "coder", limit=10)) == 1


async def test_a_turn_that_comes_back_makes_room(store: Store) -> None:
    await fill(store, "coder")
    await store.limit("inbox", "coder", 1)
    await end(store, await claim_one(store, "coder"), Retry("no"))
    assert len(await claim(store, "coder", limit=10)) == 1


async def test_a_lease_that_ran_out_makes_room(store: Store, clock: Clock) -> None:
    await fill(store, "coder")
    await store.limit("inbox", "coder", 1)
    await claim_one(store, "coder")
    clock.tick(minutes=11)
    assert len(await claim(store, "coder", limit=10)) == 1


async def test_a_limit_is_of_one_target_and_queue(store: Store) -> None:
    for target in ("coder", "writer"):
        await fill(store, target, 3)
    await store.put([message(queue="outbox", target="coder") for _ in range(3)])
    await store.limit("inbox", "coder", 1)
    assert len(await claim(store, "coder", "writer", limit=10)) == 4
    assert len(await claim(store, "coder", queue="outbox", limit=10)) == 3


async def test_a_limit_of_zero_pauses_a_target(store: Store) -> None:
    await fill(store, "coder")
    await store.limit("inbox", "coder", 0)
    assert await claim(store, "coder", limit=10) == []


async def test_a_limit_can_be_changed_and_lifted(store: Store) -> None:
    await fill(store, "coder", 6)
    await store.limit("inbox", "coder", 1)
    assert len(await claim(store, "coder", limit=10)) == 1
    await store.limit("inbox", "coder", 3)
    assert len(await claim(store, "coder", limit=10)) == 2
    await store.limit("inbox", "coder", None)
    assert len(await claim(store, "coder", limit=10)) == 3


async def test_a_limit_below_what_runs_lets_it_run(store: Store) -> None:
    await fill(store, "coder", 3)
    turns = await claim(store, "coder", limit=2)
    await store.limit("inbox", "coder", 1)
    assert await claim(store, "coder", limit=10) == []
    await end(store, turns[0])
    assert await claim(store, "coder", limit=10) == []
    await end(store, turns[1])
    assert len(await claim(store, "coder", limit=10)) == 1


async def test_a_limit_counts_turns_and_not_events(store: Store) -> None:
    lanes = [await put_lane(store, 3, lane, target="coder") for lane in "abc"]
    await store.limit("inbox", "coder", 2)
    assert await claim_ids(store, "coder", collect_limit=10) == lanes[:2]


async def test_a_limited_target_does_not_take_the_room_of_others(store: Store) -> None:
    await fill(store, "coder", 5)
    await store.limit("inbox", "coder", 1)
    writer = [await put(store, target="writer") for _ in range(3)]
    turns = await claim(store, "coder", "writer", limit=4)
    assert sorted(turn.primary.id for turn in turns if turn.primary.target == "writer") == writer
    assert len(turns) == 4


async def test_a_limit_holds_over_stores_that_claim_at_once(
    store: Store, another_store: StoreFactory
) -> None:
    await fill(store, "coder", 40)
    await store.limit("inbox", "coder", 3)
    stores = [store, await another_store(), await another_store(), await another_store()]
    found = await asyncio.gather(*(claim(s, "coder", limit=2) for s in stores for _ in range(5)))
    assert sum(len(turns) for turns in found) == 3


async def test_messages_that_name_nobody_count_for_the_default_agent(store: Store) -> None:
    await store.set_setting("routing", {"default": "coder"})
    await fill(store, "coder")
    await fill(store, "")
    await store.limit("inbox", "coder", 3)
    assert len(await claim(store, "", limit=2)) == 2
    [one] = await claim(store, "coder", "", limit=10)
    assert await claim(store, "coder", "", limit=10) == []
    await end(store, one)
    assert len(await claim(store, "coder", limit=10)) == 1
    assert await claim(store, "", limit=10) == []


async def test_both_names_of_the_default_agent_in_one_claim_stay_within_its_limit(
    store: Store,
) -> None:
    await store.set_setting("routing", {"default": "coder"})
    for target in ("coder", "", "writer"):
        await fill(store, target)
    await store.limit("inbox", "coder", 3)
    turns = await claim(store, "coder", "", "writer", limit=20)
    assert sorted(turn.primary.target == "writer" for turn in turns) == [False] * 3 + [True] * 5


async def test_the_limit_of_an_agent_that_is_not_the_default_is_its_own(store: Store) -> None:
    await store.set_setting("routing", {"default": "coder"})
    for target in ("coder", "", "writer"):
        await fill(store, target, 3)
    await store.limit("inbox", "writer", 1)
    assert len(await claim(store, "coder", "", "writer", limit=20)) == 7
    assert len(await claim(store, "writer", limit=20)) == 0


async def test_other_queues_have_no_default_agent(store: Store) -> None:
    await store.set_setting("routing", {"default": "coder"})
    await store.put(
        [message(queue="outbox", target=target) for target in ("", "coder") for _ in range(3)]
    )
    await store.limit("outbox", "coder", 1)
    assert len(await claim(store, "coder", "", queue="outbox", limit=20)) == 4


async def test_a_claim_takes_at_most_so_many_of_each_target_in_the_order_given(
    store: Store,
) -> None:
    for target in ("coder", "writer", "tester"):
        await fill(store, target)
    turns = await claim(store, "writer", "coder", "tester", limit=6, at_most=[3, 2, 5])
    assert [turn.primary.target for turn in turns] == ["writer"] * 3 + ["coder"] * 2 + ["tester"]


async def test_targets_of_one_agent_share_what_it_may_take(store: Store) -> None:
    for target in ("coder", "", "writer"):
        await fill(store, target)
    turns = await claim(store, "coder", "", "writer", limit=100, at_most=[7, None, 1])
    assert [turn.primary.target for turn in turns] == ["coder"] * 5 + [""] * 2 + ["writer"]


async def test_what_a_claim_may_take_of_each_counts_turns_that_collect_as_one(store: Store) -> None:
    for lane in ("a", "b", "c"):
        await put_lane(store, 3, lane, target="coder")
    await fill(store, "writer")
    turns = await claim(store, "coder", "writer", limit=100, collect_limit=10, at_most=[2, 1])
    assert [len(turn.events) for turn in turns] == [3, 3, 1]


async def test_the_limit_of_a_target_and_that_of_a_claim_both_hold(store: Store) -> None:
    for target in ("coder", "writer"):
        await fill(store, target)
    await store.limit("inbox", "coder", 2)
    turns = await claim(store, "coder", "writer", limit=100, at_most=[4, 1])
    assert [turn.primary.target for turn in turns] == ["coder"] * 2 + ["writer"]
