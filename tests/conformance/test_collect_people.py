"""Collecting stays within one conversation and one person, by claim and by gather."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.message import Payload
from holdfast.queue.event import NewEvent
from holdfast.queue.store import Store
from holdfast.routing.router import Address, message
from tests.conformance.steps import claim_ids, claim_one, end

LANE = "coder"


def message_of(
    sender: str, *, channel: str = "api", sender_id: str | None = None, **more: Any
) -> Payload:
    return message("hello", Address(channel=channel, sender=sender, sender_id=sender_id)) | more


def in_slack(user: str, thread: str = "1.0", ts: str = "2.0", team: str = "T1") -> Payload:
    return {
        "type": "app_mention",
        "team": team,
        "channel": "C1",
        "user": user,
        "ts": ts,
        "thread_ts": thread,
    }


def room_copy_of(sender: str, room: str = "dev", conversation: str | None = None) -> Payload:
    address = conversation or f"api:{sender}"
    return {
        "kind": "room",
        "channel": "api",
        "sender": sender,
        "conversation": address,
        "room": room,
    }


async def put_all(store: Store, *payloads: Payload, queue: str = "inbox") -> list[int]:
    ids = await store.put([NewEvent(event=payload, lane=LANE, queue=queue) for payload in payloads])
    return [id for id in ids if id is not None]


DIFFERENT = {
    "two people of one agent": (message_of("ann"), message_of("bob")),
    "an id and a name that read alike": (message_of("ann", sender_id="bob"), message_of("bob")),
    "one id on two channels": (
        message_of("ann", sender_id="u1"),
        message_of("ann", sender_id="u1", channel="web"),
    ),
    "two people in one Slack thread": (in_slack("U1"), in_slack("U2")),
    "two threads of one person": (in_slack("U1"), in_slack("U1", thread="9.0")),
    "one thread of two workspaces": (in_slack("U1"), in_slack("U1", team="T2")),
    "a room and its person's own conversation": (room_copy_of("ann"), message_of("ann")),
    "two rooms": (room_copy_of("ann"), room_copy_of("ann", room="ops")),
    "one room for two people": (room_copy_of("ann"), room_copy_of("bob")),
    "two people in a conversation of the same name": (
        message_of("ann", conversation="c"),
        message_of("bob", conversation="c"),
    ),
}
ALIKE = {
    "one person": (message_of("ann"), message_of("ann")),
    "one id under two names": (
        message_of("ann", sender_id="u1"),
        message_of("Ann B.", sender_id="u1"),
    ),
    "one person in one Slack thread": (in_slack("U1", ts="2.0"), in_slack("U1", ts="3.0")),
    "lines of one room": (
        room_copy_of("user", conversation="chatroom:dev"),
        room_copy_of("user", conversation="chatroom:dev"),
    ),
    "payloads that name nobody": ({"text": "a"}, {"text": "b"}),
}


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT.keys())
async def test_people_mixed_collecting_stays_within_one_conversation(
    store: Store, pair: tuple[Payload, Payload]
) -> None:
    first, second, third = await put_all(store, *pair, pair[0])
    for expected in (first, second, third):
        turn = await claim_one(store, collect_limit=100)
        assert turn.ids == [expected], "the order of the lane holds: nobody is passed over"
        await end(store, turn)


@pytest.mark.parametrize("pair", ALIKE.values(), ids=ALIKE.keys())
async def test_messages_of_one_person_in_one_conversation_are_one_turn(
    store: Store, pair: tuple[Payload, Payload]
) -> None:
    ids = await put_all(store, *pair)
    assert await claim_ids(store, collect_limit=100) == [ids]


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT.keys())
async def test_people_mixed_nothing_of_another_joins_a_held_turn(
    store: Store, pair: tuple[Payload, Payload]
) -> None:
    first, *_ = await put_all(store, *pair)
    turn = await claim_one(store)
    assert not await store.gather(turn, 100)
    assert turn.ids == [first]


async def test_outside_of_the_inbox_the_lane_alone_decides(store: Store) -> None:
    ids = await put_all(store, message_of("ann"), message_of("bob"), queue="memory")
    assert await claim_ids(store, collect_limit=100, queue="memory") == [ids]


@pytest.mark.parametrize("payload", [{"kind": 1, "sender": 2}, {"kind": None}], ids=str)
async def test_a_payload_of_any_shape_can_wait_behind_another(store: Store, payload: Any) -> None:
    first, second = await put_all(store, message_of("ann"), payload)
    assert await claim_ids(store, collect_limit=100) == [[first]]
    assert (await store.live(second)) is not None


async def test_messages_that_two_tokens_sent_are_never_in_one_turn(store: Store) -> None:
    """Each sees its own answers alone, and both may call themselves the same."""
    new = [
        NewEvent(event=message_of("API"), lane=LANE, sent_by=token)
        for token in ("ci", "ci", "cron", None)
    ]
    ids = await store.put(new)
    for expected in (ids[:2], ids[2:3], ids[3:]):
        turn = await claim_one(store, collect_limit=100)
        assert turn.ids == expected
        await end(store, turn)
    await store.put(new)
    turn = await claim_one(store)
    assert await store.gather(turn, 100)
    assert len(turn.events) == 2
