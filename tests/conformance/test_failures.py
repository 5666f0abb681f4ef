"""The stored failure of a turn: error and traceback, redacted and bounded."""

from __future__ import annotations

import json

from holdfast.queue.outcome import Dead, Done, Retry
from holdfast.queue.store import Filter, Store
from holdfast.store.failure import CLASS_LENGTH, ERROR_LENGTH, TRACEBACK_LENGTH
from holdfast.testing.clock import Clock
from tests.conformance.steps import claim_one, end, finished, live, put

SECRET = "xoxb-1234567890-abcdef"
TRACE = (
    f'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: {SECRET} was refused'
)


async def test_issue_13_8_no_error_is_stored_with_a_secret(store: Store) -> None:
    await store.set_setting("activity", True)
    await store.set_setting("routing", {"default": "coder"})
    tried = await put(store)
    await end(store, await claim_one(store), Retry(f"401 for {SECRET}", traceback=TRACE))
    assert (await live(store, tried)).last_error == "401 for ***"
    await end(store, await claim_one(store), Dead(f"no luck with {SECRET}", traceback=TRACE))
    cancelled = await put(store)
    await claim_one(store)
    assert await store.cancel(cancelled, f"by {SECRET}")
    assert (await finished(store, tried)).last_error == "no luck with ***"
    assert (await finished(store, cancelled)).last_error == "cancelled: by ***"
    dead_letters = await store.dead(Filter())
    frames = [frame for row in await store.activity(0) for frame in row.frames]
    assert [frame["error"] for frame in frames if "error" in frame] == [
        "401 for ***",
        "no luck with ***",
        "cancelled: by ***",
    ]
    assert SECRET not in json.dumps([str(dead_letters), frames])


async def test_issue_13_8_what_is_stored_of_an_error_is_bounded(store: Store) -> None:
    event_id = await put(store)
    await end(
        store, await claim_one(store), Dead("e" * 100_000, "c" * 1_000, "t" * 99_000 + "the end")
    )
    letter = await finished(store, event_id)
    assert letter.last_error is not None
    assert letter.last_error.startswith("e" * ERROR_LENGTH)
    assert len(letter.last_error) < ERROR_LENGTH + 50
    assert letter.error_class == "c" * CLASS_LENGTH
    assert letter.traceback is not None
    assert letter.traceback.endswith("the end")
    assert len(letter.traceback) <= TRACEBACK_LENGTH + 1


async def test_an_error_of_broken_bytes_does_not_keep_a_turn_from_ending(store: Store) -> None:
    event_id = await put(store)
    await end(store, await claim_one(store), Dead("a\0b\ud800", "k\0", "t\0\udfff"))
    letter = await finished(store, event_id)
    assert (letter.last_error, letter.error_class, letter.traceback) == (
        "a\ufffdb\ufffd",
        "k\ufffd",
        "t\ufffd\ufffd",
    )


async def test_issue_14_24_a_dead_letter_keeps_the_traceback_of_its_last_attempt(
    store: Store,
) -> None:
    event_id = await put(store, max_attempts=2)
    await end(store, await claim_one(store), Retry("first", traceback="the first"))
    await end(store, await claim_one(store), Retry("last", traceback=TRACE))
    [letter] = await store.dead(Filter())
    assert (letter.id, letter.last_error) == (event_id, "last")
    assert letter.traceback == TRACE.replace(SECRET, "***")


async def test_a_failure_without_a_traceback_does_not_keep_that_of_another_error(
    store: Store,
) -> None:
    event_id = await put(store, max_attempts=2)
    await end(store, await claim_one(store), Retry("raised", traceback="where"))
    await end(store, await claim_one(store), Retry("returned"))
    assert (await finished(store, event_id)).traceback is None


async def test_a_retried_or_completed_event_has_no_traceback(store: Store) -> None:
    event_id = await put(store)
    await end(store, await claim_one(store), Dead("no", traceback="where"))
    await store.retry(Filter(ids=[event_id]))
    await end(store, await claim_one(store), Retry("again", traceback="there"))
    await end(store, await claim_one(store), Done())
    assert (await finished(store, event_id)).traceback is None


async def test_issue_14_24_discard_erases_the_traceback(store: Store, clock: Clock) -> None:
    event_id = await put(store)
    await end(store, await claim_one(store), Dead("no", traceback="where"))
    await store.discard(Filter(ids=[event_id]))
    assert (await finished(store, event_id)).traceback is None


async def test_a_turn_that_was_lost_stores_no_traceback(store: Store, clock: Clock) -> None:
    event_id = await put(store, max_attempts=2)
    late = await claim_one(store)
    clock.tick(minutes=11)
    await end(store, await claim_one(store), Retry("last", traceback="mine"))
    await end(store, late, Dead("late", traceback="late"))
    assert (await finished(store, event_id)).traceback == "mine"
