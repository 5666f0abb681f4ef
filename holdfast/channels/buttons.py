"""Buttons under a response: pressing one sends a signal to the message whose turn waits for it.

A button carries only the id of its response and its number. The signal is read from the stored
response, so that nobody can send a signal that no response offered."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.channels.admission import Sender
from holdfast.channels.base import response_event
from holdfast.message import Payload, channel_of, conversation_of, own_workspace, subject_of
from holdfast.queue.event import Event, NewEvent
from holdfast.queue.store import Filter, Store
from holdfast.store.chain import find_message

BUTTONS = "buttons"
"""Key of a response's metadata that holds its buttons."""
MOST_BUTTONS = 8
LONGEST_LABEL = 60
_ID = re.compile(r"hf:(\d{1,18}):(\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """One button, and the signal that it sends."""

    label: str
    signal: str
    value: Any = None
    message_id: str
    """The message that gets the signal."""


def question(
    message: Event,
    text: str,
    signal: str,
    choices: Mapping[str, Any] | Sequence[str],
    *,
    name: str | None = None,
) -> NewEvent:
    """Return a response with a button for each choice, for the sender of a message.

    The turn of the message gets the chosen value from `turn.signal(signal)`. Storing the question
    twice sends it once: its id is made of the message and the signal. Several questions with the
    same signal need a `name` each, which replaces the signal in the id."""
    given = choices if isinstance(choices, Mapping) else {label: label for label in choices}
    buttons = [{"label": label, "signal": signal, "value": value} for label, value in given.items()]
    payload = message.event
    message_id = message.message_id or str(message.id)
    answer = {
        "kind": "response",
        "channel": channel_of(payload),
        "conversation": conversation_of(payload),
        "sender": payload.get("sender"),
        "sender_id": payload.get("sender_id"),
        "message": text,
        "message_id": message_id,
        "metadata": {BUTTONS: buttons},
        **own_workspace(payload),
    }
    return replace(response_event(answer), message_id=f"{message_id}/{name or signal}")


def buttons_of(response: Payload) -> list[Button]:
    """Return the buttons of a response; none if they are malformed."""
    metadata = response.get("metadata")
    listed = metadata.get(BUTTONS) if isinstance(metadata, dict) else None
    if not isinstance(listed, list):
        return []
    found = [_button(one, response) for one in listed[:MOST_BUTTONS]]
    return [button for button in found if button is not None]


def _button(listed: Any, response: Payload) -> Button | None:
    if not isinstance(listed, dict):
        return None
    label, signal = (str(listed.get(key) or "").strip() for key in ("label", "signal"))
    message_id = str(listed.get("message_id") or response.get("message_id") or "")
    if not (label and signal and message_id):
        return None
    short = label[:LONGEST_LABEL]
    return Button(label=short, signal=signal, value=listed.get("value"), message_id=message_id)


def button_id(response: Event, number: int) -> str:
    """Return the data of a button, short enough for every platform."""
    return f"hf:{response.id}:{number}"


async def press(
    store: Store,
    id: str,
    channel: str,
    sender: Sender,
    is_here: Callable[[Payload], bool] | None = None,
) -> Button | None:
    """Send the signal of a button that somebody pressed, record who did, and return the button.

    `is_here` tells whether a response was sent where the button was pressed; by default, it
    compares the conversations. Returns None if there is no such button here, or its message has
    ended."""
    found = _ID.fullmatch(id)
    response = None if found is None else await _response(store, int(found[1]))
    if found is None or response is None or channel_of(response) != channel:
        return None
    is_here = is_here or (lambda payload: conversation_of(payload) == sender.conversation)
    buttons, number = buttons_of(response), int(found[2])
    if number >= len(buttons) or not is_here(response):
        return None
    button = buttons[number]
    message = await find_message(store, button.message_id)
    if message is None:
        return None
    actor = await _actor(store, channel, sender)
    is_taken = await store.signal(message.id, button.signal, button.value, actor=actor)
    return button if is_taken else None


async def _actor(store: Store, channel: str, sender: Sender) -> str:
    """Return a person's name for the audit log, which holds no personal data."""
    person = {"kind": "message", "channel": channel, "sender_id": sender.id}
    return f"{channel}:{await store.pseudonym(subject_of(person))}"


async def _response(store: Store, event_id: int) -> Payload | None:
    """Return the payload of a response, delivered or being delivered."""
    live = await store.live(event_id)
    if live is not None:
        return live.event
    finished = await store.finished(Filter(ids=[event_id], queue="outbox"), limit=1)
    return finished[0].event if finished else None
