"""Numbers of events by time are the same before and after history is added up."""

from __future__ import annotations

import asyncio

from holdfast.queue.event import INBOX, OUTBOX
from holdfast.queue.outcome import Dead, Done
from holdfast.queue.store import Filter, Store
from holdfast.store.statistics import (
    WINDOWS,
    Numbers,
    WindowName,
    add_up,
    open_statistics,
    read_by_target,
    read_series,
    roll_up,
)
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory

from .steps import claim_one, end, put


async def answer(store: Store, clock: Clock, seconds: float, target: str = "") -> None:
    await put(store, target=target)
    turn = await claim_one(store, target)
    clock.tick(seconds=seconds)
    await end(store, turn)


async def fail(store: Store, target: str = "") -> int:
    event_id = await put(store, target=target)
    await end(store, await claim_one(store, target), Dead("no"))
    return event_id


async def total(store: Store, window: WindowName = "hour", **options: list[str]) -> Numbers:
    return add_up((await read_series(store, WINDOWS[window], INBOX, **options)).values())


async def test_a_window_has_all_its_buckets_and_counts_where_events_ended(
    store: Store, clock: Clock
) -> None:
    await answer(store, clock, 2)
    clock.tick(minutes=3)
    await fail(store)
    await put(store)

    series = list((await read_series(store, WINDOWS["hour"], INBOX)).values())

    assert len(series) == 60
    assert (series[-1].received, series[-1].completed, series[-1].failed) == (2, 0, 1)
    assert sum(one.completed for one in series[-5:-1]) == 1
    assert sum(one.received for one in series) == 3


async def test_adding_up_history_changes_no_number(store: Store, clock: Clock) -> None:
    for seconds in (1, 1, 1, 40):
        await answer(store, clock, seconds, "coder")
    await fail(store, "writer")
    clock.tick(minutes=2)
    before = {name: await total(store, name) for name in WINDOWS}

    await roll_up(store)
    after = {name: await total(store, name) for name in WINDOWS}

    assert after == before
    assert (after["week"].received, after["week"].completed, after["week"].failed) == (5, 4, 1)


async def test_added_events_are_not_counted_again(store: Store, clock: Clock) -> None:
    await answer(store, clock, 1)
    clock.tick(minutes=2)
    await roll_up(store)
    await answer(store, clock, 1)
    clock.tick(minutes=2)
    await roll_up(store)
    await roll_up(store)

    assert (await total(store)).completed == 2


async def test_an_empty_history_is_added_up_in_one_step(store: Store) -> None:
    """A new database would otherwise begin with a transaction for each hour of a week."""
    until = await store.now()
    assert await open_statistics(store).roll_up(until) == until


async def test_processes_that_add_up_at_once_count_once(
    store: Store, another_store: StoreFactory, clock: Clock
) -> None:
    stores = [store, *[await another_store() for _ in range(3)]]
    await answer(store, clock, 1)
    clock.tick(minutes=5)
    await roll_up(store)
    await answer(store, clock, 1)
    clock.tick(minutes=5)
    until = await store.now()

    await asyncio.gather(*(open_statistics(one).roll_up(until) for one in stores))

    await roll_up(store)
    assert (await total(store, "day")).completed == 2


async def test_a_chart_reads_sums_and_not_history(store: Store, clock: Clock) -> None:
    event_id = await fail(store)
    clock.tick(minutes=2)
    await roll_up(store)
    await store.retry(Filter(ids=[event_id]))

    numbers = await total(store)

    # It is live again; that it failed stays counted.
    assert numbers.failed == 1


async def test_percentiles_are_accurate_to_a_twentieth(store: Store, clock: Clock) -> None:
    for seconds in (*[2.0] * 18, 30.0, 30.0):
        await answer(store, clock, seconds)
    numbers = await total(store)
    clock.tick(minutes=2)
    await roll_up(store)

    for found in (numbers, await total(store)):
        median, high = found.percentile(0.5), found.percentile(0.95)
        assert median is not None
        assert high is not None
        assert abs(median - 2_000) <= 100
        assert abs(high - 30_000) <= 1_500


async def test_an_empty_window_has_no_percentiles_and_no_success(store: Store) -> None:
    numbers = await total(store)

    assert numbers == Numbers()
    assert numbers.percentile(0.5) is None
    assert numbers.success is None


async def test_targets_and_queues_are_counted_apart(store: Store, clock: Clock) -> None:
    await answer(store, clock, 1, "coder")
    await answer(store, clock, 1, "writer")
    await fail(store, "writer")
    await put(store, queue=OUTBOX, target="slack")
    for _ in range(2):
        by_target = await read_by_target(store, WINDOWS["day"], INBOX)
        one = await total(store, targets=["writer"])

        assert {name: (n.completed, n.failed) for name, n in by_target.items()} == {
            "coder": (1, 0),
            "writer": (1, 1),
        }
        assert (one.completed, one.failed, one.success) == (1, 1, 0.5)
        clock.tick(minutes=2)
        await roll_up(store)


async def test_old_buckets_are_dropped(store: Store, clock: Clock) -> None:
    await answer(store, clock, 1)
    for _ in range(10):
        clock.tick(days=1)
        await roll_up(store)
    clock.tick(days=-9)

    assert (await total(store, "week")).completed == 0


async def test_discarded_events_count_nowhere(store: Store) -> None:
    event_id = await fail(store)
    await store.discard(Filter(ids=[event_id]))

    assert await total(store) == Numbers()


async def test_tokens_and_cost_of_steps_are_added_up(store: Store, clock: Clock) -> None:
    from holdfast.queue.journal import JournalEntry, Step

    await put(store)
    turn = await claim_one(store)
    steps = [
        Step(key=key, state="done", attempt=1, result="1", tokens=100, cost=0.25)
        for key in ("ask", "ask#2")
    ]
    await store.record(JournalEntry(turn=turn, steps=steps))
    await end(store, turn, Done())
    for _ in range(2):
        numbers = await total(store)
        assert (numbers.tokens, numbers.cost) == (200, 0.5)
        clock.tick(minutes=2)
        await roll_up(store)
