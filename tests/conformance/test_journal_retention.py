"""The journal goes with its event: pruned, forgotten or discarded. Waits survive sweeps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.queue.audit import AuditFilter
from holdfast.queue.event import NewEvent
from holdfast.queue.journal import EFFECT_UNKNOWN, Assume, Journal, JournalEntry, Step, Write
from holdfast.queue.outcome import Dead, Done, Outcome, Retry, Settled, Snooze
from holdfast.queue.store import Filter, Store, SweepPolicy
from holdfast.queue.turn import LeasedTurn
from holdfast.store.memory import open_observations
from holdfast.testing.clock import Clock
from tests.conformance.steps import claim_ids, claim_one, end, finished, live, put, put_lane
from tests.memory.steps import tables_that_hold

STEP = Step(key="charge", state="done", attempt=1, arguments="[3]", digest="abc", result="7")
KEEP = SweepPolicy(keep_history=timedelta(days=1))
SECRET = "zyzzyva"


async def record_all(store: Store, turn: LeasedTurn) -> None:
    """Write to every table of the journal."""
    failed = Step(key="fetch", state="failed", attempt=1, error=SECRET)
    write, preview = Write(1, 0, SECRET), {"ts": SECRET}
    entry = JournalEntry(
        turn=turn, steps=[STEP, failed], write=write, progress=SECRET, preview=preview
    )
    await store.record(entry)
    assert await store.signal(turn.primary.id, "paid", SECRET)


async def journalled(store: Store, outcome: Outcome, **fields: Any) -> int:
    """Put, work and end an event with a journal. Returns its id."""
    await put(store, **fields)
    turn = await claim_one(store)
    await record_all(store, turn)
    await end(store, turn, outcome)
    return turn.primary.id


async def test_pruned_events_take_their_journals_with_them(
    store: Store, clock: Clock, database_url: str
) -> None:
    event_id = await journalled(store, Done())
    clock.tick(days=2)
    kept = await journalled(store, Done())
    assert (await store.sweep(KEEP)).pruned == 1
    assert await store.journal(event_id) == Journal()
    assert [*(await store.journal(kept)).steps] == ["charge", "fetch"]
    clock.tick(days=2)
    assert (await store.sweep(KEEP)).pruned == 1
    assert tables_that_hold(database_url, SECRET) == []


async def test_journals_go_with_a_whole_chunk_of_history(
    store: Store, clock: Clock, database_url: str
) -> None:
    old = [await journalled(store, Done(), event_ts=clock.now) for _ in range(2)]
    clock.tick(days=30)
    assert (await store.sweep(KEEP)).pruned == 2
    assert [await store.journal(event_id) for event_id in old] == [Journal()] * 2
    assert tables_that_hold(database_url, SECRET) == []


async def test_a_pruning_sweep_leaves_the_journals_of_dead_letters(
    store: Store, clock: Clock
) -> None:
    event_id = await journalled(store, Dead("no"))
    before = await store.journal(event_id)
    clock.tick(days=30)
    await store.sweep(KEEP)
    assert await store.journal(event_id) == before


async def test_a_discard_leaves_keys_and_states_alone(store: Store, database_url: str) -> None:
    event_id = await journalled(store, Dead("no"))
    other = await journalled(store, Dead("no"))
    assert await store.discard(Filter(ids=[event_id])) == [event_id]
    journal = await store.journal(event_id)
    assert [(step.key, step.state) for step in journal.steps.values()] == [
        ("charge", "done"),
        ("fetch", "failed"),
    ]
    for step in journal.steps.values():
        assert (step.arguments, step.digest, step.result, step.error) == (None,) * 4
    assert (journal.text, journal.length, journal.progress, journal.preview) == ("", 0, None, None)
    assert (await store.journal(other)).text == SECRET
    await store.discard(Filter(ids=[other]))
    assert tables_that_hold(database_url, SECRET) == []


@pytest.mark.parametrize("is_live", [True, False])
async def test_forgetting_a_person_erases_the_journals_of_their_messages(
    store: Store, database_url: str, is_live: bool
) -> None:
    person = {"kind": "message", "channel": "web", "sender": "Ann", "sender_id": "ann"}
    await put(store)
    other = await claim_one(store)
    await store.record(JournalEntry(turn=other, steps=[STEP]))
    ids = await store.put([NewEvent(event=person | {"message": "hello"})])
    turn = await claim_one(store)
    assert turn.ids == ids
    await record_all(store, turn)
    await end(store, turn, Snooze(0) if is_live else Done())
    await open_observations(store).forget("default", "USER", "web:id:ann")
    assert await store.journal(turn.primary.id) == Journal()
    assert [*(await store.journal(other.primary.id)).steps] == ["charge"]
    assert tables_that_hold(database_url, SECRET) == []


async def test_an_event_does_not_expire_while_it_waits_or_soon_after(
    store: Store, clock: Clock
) -> None:
    policy = SweepPolicy(expire_after=timedelta(hours=1))
    event_id = await put(store)
    await end(store, await claim_one(store), Snooze(timedelta(days=1)))
    for hours in (2, 22.5):
        clock.tick(hours=hours)
        assert (await store.sweep(policy)).expired == 0
    clock.tick(hours=1)
    assert (await store.sweep(policy)).expired == 1
    assert (await finished(store, event_id)).outcome == "expired"


async def test_an_event_that_waits_holds_its_lane(store: Store) -> None:
    first, second = await put_lane(store, 2)
    await end(store, await claim_one(store), Snooze(timedelta(days=1)))
    assert await claim_ids(store) == []
    assert (await live(store, first)).lane == (await live(store, second)).lane == "a"


async def test_an_event_that_leaves_its_lane_lets_the_next_go_on(
    store: Store, clock: Clock
) -> None:
    first, second, third = await put_lane(store, 3)
    turn = await claim_one(store)
    clock.tick(minutes=1)
    assert await end(store, turn, Snooze(timedelta(hours=1), leave_lane=True)) == Settled(turn)
    waiting = await live(store, first)
    assert (waiting.lane, waiting.head, waiting.attempts) == (None, True, 0)
    assert waiting.vt == clock.now + timedelta(hours=1)
    assert (await live(store, second)).vt == clock.now
    assert await claim_ids(store) == [[second]]
    assert await claim_ids(store) == []
    clock.tick(hours=1)
    assert sorted(await claim_ids(store)) == [[first], [second]]
    assert not (await live(store, third)).head
    assert (await store.sweep(SweepPolicy())).repaired_lanes == 0


async def test_an_event_without_a_lane_can_leave_it_too(store: Store, clock: Clock) -> None:
    event_id = await put(store)
    await end(store, await claim_one(store), Snooze(0, leave_lane=True))
    assert await claim_ids(store) == [[event_id]]


async def test_a_turn_of_several_stays_in_its_lane(store: Store) -> None:
    ids = await put_lane(store, 3)
    turn = await claim_one(store, collect_limit=2)
    await end(store, turn, Snooze(0, leave_lane=True))
    assert {(await live(store, event_id)).lane for event_id in ids} == {"a"}


async def unknown_effect(store: Store, state: Any = "started") -> int:
    """Return the id of a dead letter with a once-step that may have happened."""
    await put(store)
    turn = await claim_one(store)
    steps = [
        Step(key="fetch", state="failed", attempt=1),
        Step(key="ask", state="done", attempt=1, kind="once", result="1"),
        Step(key="charge", state=state, attempt=1, kind="once", arguments="[3]"),
    ]
    await store.record(JournalEntry(turn=turn, steps=steps))
    await end(store, turn, Dead("charge may have happened", error_class=EFFECT_UNKNOWN))
    return turn.primary.id


async def test_a_plain_retry_leaves_a_call_that_may_have_happened_dead(store: Store) -> None:
    unknown = await unknown_effect(store)
    plain = await journalled(store, Dead("no", error_class="Timeout"))
    unclassed = await journalled(store, Dead("no"))
    assert await store.retry(Filter(ids=[unknown])) == []
    assert await store.retry(Filter(queue="inbox"), actor="ann") == [plain, unclassed]
    assert [event.id for event in await store.dead(Filter())] == [unknown]
    subjects = [entry.subject for entry in await store.audit_log(AuditFilter())]
    assert sorted(subjects) == [f"event:{plain}", f"event:{unclassed}"]


@pytest.mark.parametrize("state", ["started", "unknown"])
@pytest.mark.parametrize("assume", ["done", "not-done"])
async def test_a_person_decides_about_a_call_that_may_have_happened(
    store: Store, clock: Clock, assume: Assume, state: str
) -> None:
    event_id = await unknown_effect(store, state)
    clock.tick(hours=1)
    assert await store.retry(Filter(ids=[event_id]), assume=assume) == [event_id]
    steps = (await store.journal(event_id)).steps
    assert (steps["fetch"].state, steps["ask"].result) == ("failed", "1")
    charge = steps["charge"]
    assert (charge.attempt, charge.ended_at) == (0, clock.now)
    decided = ("done", "null") if assume == "done" else ("failed", None)
    assert (charge.state, charge.result) == decided
    # The next attempt has the number of the first one; its start is recorded all the same.
    turn = await claim_one(store)
    assert turn.attempt == 1
    started = Step(key="charge", state="started", attempt=1, kind="once")
    await store.record(JournalEntry(turn=turn, steps=[started]))
    assert (await store.journal(event_id)).steps["charge"].state == "started"


async def test_assuming_leaves_the_steps_of_other_events(store: Store) -> None:
    first, second = await unknown_effect(store), await unknown_effect(store)
    await store.retry(Filter(ids=[first]), assume="not-done")
    assert "charge" in (await store.journal(second)).steps


async def test_a_retry_with_an_assumption_revives_other_dead_letters_too(store: Store) -> None:
    await put(store)
    await end(store, await claim_one(store), Retry("no"), max_attempts=1)
    [letter] = await store.dead(Filter())
    assert await store.retry(Filter(ids=[letter.id]), assume="done") == [letter.id]
