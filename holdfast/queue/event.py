"""An event is one durable row; a turn is what a consumer holds of a lane while it works."""

from __future__ import annotations

import secrets
import string
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import from_json

if TYPE_CHECKING:
    from holdfast.channels.base import Line

from holdfast.errors import Unreadable
from holdfast.memory import NO_MEMORY, Memory
from holdfast.message import (
    ROOM,
    ROUTED_TEAM,
    ROUTED_TEXT,
    Payload,
    channel_of,
    conversation_of,
    sender_id_of,
    sender_of,
    team_of,
    text_of,
)
from holdfast.queue.record import Record

INBOX = "inbox"
OUTBOX = "outbox"
MEMORY = "memory"

UNREADABLE = "unreadable"
"""The kind of a payload that is shown in place of one that cannot be read."""

_ALPHABET = string.digits + string.ascii_lowercase
_LENGTH = 8
_POSSIBLE = len(_ALPHABET) ** _LENGTH


def new_id(prefix: str) -> str:
    """prefix_ and eight random characters; short enough to say aloud, so a collision must be met by drawing again."""
    number, signs = secrets.randbelow(_POSSIBLE), []
    for _ in range(_LENGTH):
        number, sign = divmod(number, len(_ALPHABET))
        signs.append(_ALPHABET[sign])
    return f"{prefix}_{''.join(signs)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to be stored. What is left out is decided by the store or by the event's parent; a root is itself."""

    event: Payload
    queue: str = INBOX
    target: str = ""
    lane: str | None = None
    message_id: str | None = None
    event_ts: datetime | None = None
    vt: datetime | None = None
    max_attempts: int | None = None
    root_id: int | None = None
    sent_by: str | None = None
    """Id of the token or person that sent it; what a turn emits inherits it. None: bootstrap token or channel."""


def routed(
    payload: Payload | Unreadable, text: str | None, team: str | None
) -> Payload | Unreadable:
    """Join a stored payload with its routed text and team; events of release 0.4.0 hold them already."""
    if isinstance(payload, Unreadable) or (text is None and team is None):
        return payload
    if text is not None:
        payload[ROUTED_TEXT] = text
    if team is not None:
        payload[ROUTED_TEAM] = team
    return payload


class _Parsed:
    """A payload, kept as text until it is first read: settling a turn does not read it.

    Reading one that is no JSON object raises Unreadable. So does a payload that the store replaced by that error."""

    def __get__(self, row: Any, owner: type) -> Payload:
        payload = row._payload
        if isinstance(payload, str):
            payload = row._payload = routed(payload_of(payload), row.routed_text, row.routed_team)
        if isinstance(payload, Unreadable):
            raise payload
        return cast(Payload, payload)

    def __set__(self, row: Any, payload: Payload | str | Unreadable) -> None:
        row._payload = payload


def payload_of(text: str) -> Payload | Unreadable:
    """Parse a stored payload; anything but a JSON object is returned as an error."""
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


def origin_id_of(event: Event) -> str | None:
    """The id of the message that a person sent, also for what agents made of it."""
    return event.event.get("origin_id") or event.message_id


def payload_to_show(event: Event) -> Payload:
    """The payload for lists and logs; one that cannot be read is replaced by a message that says so."""
    try:
        return event.event
    except Unreadable as error:
        return {"kind": UNREADABLE, "message": f"({error})"}


# Not frozen: a claim of 500 makes 500 of these, and a frozen one takes twenty times as long to make.
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
    event: Payload
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
    """The text for the agent, where a prefix named it."""
    routed_team: str | None
    """The team by which a message was routed."""

    @property
    def text(self) -> str:
        """What a message says to its agent."""
        return text_of(self.event)


# After the class is made, or it would count as the field's default.
setattr(Event, "event", _Parsed())  # noqa: B010


