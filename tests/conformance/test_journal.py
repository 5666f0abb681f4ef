"""The journal of an event: steps and texts, kept under the fence of its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import HoldfastError, LeaseLost
from holdfast.queue.journal import Journal, JournalEntry, Step, Write
from holdfast.queue.outcome import Dead, Done, Retry, Settled
from holdfast.queue.store import Filter, Store
from holdfast.queue.turn import LeasedTurn
from holdfast.testing.clock import Clock
from tests.conformance.steps import claim, claim_one, end, put, put_lane

MEBIBYTE = 1024 * 1024


def done(key: str, result: str = "1", **fields: Any) -> Step:
    return Step(key=key, state="done", attempt=1, result=result, **fields)


async def write(store: Store, turn: LeasedTurn, generation: int, offset: int, text: str) -> None:
    await store.record(JournalEntry(turn=turn, write=Write(generation, offset, text)))


async def started_turn(store: Store) -> LeasedTurn:
    await put(store)
    return await claim_one(store)


async def test_an_event_without_a_journal_has_an_empty_one(store: Store) -> None:
    assert await store.journal(await put(store)) == Journal()


async def test_a_recorded_step_is_read_back_whole(store: Store, clock: Clock) -> None:
    turn = await started_turn(store)
    step = Step(
        key="charge#2",
        state="done",
        attempt=2,
        kind="once",
        events=3,
        arguments='["ann"]',
        digest="abc",
        result='{"id": 1}',
        error="no",
        signal="paid",
        due_at=clock.now + timedelta(days=1),
        tokens=12,
        cost=0.25,
        started_at=clock.now - timedelta(seconds=3),
        ended_at=clock.now - timedelta(seconds=1),
    )
    await store.record(JournalEntry(turn=turn, steps=[step]))
    assert (await store.journal(turn.primary.id)).steps == {"charge#2": step}


async def test_a_step_without_times_takes_those_of_the_store(store: Store, clock: Clock) -> None:
    turn = await started_turn(store)
    await store.record(JournalEntry(turn=turn, steps=[Step(key="a", state="started", attempt=1)]))
    [started] = (await store.journal(turn.primary.id)).steps.values()
    assert (started.started_at, started.ended_at) == (clock.now, None)
    began_at = clock.now
    clock.tick(seconds=5)
    await store.record(JournalEntry(turn=turn, steps=[done("a")]))
    [ended] = (await store.journal(turn.primary.id)).steps.values()
    assert (ended.started_at, ended.ended_at) == (began_at, clock.now)


async def test_a_later_attempt_starts_a_step_anew(store: Store, clock: Clock) -> None:
    turn = await started_turn(store)
    failed = Step(key="a", state="failed", attempt=1, error="no")
    await store.record(JournalEntry(turn=turn, steps=[failed]))
    await end(store, turn, Retry("no", delay=0))
    clock.tick(seconds=5)
    turn = await claim_one(store)
    await store.record(JournalEntry(turn=turn, steps=[Step(key="a", state="started", attempt=2)]))
    [again] = (await store.journal(turn.primary.id)).steps.values()
    assert (again.state, again.error, again.started_at) == ("started", None, clock.now)
    assert again.ended_at is None


async def test_the_end_of_a_once_step_keeps_its_arguments(store: Store) -> None:
    turn = await started_turn(store)
    begun = Step(key="a", state="started", attempt=1, kind="once", arguments="[1]", digest="abc")
    await store.record(JournalEntry(turn=turn, steps=[begun]))
    await store.record(JournalEntry(turn=turn, steps=[done("a", kind="once")]))
    [ended] = (await store.journal(turn.primary.id)).steps.values()
    assert (ended.state, ended.arguments, ended.digest) == ("done", "[1]", "abc")


async def test_a_start_that_arrives_late_does_not_undo_the_end(store: Store) -> None:
    turn = await started_turn(store)
    await store.record(JournalEntry(turn=turn, steps=[done("a", "7")]))
    await store.record(JournalEntry(turn=turn, steps=[Step(key="a", state="started", attempt=1)]))
    [step] = (await store.journal(turn.primary.id)).steps.values()
    assert (step.state, step.result) == ("done", "7")


async def test_steps_are_listed_in_the_order_in_which_they_were_recorded(store: Store) -> None:
    turn = await started_turn(store)
    await store.record(JournalEntry(turn=turn, steps=[Step(key="z", state="started", attempt=1)]))
    await store.record(JournalEntry(turn=turn, steps=[done("y"), done("a"), done("m")]))
    await store.record(JournalEntry(turn=turn, steps=[done("z")]))
    assert list((await store.journal(turn.primary.id)).steps) == ["z", "y", "a", "m"]


async def test_an_entry_may_name_a_step_twice(store: Store) -> None:
    turn = await started_turn(store)
    begun = Step(key="b", state="started", attempt=1)
    await store.record(JournalEntry(turn=turn, steps=[begun, done("a"), done("b", "2")]))
    steps = (await store.journal(turn.primary.id)).steps
    assert [(step.key, step.result) for step in steps.values()] == [("b", "2"), ("a", "1")]


async def test_a_journal_can_be_read_without_results(store: Store) -> None:
    turn = await started_turn(store)
    await store.record(JournalEntry(turn=turn, steps=[done("a", "7", arguments="[1]")]))
    [step] = (await store.journal(turn.primary.id, results=False)).steps.values()
    assert (step.key, step.state, step.arguments, step.result) == ("a", "done", None, None)


@pytest.mark.parametrize("lost_by", ["a claim", "a settle", "a cancel", "a release"])
async def test_a_lost_turn_records_nothing(store: Store, clock: Clock, lost_by: str) -> None:
    old = await started_turn(store)
    match lost_by:
        case "a claim":
            clock.tick(minutes=11)
            await claim_one(store)
        case "a settle":
            await end(store, old)
        case "a cancel":
            assert await store.cancel(old.primary.id, "stop")
        case "a release":
            await store.release([old])
    entry = JournalEntry(
        turn=old, steps=[done("a")], write=Write(1, 0, "hello"), progress="half", preview={"ts": 1}
    )
    with pytest.raises(LeaseLost, match=f"the lease on event {old.primary.id} is lost"):
        await store.record(entry)
    assert await store.journal(old.primary.id) == Journal()


async def test_the_next_holder_of_an_event_reads_what_was_recorded(
    store: Store, clock: Clock
) -> None:
    old = await started_turn(store)
    await store.record(JournalEntry(turn=old, steps=[done("a")], write=Write(1, 0, "hel")))
    clock.tick(minutes=11)
    new = await claim_one(store)
    journal = await store.journal(new.primary.id)
    assert ([*journal.steps], journal.text) == (["a"], "hel")
    await write(store, new, 1, 3, "lo")
    with pytest.raises(LeaseLost):
        await write(store, old, 1, 3, "p")
    assert (await store.journal(new.primary.id)).text == "hello"


async def test_a_collected_turn_keeps_its_journal_with_its_first_event(store: Store) -> None:
    first, second = await put_lane(store, 2)
    turn = await claim_one(store, collect_limit=10)
    assert turn.ids == [first, second]
    await store.record(JournalEntry(turn=turn, steps=[done("a", events=2)]))
    assert (await store.journal(first)).steps["a"].events == 2
    assert await store.journal(second) == Journal()


async def test_entries_recorded_at_once_fail_each_for_itself(store: Store, clock: Clock) -> None:
    lost = await started_turn(store)
    clock.tick(minutes=11)
    for _ in range(9):
        await put(store)
    held = await claim(store, limit=10)
    entries = [JournalEntry(turn=turn, steps=[done("a")]) for turn in [lost, *held]]
    entries.append(JournalEntry(turn=held[1], write=Write(1, 5, "gap")))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(outcome_of(store.record(entry))) for entry in entries]
    outcomes = [task.result() for task in tasks]
    assert isinstance(outcomes[0], LeaseLost)
    assert outcomes[1:-1] == [None] * 10
    assert type(outcomes[-1]) is HoldfastError
    for turn in held:
        assert [*(await store.journal(turn.primary.id)).steps] == ["a"]


async def outcome_of(work: Awaitable[None]) -> HoldfastError | None:
    try:
        await work
    except HoldfastError as error:
        return error
    return None


async def test_a_finished_event_keeps_its_journal(store: Store) -> None:
    turn = await started_turn(store)
    await store.record(JournalEntry(turn=turn, steps=[done("a")], write=Write(1, 0, "hello")))
    before = await store.journal(turn.primary.id)
    assert isinstance(await end(store, turn, Done()), Settled)
    assert await store.journal(turn.primary.id) == before


async def test_text_grows_by_writes_and_is_read_from_an_offset(store: Store) -> None:
    turn = await started_turn(store)
    for offset, text in ((0, "one "), (4, "two "), (8, "three")):
        await write(store, turn, 1, offset, text)
    for offset in range(15):
        journal = await store.journal(turn.primary.id, offset=offset)
        assert (journal.generation, journal.length) == (1, 13)
        assert journal.text == "one two three"[offset:]


async def test_the_same_write_again_changes_nothing(store: Store) -> None:
    turn = await started_turn(store)
    await write(store, turn, 1, 0, "one ")
    for _ in range(2):
        await write(store, turn, 1, 4, "two")
    assert (await store.journal(turn.primary.id)).text == "one two"


async def test_a_write_inside_of_the_text_replaces_the_rest(store: Store) -> None:
    turn = await started_turn(store)
    await write(store, turn, 1, 0, "one ")
    await write(store, turn, 1, 4, "two ")
    await write(store, turn, 1, 2, "ly")
    journal = await store.journal(turn.primary.id)
    assert (journal.text, journal.length) == ("only", 4)


async def test_a_greater_generation_replaces_the_text(store: Store) -> None:
    turn = await started_turn(store)
    await write(store, turn, 1, 0, "a long first answer")
    await write(store, turn, 2, 0, "short")
    journal = await store.journal(turn.primary.id)
    assert (journal.generation, journal.text, journal.length) == (2, "short", 5)


async def test_an_empty_write_of_a_greater_generation_clears_the_text(store: Store) -> None:
    turn = await started_turn(store)
    await write(store, turn, 1, 0, "hello")
    await write(store, turn, 2, 0, "")
    assert await store.journal(turn.primary.id) == Journal(generation=2)


@pytest.mark.parametrize(("generation", "offset"), [(1, 6), (2, 1), (0, 0), (1, -1)])
async def test_a_write_that_does_not_join_the_text_is_refused(
    store: Store, generation: int, offset: int
) -> None:
    turn = await started_turn(store)
    await write(store, turn, 1, 0, "hello")
    with pytest.raises(HoldfastError, match="has 5 characters in generation 1; cannot write at"):
        await write(store, turn, generation, offset, "x")
    assert (await store.journal(turn.primary.id)).text == "hello"


async def test_offsets_count_code_points(store: Store) -> None:
    turn = await started_turn(store)
    text = "a\0b\ud800c👩‍👩‍👧é🎉"
    await write(store, turn, 1, 0, text)
    await write(store, turn, 1, len(text), "end")
    journal = await store.journal(turn.primary.id)
    assert journal.text == text.replace("\0", "\ufffd").replace("\ud800", "\ufffd") + "end"
    assert journal.length == len(text) + 3
    assert (await store.journal(turn.primary.id, offset=len(text) - 1)).text == "🎉end"


async def test_any_text_can_be_a_key_a_result_or_an_error(store: Store) -> None:
    turn = await started_turn(store)
    odd = 'a\0b\ud800c👩‍👩‍👧"\\u0000\n'
    stored = odd.replace("\0", "\ufffd").replace("\ud800", "\ufffd")
    step = done(odd, '"a\\u0000b\\ud83d\\ude00"', error=odd)
    await store.record(JournalEntry(turn=turn, steps=[step], progress=odd, preview={"a": odd}))
    journal = await store.journal(turn.primary.id)
    assert journal.steps[stored].result == '"a\\u0000b\\ud83d\\ude00"'
    assert journal.steps[stored].error == stored
    assert (journal.progress, journal.preview) == (stored, {"a": stored})


async def test_progress_and_preview_stay_until_they_are_replaced(store: Store) -> None:
    turn = await started_turn(store)
    await store.record(JournalEntry(turn=turn, progress="1 of 7", preview={"ts": "1.2"}))
    await write(store, turn, 1, 0, "hello")
    await store.record(JournalEntry(turn=turn, progress="2 of 7"))
    journal = await store.journal(turn.primary.id)
    assert (journal.progress, journal.preview) == ("2 of 7", {"ts": "1.2"})
    assert (journal.text, journal.generation) == ("hello", 1)


async def test_results_of_a_mebibyte_are_kept(store: Store) -> None:
    turn = await started_turn(store)
    results = {f"step {number}": f'"{number}' + "x" * MEBIBYTE + '"' for number in range(8)}
    async with asyncio.TaskGroup() as group:
        for key, result in results.items():
            group.create_task(store.record(JournalEntry(turn=turn, steps=[done(key, result)])))
    journal = await store.journal(turn.primary.id)
    assert {key: step.result for key, step in journal.steps.items()} == results


async def test_frames_of_an_entry_are_stored_with_it(store: Store, clock: Clock) -> None:
    await store.set_setting("activity", True)
    turn = await started_turn(store)
    _, following = await store.activity_span()
    frames = [{"type": "step_start", "key": "a"}, {"type": "step_done", "key": "a\0"}]
    await store.record(JournalEntry(turn=turn, steps=[done("a")], frames=frames))
    clock.tick(minutes=11)
    await claim_one(store)
    with pytest.raises(LeaseLost):
        await store.record(JournalEntry(turn=turn, frames=[{"type": "step_done", "key": "b"}]))
    rows = await store.activity(following)
    kinds = [(frame["type"], frame["key"]) for row in rows for frame in row.frames]
    assert kinds == [("step_start", "a"), ("step_done", "a\ufffd")]


async def test_a_dead_letter_that_is_retried_has_its_journal(store: Store) -> None:
    turn = await started_turn(store)
    await store.record(JournalEntry(turn=turn, steps=[done("a")]))
    await end(store, turn, Dead("no"))
    assert await store.retry(Filter(ids=turn.ids)) == turn.ids
    assert [*(await store.journal(turn.primary.id)).steps] == ["a"]


async def test_a_replayed_event_has_an_empty_journal(store: Store) -> None:
    turn = await started_turn(store)
    await store.record(JournalEntry(turn=turn, steps=[done("a")]))
    await end(store, turn)
    [again] = await store.replay(turn.ids)
    assert await store.journal(again) == Journal()
