"""Events know which token sent them, and what comes of them inherits it, on every store alike."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from holdfast.queue.event import INBOX, OUTBOX, NewEvent
from holdfast.queue.outcome import Dead, Done
from holdfast.queue.record import Activity
from holdfast.queue.store import Filter, Store
from holdfast.queue.turn import LeasedTurn

LEASE = timedelta(minutes=10)
ADA = "token_ada"


def message(text: str, sent_by: str | None = None) -> NewEvent:
    payload = {
        "kind": "message",
        "channel": "api",
        "sender": "Ada",
        "message": text,
        "conversation": "api:Ada",
    }
    return NewEvent(event=payload, message_id=f"api_{text}", sent_by=sent_by, max_attempts=1)


async def claimed(store: Store, queue: str = INBOX, target: str = "") -> LeasedTurn:
    [turn] = await store.claim(queue, [target], limit=1, lease=LEASE)
    return turn


def answer(**further: str) -> NewEvent:
    payload = {"kind": "response", "channel": "api", "message": "yes"}
    return NewEvent(event=payload, queue=OUTBOX, target="api", **further)  # type: ignore[arg-type]


async def test_what_a_turn_emits_inherits_who_sent_its_message(store: Store) -> None:
    await store.put([message("a", ADA)])
    turn = await claimed(store)
    assert turn.primary.sent_by == ADA
    await store.settle([(turn, Done((answer(sent_by="token_spoofed"), message("b"))))])
    [response] = await store.waiting(OUTBOX, "api")
    handed_on = await claimed(store)
    assert (response.sent_by, handed_on.primary.sent_by) == (ADA, ADA)
    [ended] = await store.finished(Filter(queue=INBOX))
    assert ended.sent_by == ADA
    assert [event.sent_by for event in await store.recent(OUTBOX)] == [ADA]


async def test_without_a_sender_there_is_none_to_inherit(store: Store) -> None:
    await store.put([message("a"), message("b", ADA)])
    first, second = await store.claim(INBOX, [""], limit=2, lease=LEASE)
    await store.settle([(first, Done((answer(sent_by=ADA),))), (second, Done())])
    assert [event.sent_by for event in await store.waiting(OUTBOX, "api")] == [None]
    assert [event.sent_by for event in await store.recent(INBOX)] == [ADA, None]


async def test_a_dead_letter_keeps_its_sender_when_it_is_retried_or_replayed(store: Store) -> None:
    await store.put([message("a", ADA)])
    await store.settle([(await claimed(store), Dead("no"))])
    [letter] = await store.dead(Filter())
    assert letter.sent_by == ADA
    assert await store.retry(Filter()) == [letter.id]
    turn = await claimed(store)
    assert turn.primary.sent_by == ADA
    await store.settle([(turn, Done())])
    await store.replay([letter.id])
    assert (await claimed(store)).primary.sent_by == ADA


async def test_events_put_together_in_a_transaction_or_in_bulk_keep_their_own(store: Store) -> None:
    async with store.transaction() as tx:
        await store.put([message("a", ADA), message("b")], tx=tx)
    many = [message(str(number), ADA if number % 2 else None) for number in range(300)]
    await store.put(many)
    found = await store.recent(INBOX, limit=1000)
    assert {event.event["message"]: event.sent_by for event in found} == {
        new.event["message"]: new.sent_by for new in [message("a", ADA), message("b"), *many]
    }


async def test_frames_name_who_sent_the_message(store: Store) -> None:
    await store.set_setting("activity", True)
    await store.set_setting("routing", {"default": "echo"})
    await store.put([message("a", ADA)])
    await store.put([message("b")])
    await store.put([message("c", ADA), message("d")])
    await store.put([], records=[Activity(({"type": "processor_start"},))])
    for _ in range(4):
        await store.settle([(await claimed(store), Dead("no"))])
    await store.retry(Filter())
    frames = [frame for row in await store.activity(0) for frame in row.frames]
    assert {frame["type"] for frame in frames} >= {
        "message_received",
        "agent_routed",
        "message_failed",
    }
    for frame in frames:
        mine = frame.get("messageId") in ("api_a", "api_c")
        assert frame.get("sentBy", "nobody") == (ADA if mine else "nobody"), frame


async def test_messages_of_different_tokens_never_share_a_turn(store: Store) -> None:
    lane = {"lane": "echo/api:Ada"}
    events = [replace(message(text, ADA), **lane) for text in ("a", "b")]  # type: ignore[arg-type]
    await store.put(events)
    await store.put([replace(message("c", "token_bob"), **lane)])  # type: ignore[arg-type]
    [turn] = await store.claim(INBOX, [""], limit=1, lease=LEASE, collect_limit=100)
    assert [event.event["message"] for event in turn.events] == ["a", "b"]
    await store.settle([(turn, Done())])
    await store.put([replace(message("d", ADA), **lane)])  # type: ignore[arg-type]
    [turn] = await store.claim(INBOX, [""], limit=1, lease=LEASE)
    assert not await store.gather(turn, 100)
    assert [event.event["message"] for event in turn.events] == ["c"]