@dataclass
class FinishedEvent(Event):
    """An event in history, with how and when it ended."""

    outcome: str
    finished_at: datetime
    traceback: str | None = None
    """Where its last attempt failed, of a dead letter."""


@dataclass(slots=True, unsafe_hash=True)
class Turn:
    """One event, or several of one lane, under one lease. The fence tells this holder from all others."""

    queue: str
    fence: int
    events: tuple[Event, ...] = field(compare=False)
    agent: str = field(default="", compare=False)
    emitted: tuple[NewEvent, ...] = field(default=(), compare=False)
    records: tuple[Record, ...] = field(default=(), compare=False)
    """What is kept beside the events, in the transaction that ends this turn."""
    memory: Memory = field(default=NO_MEMORY, compare=False)
    """The agent's memory; without `memory=True` every use of it is refused."""
    metadata: Payload = field(default_factory=dict, compare=False)
    """What hooks and the agent add; it goes with the reply."""
    on_progress: Callable[[], None] | None = field(default=None, compare=False)
    reader: Callable[[], Awaitable[Sequence[Line]]] | None = field(default=None, compare=False)
    fetcher: Callable[[], Awaitable[Sequence[Path]]] | None = field(default=None, compare=False)
    historian: Callable[[Turn, int], Awaitable[Sequence[Line]]] | None = field(
        default=None, compare=False
    )

    @property
    def primary(self) -> Event:
        return self.events[0]

    @property
    def ids(self) -> list[int]:
        return [event.id for event in self.events]

    @property
    def event(self) -> Payload:
        return self.primary.event

    @property
    def is_room_batch(self) -> bool:
        """Whether it is several copies of what was said in a room, worked together."""
        return len(self.events) > 1 and all(
            event.event.get("kind") == ROOM for event in self.events
        )

    @property
    def text(self) -> str:
        return (
            "\n\n".join(event.text for event in self.events)
            if self.is_room_batch
            else self.primary.text
        )

    @property
    def team(self) -> str | None:
        """The team by which the message was routed."""
        return team_of(self.event)

    @property
    def from_agent(self) -> str | None:
        """The agent that handed the message on, None where a person wrote it."""
        return self.event.get("from_agent")

    @property
    def message_id(self) -> str | None:
        first = self.primary.message_id
        return f"chatroom_batch_{first or self.primary.id}" if self.is_room_batch else first

    @property
    def answers(self) -> list[str]:
        """The ids of all messages that a reply to this turn answers, as their senders know them."""
        ids = [event.event.get("origin_ids") or [origin_id_of(event)] for event in self.events]
        return list(dict.fromkeys(str(id_) for own in ids for id_ in own if id_ is not None))

    @property
    def channel(self) -> str:
        return channel_of(self.event)

    @property
    def conversation(self) -> str:
        return conversation_of(self.event)

    @property
    def sender(self) -> str:
        return sender_of(self.event)

    @property
    def sender_id(self) -> str | None:
        """The sender's id on the channel; None if the channel gave only a name."""
        return sender_id_of(self.event)

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self.primary.attempts

    def emit(self, new: NewEvent) -> None:
        """Another event, stored in the transaction that ends this turn, or not at all."""
        self.emitted += (new,)

    async def thread(self) -> Sequence[Line]:
        """The conversation so far, oldest first, from the platform itself; empty where it cannot be asked."""
        return () if self.reader is None else await self.reader()

    async def history(self, limit: int = 50) -> Sequence[Line]:
        """The newest lines that this agent's history keeps of the conversation, oldest first, without this turn's own.

        At most `limit` lines, and never more than 1,000."""
        return () if self.historian is None else await self.historian(self, limit)

    async def files(self) -> Sequence[Path]:
        """Files that came with the messages, fetched from the platform into the folder of their conversation."""
        return () if self.fetcher is None else await self.fetcher()

    def progress(self) -> None:
        """The work goes on: an agent's idle time limit begins anew. From any thread."""
        if self.on_progress is not None:
            self.on_progress()
