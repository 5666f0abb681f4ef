"""Edits and deletions of messages that no agent has claimed yet."""

from __future__ import annotations

from typing import Any

from holdfast.channels.edits import edit_message, withdraw_message
from holdfast.queue.event import NewEvent
from holdfast.queue.store import Store
from tests.conformance.steps import claim, claim_one, end


def new_message(text: str, **fields: Any) -> NewEvent:
    payload = {"kind": "message", "channel": "chat", "sender": "Ada", "message": text}
    return NewEvent(event=payload, message_id="chat_1", **fields)


async def test_an_edited_message_reaches_its_agent_with_the_new_text(store: Store) -> None:
    await store.put([new_message("helo")])
    assert await edit_message(store, "chat_1", "hello")
    turn = await claim_one(store)
    assert (turn.primary.text, turn.primary.event["sender"]) == ("hello", "Ada")
    assert not await edit_message(store, "chat_1", "too late")
    await end(store, turn)
    assert not await edit_message(store, "chat_1", "too late")
    assert not await edit_message(store, "chat_2", "unknown")


async def test_an_edit_keeps_the_prefix_that_named_the_agent_out_of_the_text(store: Store) -> None:
    await store.put([new_message("@coder helo", routed_text="helo")])
    assert await edit_message(store, "chat_1", "@coder hello")
    assert (await claim_one(store)).primary.text == "hello"


async def test_an_edit_that_names_another_agent_stays_with_the_first(store: Store) -> None:
    await store.put([new_message("@coder helo", routed_text="helo")])
    assert await edit_message(store, "chat_1", "@writer hello")
    assert (await claim_one(store)).primary.text == "@writer hello"


async def test_a_deleted_message_is_not_answered(store: Store) -> None:
    await store.put([new_message("hello")])
    assert await withdraw_message(store, "chat_1")
    assert await claim(store) == []
    assert not await withdraw_message(store, "chat_1")
