"""Emits: stored with the turn that ends, once, related to where they come from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.message import text_of
from holdfast.queue.event import Event, NewEvent
from holdfast.queue.outcome import Done, Lost
from holdfast.queue.store import Filter, Store
from holdfast.testing.clock import Clock
from tests.conformance.steps import (
    claim,
    claim_ids,
    claim_one,
    drain,
    end,
    ended,
    live,
    message,
    outbox,
    put,
    put_lane,
)


def reply(text: str = "reply", **fields: object) -> NewEvent:
    return message(text, **{"queue": "outbox", **fields})


async def emit(store: Store, *emits: NewEvent) -> list[Event]:
    """End one turn of the inbox with these; what is in the outbox then."""
    await end(store, await claim_one(store), Done(emits))
    return await outbox(store, "", "slack")


async def test_an_emit_is_stored_when_its_turn_ends(store: Store) -> None:
    await put(store)
    turn = await claim_one(store)
    assert await outbox(store) == []
    assert await ended(store, turn, Done((reply(),))) == "completed"
    assert [event.event for event in await outbox(store)] == [{"text": "reply"}]


async def test_an_emit_carries_what_it_was_given(store: Store) -> None:
    await put(store)
    sent_at = datetime(2025, 6, 1, 1, 2, 3, 456789, tzinfo=UTC)
    [event] = await emit(store, reply(target="slack", lane="c1", event_ts=sent_at, max_attempts=10))
    assert (event.target, event.lane, event.event_ts, event.max_attempts) == (
        "slack",
        "c1",
        sent_at,
        10,
    )
    assert event.head


async def test_an_emit_knows_its_parent_and_root(store: Store) -> None:
    event_id = await put(store)
    [event] = await emit(store, reply())
    assert (event.parent_id, event.root_id, event.hops) == (event_id, event_id, 0)


async def test_a_hand_off_counts_a_hop_and_a_reply_does_not(store: Store) -> None:
    root = await put(store)
    await end(store, await claim_one(store), Done((message("mate", target="writer"),)))
    mate = await claim_one(store, "writer")
    assert (mate.primary.parent_id, mate.primary.root_id, mate.primary.hops) == (root, root, 1)
    await end(store, mate, Done((reply(), message("back", target="coder"))))
    [answer] = await outbox(store)
    assert (answer.parent_id, answer.root_id, answer.hops) == (mate.primary.id, root, 1)
    assert (await claim_one(store, "coder")).primary.hops == 2


async def test_an_emit_derives_its_id_from_its_parents_and_its_position(store: Store) -> None:
    await put(store, message_id="m1")
    events = await emit(store, reply(), message("mate", target="writer"), reply())
    assert [event.message_id for event in events] == ["m1/1", "m1/3"]
    assert (await claim_one(store, "writer")).primary.message_id == "m1/2"


async def test_an_emit_of_a_parent_without_message_id_derives_from_its_id(store: Store) -> None:
    event_id = await put(store)
    assert [event.message_id for event in await emit(store, reply(), reply())] == [
        f"{event_id}/1",
        f"{event_id}/2",
    ]


async def test_an_emit_may_have_an_id_of_its_own(store: Store) -> None:
    await put(store, message_id="m1")
    events = await emit(store, reply(message_id="own"), reply())
    assert [event.message_id for event in events] == ["own", "m1/2"]


async def test_a_repeated_id_in_one_turn_is_stored_once(store: Store) -> None:
    await put(store)
    events = await emit(store, reply("one", message_id="own"), reply("two", message_id="own"))
    assert [event.event["text"] for event in events] == ["one"]


async def test_a_turn_that_is_repeated_emits_nothing_twice(store: Store) -> None:
    event_id = await put(store, message_id="m1")
    turn = await claim_one(store)
    await store.cancel(event_id, "stop")
    await store.retry(Filter())
    again = await claim_one(store)
    assert await end(store, turn, Done((reply(),))) == Lost(turn)
    await end(store, again, Done((reply(),)))
    assert [event.message_id for event in await outbox(store)] == ["m1/1"]


async def test_a_clients_message_id_never_swallows_a_reply(store: Store) -> None:
    await put(store, queue="outbox", message_id="m1/1")
    event_id = await put(store, message_id="m1")
    events = await emit(store, reply())
    assert [event.message_id for event in events] == ["m1/1", f"m1/1~{event_id}"]
    assert events[1].parent_id == event_id


async def test_two_turns_that_name_the_same_id_both_emit(store: Store) -> None:
    first, second = [await put(store), await put(store)]
    for _ in range(2):
        await end(store, await claim_one(store), Done((reply(message_id="own"),)))
    events = await outbox(store)
    assert [(event.message_id, event.parent_id) for event in events] == [
        ("own", first),
        (f"own~{second}", second),
    ]


async def test_an_emit_to_its_own_lane_comes_after_what_waits_there(store: Store) -> None:
    first, second = await put_lane(store, 2)
    turn = await claim_one(store)
    assert turn.ids == [first]
    await end(store, turn, Done((message("again", lane="a"),)))
    order = await drain(store)
    assert order[0] == second
    assert len(order) == 2


async def test_an_emit_to_its_own_empty_lane_is_its_next_head(store: Store) -> None:
    await put(store, lane="a")
    await end(store, await claim_one(store), Done((message("again", lane="a"),)))
    assert (await claim_one(store)).primary.event == {"text": "again"}


async def test_emits_of_one_lane_keep_their_order(store: Store) -> None:
    await put(store)
    await end(
        store, await claim_one(store), Done(tuple(reply(str(n), lane="c1") for n in range(20)))
    )
    seen: list[str] = []
    while turns := await claim(store, queue="outbox"):
        seen.append(turns[0].primary.event["text"])
        await end(store, turns[0])
    assert seen == [str(n) for n in range(20)]


async def test_emits_of_several_turns_in_one_settle_keep_the_order_of_the_turns(
    store: Store,
) -> None:
    await store.put([message(message_id=f"m{n}") for n in range(5)])
    turns = await claim(store, limit=5)
    await store.settle([(turn, Done((reply(lane="c1"), reply(lane="c1")))) for turn in turns])
    seen: list[str | None] = []
    while found := await claim(store, queue="outbox"):
        seen.append(found[0].primary.message_id)
        await end(store, found[0])
    assert seen == [
        f"{turn.primary.message_id}/{position}" for turn in turns for position in (1, 2)
    ]


async def test_a_delayed_emit_waits_and_carries_no_lane(store: Store, clock: Clock) -> None:
    await put(store)
    due_at = clock.now + timedelta(minutes=5)
    await end(store, await claim_one(store), Done((reply(lane="c1", vt=due_at),)))
    assert await claim(store, queue="outbox") == []
    clock.tick(minutes=5)
    event = (await claim_one(store, queue="outbox")).primary
    assert (event.lane, event.claimed) == (None, (due_at,))


async def test_emits_of_a_collected_turn_derive_from_its_first(store: Store) -> None:
    first, _second = await put_lane(store, 2)
    await end(store, await claim_one(store, collect_limit=10), Done((reply(),)))
    [event] = await outbox(store)
    assert (event.parent_id, event.message_id) == (first, f"{first}/1")


async def test_an_emit_is_known_like_any_message(store: Store) -> None:
    await put(store, message_id="m1")
    await emit(store, reply())
    assert await store.put([reply(message_id="m1/1")]) == [None]


async def test_an_emit_that_cannot_be_stored_leaves_the_turn_as_it_was(store: Store) -> None:
    event_id = await put(store)
    turn = await claim_one(store)
    with pytest.raises(Exception):  # noqa: B017, PT011 - which error is the engine's own
        await store.settle([(turn, Done((reply(), reply(max_attempts="many"))))])
    assert await live(store, event_id) == turn.primary
    assert await claim_ids(store, queue="outbox") == []


async def test_an_emit_that_gets_a_suffix_keeps_its_place(store: Store) -> None:
    await put(store, queue="outbox", message_id="taken", target="other")
    event_id = await put(store)
    await end(
        store,
        await claim_one(store),
        Done((reply("one", message_id="taken", lane="c1"), reply("two", lane="c1"))),
    )
    first = await claim_one(store, queue="outbox")
    assert (first.primary.event, first.primary.message_id) == ({"text": "one"}, f"taken~{event_id}")


async def test_an_emit_is_stored_even_if_its_parent_has_the_name_that_it_would_get(
    store: Store,
) -> None:
    event_id = await put(store, message_id="m1")
    await drain(store)
    [again] = await store.replay([event_id])
    turn = await claim_one(store)
    assert turn.primary.message_id == f"m1~{again}"
    await end(
        store,
        turn,
        Done((message("first", message_id="m1", lane="a"), message("second", lane="a"))),
    )
    first = await claim_one(store)
    await end(store, first)
    second = await claim_one(store)
    assert [text_of(first.primary), text_of(second.primary)] == ["first", "second"]


async def test_an_emit_keeps_its_place_when_a_turn_beside_it_chose_the_same_id(
    store: Store,
) -> None:
    await store.put([message(), message()])
    turns = await claim(store, limit=2)
    emits = (reply("one", message_id="own", lane="c1"), reply("two", lane="c1"))
    await store.settle([(turn, Done(emits)) for turn in turns])
    seen: list[str] = []
    while found := await claim(store, queue="outbox"):
        seen.append(found[0].primary.event["text"])
        await end(store, found[0])
    assert seen == ["one", "two", "one", "two"]
