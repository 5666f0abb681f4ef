"""Events: one durable row each, new, stored or finished."""

from __future__ import annotations

import os
import string
from dataclasses import dataclass
from datetime import datetime

from pydantic_core import from_json

from holdfast.errors import Unreadable
from holdfast.message import Payload, text_of

INBOX = "inbox"
OUTBOX = "outbox"
MEMORY = "memory"

UNREADABLE = "unreadable"
"""The kind of a payload that is shown in place of one that cannot be read."""

_ALPHABET = string.digits + string.ascii_lowercase
_LENGTH = 8
_POSSIBLE = len(_ALPHABET) ** _LENGTH


def new_id(prefix: str) -> str:
    """Return `prefix_` and eight random characters.

    The id is short enough to say aloud, so it may be taken; then the caller draws another one."""
    number, signs = int.from_bytes(os.urandom(8)) % _POSSIBLE, []
    for _ in range(_LENGTH):
        number, sign = divmod(number, len(_ALPHABET))
        signs.append(_ALPHABET[sign])
    return f"{prefix}_{''.join(signs)}"


# Not frozen: a POST creates three of these, and a frozen one takes three times as long.
@dataclass(slots=True, kw_only=True)
class NewEvent:
    """An event to store. Fields that are None come from the store or from the event's parent."""

    event: Payload
    queue: str = INBOX
    target: str = ""
    lane: str | None = None
    message_id: str | None = None
    event_ts: datetime | None = None
    vt: datetime | None = None
    max_attempts: int | None = None
    root_id: int | None = None
    routed_text: str | None = None
    """The text for the agent, if a prefix named it."""
    routed_team: str | None = None
    """The team by which the message was routed."""
    sent_by: str | None = None
    """Id of the token or person that sent it; emitted events inherit it.

    None for a bootstrap token or a channel."""


def payload_of(text: str) -> Payload | Unreadable:
    """Parse a stored payload. Returns an error for anything but a JSON object."""
    try:
        payload = from_json(text)
    except ValueError as error:
        return Unreadable(f"the payload cannot be read: {error}")
    if not isinstance(payload, dict):
        return Unreadable("the payload is not a JSON object")
    return (
        Unreadable("the payload could not be read")
        if payload.get("kind") == UNREADABLE
        else payload
    )


def payload_to_show(event: Event) -> Payload:
    """Return the payload for lists and logs; an unreadable one becomes a message that says so."""
    try:
        return event.event
    except Unreadable as error:
        return {"kind": UNREADABLE, "message": f"({error})"}


class _ParsedPayload:
    """Parses the payload of an event at the first read; later reads find it on the event.

    Like functools.cached_property, but without the lock that it takes up to Python 3.11."""

    def __get__(self, event: Event, owner: type[Event]) -> Payload:
        payload = payload_of(event.payload) if isinstance(event.payload, str) else event.payload
        if isinstance(payload, Unreadable):
            raise payload
        event.__dict__["event"] = payload
        return payload


# Not frozen: a claim of 500 creates 500 of these, and a frozen one takes twenty times as long.
@dataclass
class Event:
    """A stored event, as it was when it was read."""

    id: int
    queue: str
    target: str
    lane: str | None
    head: bool
    event_ts: datetime
    attempts: int
    vt: datetime
    claimed: tuple[datetime, ...]
    payload: str | Unreadable
    """The payload as JSON text, which is parsed only when it is read: settling a turn does not need
    it. An error if the event cannot be worked."""
    fence: int
    holder: str | None
    message_id: str | None
    max_attempts: int | None
    parent_id: int | None
    root_id: int | None
    hops: int
    state: Payload | None
    last_error: str | None
    error_class: str | None
    created_at: datetime
    updated_at: datetime
    sent_by: str | None
    routed_text: str | None
    """The text for the agent, if a prefix named it."""
    routed_team: str | None
    """The team by which the message was routed."""

    event = _ParsedPayload()
    """The payload as the platform sent it. Raises Unreadable if it is not a JSON object."""

    @property
    def text(self) -> str:
        """The text for the agent. Agents read it from `turn.events`; the queue itself does not."""
        return text_of(self)


@dataclass
class FinishedEvent(Event):
    """An event in history, with how and when it ended."""

    outcome: str
    finished_at: datetime
    traceback: str | None = None
    """Traceback of the last attempt of a dead letter."""
