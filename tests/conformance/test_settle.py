"""How turns end, and what stays of them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.chat import AgentMessage, ChatMessage, ChatStore
from holdfast.queue.outcome import Dead, Done, Retry, Settled, Snooze
from holdfast.queue.store import Filter
from holdfast.testing.clock import Clock
from tests.conformance.steps import (
    LEASE,
    claim,
    claim_ids,
    claim_one,
    end,
    ended,
    finished,
    live,
    message,
    put,
)


async def test_done_moves_the_event_to_history_as_completed(store: ChatStore, clock: Clock) -> None:
    event_id = await put(store, "hi", lane="a", message_id="m1", target="coder")
    turn = await claim_one(store, "coder", holder="worker-1")
    await store.checkpoint(turn, {"part": 1})
    clock.tick(seconds=3)
    assert await ended(store, turn) == "completed"
    assert await store.live(event_id) is None
    event = await finished(store, event_id)
    assert (event.outcome, event.finished_at) == ("completed", clock.now)
    assert (event.id, event.lane, event.message_id, event.event) == (
        event_id,
        "a",
        "m1",
        {"text": "hi"},
    )
    assert (event.attempts, event.claimed, event.vt) == (1, turn.primary.claimed, turn.primary.vt)
    assert (event.fence, event.holder, event.state) == (0, "worker-1", {"part": 1})


async def test_a_settle_says_how_each_turn_ended(store: ChatStore) -> None:
    await store.put([message() for _ in range(4)])
    turns = await claim(store, limit=4)
    results = await store.settle(
        list(
            zip(turns, [Done(), Dead("no"), Retry("no"), Snooze(timedelta(minutes=1))], strict=True)
        )
    )
    assert [result.ended for result in results if isinstance(result, Settled)] == [
        "completed",
        "dead",
        "back",
        "back",
    ]
    assert [result.turn for result in results] == turns


async def test_a_retry_comes_back_after_its_delay(store: ChatStore, clock: Clock) -> None:
    event_id = await put(store)
    assert (
        await ended(store, await claim_one(store), Retry("boom", timedelta(seconds=30), "Crash"))
        == "back"
    )
    event = await live(store, event_id)
    assert (event.vt, event.attempts, event.fence, event.holder) == (
        clock.now + timedelta(seconds=30),
        1,
        0,
        None,
    )
    assert (event.last_error, event.error_class) == ("boom", "Crash")
    clock.tick(seconds=29)
    assert await claim(store) == []
    clock.tick(seconds=1)
    assert (await claim_one(store)).primary.attempts == 2


async def test_a_retry_without_delay_is_ready_at_once(store: ChatStore, clock: Clock) -> None:
    event_id = await put(store)
    await end(store, await claim_one(store), Retry("boom"))
    assert (await live(store, event_id)).vt == clock.now
    assert await claim_ids(store) == [[event_id]]


async def test_a_retry_without_error_keeps_the_last_one(store: ChatStore) -> None:
    event_id = await put(store)
    await end(store, await claim_one(store), Retry("boom"))
    await end(store, await claim_one(store), Retry())
    assert (await live(store, event_id)).last_error == "boom"


async def test_a_new_error_without_a_class_does_not_keep_the_old_class(store: ChatStore) -> None:
    event_id = await put(store)
    await end(store, await claim_one(store), Retry("boom", error_class="Crash"))
    await end(store, await claim_one(store), Retry("other"))
    event = await live(store, event_id)
    assert (event.last_error, event.error_class) == ("other", None)


async def test_a_retry_without_attempts_left_is_a_dead_letter(store: ChatStore) -> None:
    event_id = await put(store)
    for attempt in range(3):
        expected = "dead" if attempt == 2 else "back"
        assert (
            await ended(
                store, await claim_one(store), Retry(f"boom {attempt}", error_class="Crash")
            )
            == expected
        )
    event = await finished(store, event_id)
    assert (event.outcome, event.last_error, event.error_class, event.attempts) == (
        "dead",
        "boom 2",
        "Crash",
        3,
    )


async def test_a_dead_letter_without_any_error_says_so(store: ChatStore) -> None:
    event_id = await put(store, max_attempts=1)
    assert await ended(store, await claim_one(store), Retry()) == "dead"
    assert (await finished(store, event_id)).last_error == "no attempts left"


async def test_the_attempts_of_the_settle_decide_where_the_event_has_none(store: ChatStore) -> None:
    await put(store)
    assert await ended(store, await claim_one(store), Retry("no"), max_attempts=1) == "dead"


async def test_the_events_own_attempts_win_at_settle(store: ChatStore) -> None:
    await put(store, max_attempts=2)
    assert await ended(store, await claim_one(store), Retry("no"), max_attempts=1) == "back"
    assert await ended(store, await claim_one(store), Retry("no"), max_attempts=10) == "dead"


async def test_dead_is_dead_with_attempts_left(store: ChatStore, clock: Clock) -> None:
    event_id = await put(store)
    assert (
        await ended(store, await claim_one(store), Dead("channel_not_found", "channel_not_found"))
        == "dead"
    )
    event = await finished(store, event_id)
    assert (event.outcome, event.last_error, event.error_class) == (
        "dead",
        "channel_not_found",
        "channel_not_found",
    )
    assert event.finished_at == clock.now
    assert [letter.id for letter in await store.dead(Filter())] == [event_id]


async def test_a_snooze_uses_no_attempt(store: ChatStore, clock: Clock) -> None:
    event_id = await put(store, max_attempts=1)
    for _ in range(5):
        assert await ended(store, await claim_one(store), Snooze(timedelta(minutes=1))) == "back"
        event = await live(store, event_id)
        assert (event.attempts, event.vt, event.fence, event.holder) == (
            0,
            clock.tick(minutes=1),
            0,
            None,
        )


async def test_a_release_is_ready_at_once_with_its_attempt_back(
    store: ChatStore, clock: Clock
) -> None:
    event_id = await put(store)
    turn = await claim_one(store)
    [result] = await store.release([turn])
    assert isinstance(result, Settled)
    assert result.ended == "back"
    event = await live(store, event_id)
    assert (event.attempts, event.vt, event.fence, event.holder) == (0, clock.now, 0, None)
    assert await claim_ids(store) == [[event_id]]


async def test_a_renewed_lease_holds_from_now(store: ChatStore, clock: Clock) -> None:
    event_id = await put(store)
    turn = await claim_one(store)
    clock.tick(minutes=9)
    assert await store.renew([turn], LEASE) == []
    event = await live(store, event_id)
    assert (event.vt, event.attempts, event.updated_at) == (clock.now + LEASE, 1, clock.now)
    clock.tick(minutes=9)
    assert await claim(store) == []


async def test_a_checkpoint_is_kept_with_the_event(store: ChatStore, clock: Clock) -> None:
    await put(store)
    turn = await claim_one(store)
    assert (
        await store.checkpoint(turn, {"parts": [{"key": "k", "status": "sent"}]}) == turn.primary.vt
    )
    clock.tick(minutes=11)
    assert (await claim_one(store)).primary.state == {"parts": [{"key": "k", "status": "sent"}]}


async def test_a_checkpoint_replaces_the_one_before(store: ChatStore) -> None:
    event_id = await put(store)
    turn = await claim_one(store)
    await store.checkpoint(turn, {"a": 1})
    await store.checkpoint(turn, {"b": 2})
    assert (await live(store, event_id)).state == {"b": 2}


async def test_done_may_bring_the_last_state(store: ChatStore) -> None:
    event_id = await put(store)
    turn = await claim_one(store)
    await store.checkpoint(turn, {"part": 1})
    assert await store.settle([(turn, Done(state={"part": 2}))]) == [Settled(turn)]
    assert (await finished(store, event_id)).state == {"part": 2}


async def test_done_stores_its_records(store: ChatStore, clock: Clock) -> None:
    await put(store)
    line = AgentMessage(
        agent_id="coder", role="assistant", channel="api", sender="c", message_id="m1", content="hi"
    )
    room = ChatMessage(team_id="dev", from_agent="coder", message="hello")
    await end(store, await claim_one(store), Done(records=(line, room)))
    [stored] = await store.agent_messages("coder")
    assert (stored.content, stored.role, stored.message_id, stored.created_at) == (
        "hi",
        "assistant",
        "m1",
        clock.now,
    )
    assert [post.message for post in await store.chat_messages("dev")] == ["hello"]


async def test_settling_nothing_settles_nothing(store: ChatStore) -> None:
    assert await store.settle([]) == []
    assert await store.renew([], LEASE) == []
    assert await store.release([]) == []


async def test_a_cancel_ends_what_is_being_worked(store: ChatStore, clock: Clock) -> None:
    event_id = await put(store)
    await claim_one(store)
    assert await store.cancel(event_id, "by ann")
    event = await finished(store, event_id)
    assert (event.outcome, event.last_error, event.finished_at) == (
        "cancelled",
        "cancelled: by ann",
        clock.now,
    )


async def test_only_what_is_being_worked_can_be_cancelled(store: ChatStore, clock: Clock) -> None:
    event_id = await put(store)
    assert not await store.cancel(event_id, "too early")
    await claim_one(store)
    clock.tick(minutes=11)
    assert not await store.cancel(event_id, "lease over")
    await end(store, await claim_one(store))
    assert not await store.cancel(event_id, "too late")
    assert not await store.cancel(event_id + 1000, "unknown")
    assert (await finished(store, event_id)).outcome == "completed"


@pytest.mark.parametrize("count", [1, 200])
async def test_many_turns_end_in_one_call(store: ChatStore, count: int) -> None:
    await store.put([message(lane=str(n)) for n in range(count)])
    turns = await claim(store, limit=count)
    assert await store.settle([(turn, Done()) for turn in turns]) == [
        Settled(turn) for turn in turns
    ]
    assert await store.outcomes("inbox") == {"completed": count}
