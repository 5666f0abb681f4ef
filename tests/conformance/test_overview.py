"""The reads of the overview, on every store alike."""

from __future__ import annotations

from datetime import timedelta

from holdfast.queue.event import OUTBOX
from holdfast.queue.journal import EFFECT_UNKNOWN, JournalEntry, Step
from holdfast.queue.outcome import Dead, Retry, Snooze
from holdfast.queue.store import Filter, Store
from holdfast.store.overview import OverviewReads
from holdfast.testing.clock import Clock

from .steps import claim_one, end, put


async def test_running_turns_are_listed_with_their_worker_longest_running_first(
    store: Store, clock: Clock
) -> None:
    first = await put(store, target="coder", lane="coder/a", message_id="m1")
    turn = await claim_one(store, "coder", holder="one")
    await store.record(JournalEntry(turn=turn, progress="reading the log"))
    begun_at = clock.now
    clock.tick(seconds=5)
    second = await put(store, queue=OUTBOX, target="slack")
    await claim_one(store, "slack", queue=OUTBOX, holder="two")
    await put(store)

    running = await OverviewReads(store).running()

    assert [one.event_id for one in running] == [first, second]
    assert running[0].since == begun_at
    assert (running[0].holder, running[0].progress) == ("one", "reading the log")
    assert (running[0].lane, running[0].message_id) == ("coder/a", "m1")
    assert (running[1].queue, running[1].target, running[1].progress) == (OUTBOX, "slack", None)


async def test_a_turn_whose_lease_ran_out_is_not_running(store: Store, clock: Clock) -> None:
    await put(store)
    await claim_one(store)
    clock.tick(minutes=11)

    assert await OverviewReads(store).running() == []


async def test_turns_that_wait_for_a_signal_are_approvals_until_they_go_on(
    store: Store, clock: Clock
) -> None:
    event_id = await put(store, target="coder", message_id="m1")
    turn = await claim_one(store, "coder")
    wait = Step(key="approve", state="started", attempt=1, kind="signal", signal="approve")
    await store.record(JournalEntry(turn=turn, steps=[wait]))
    await end(store, turn, Snooze(timedelta(days=1)))

    [approval] = await OverviewReads(store).approvals()

    assert (approval.event_id, approval.signal, approval.target) == (event_id, "approve", "coder")
    assert approval.since == clock.now
    await store.signal(event_id, "approve", True)
    await claim_one(store, "coder")
    assert await OverviewReads(store).approvals() == []


async def test_dead_letters_are_counted_by_queue_and_unknown_effects_apart(
    store: Store, clock: Clock
) -> None:
    begun_at = clock.now
    for error_class in ("Boom", EFFECT_UNKNOWN, None):
        await put(store)
        await end(store, await claim_one(store), Dead("no", error_class))
        clock.tick(seconds=1)
    discarded = await put(store)
    await end(store, await claim_one(store), Dead("no"))
    await store.discard(Filter(ids=[discarded]))

    plain, unknown = await OverviewReads(store).dead()

    assert (plain.count, plain.is_effect_unknown, unknown.count) == (2, False, 1)
    assert (plain.oldest_at, plain.newest_at) == (begun_at, begun_at + timedelta(seconds=2))


async def test_failed_calls_of_models_are_found_live_and_finished(
    store: Store, clock: Clock
) -> None:
    since = clock.now
    await put(store, target="coder")
    await end(store, await claim_one(store, "coder"), Retry("503", None, "ModelHTTPError"))
    await put(store, target="writer")
    await end(store, await claim_one(store, "writer"), Dead("quota", "ModelQuotaExceededError"))
    await put(store, target="writer")
    await end(store, await claim_one(store, "writer"), Dead("no", "ValueError"))

    found = await OverviewReads(store).model_failures(since)

    assert {(one.target, one.error) for one in found} == {("coder", "503"), ("writer", "quota")}
    assert await OverviewReads(store).model_failures(since + timedelta(seconds=1)) == []


async def test_the_database_says_what_it_is(store: Store, engine: str) -> None:
    state = await OverviewReads(store).database()

    assert state.engine.startswith("SQLite 3." if engine == "sqlite" else "PostgreSQL 1")
    assert (state.timescale is not None) == (engine == "timescale")
    assert timedelta(0) < state.latency < timedelta(minutes=1)
