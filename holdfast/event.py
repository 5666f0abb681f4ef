"""An event is one durable row; a turn is what a consumer holds of a lane while it works."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

INBOX = "inbox"
OUTBOX = "outbox"
MEMORY = "memory"

Payload = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to be stored. What is left out is decided by the store or by the event's parent."""

    event: Payload
    queue: str = INBOX
    target: str = ""
    lane: str | None = None
    message_id: str | None = None
    event_ts: datetime | None = None
    vt: datetime | None = None
    max_attempts: int | None = None


# Not frozen: a claim of 500 makes 500 of these, and a frozen one takes twenty times as long to make.
@dataclass(slots=True)
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


@dataclass(slots=True)
class FinishedEvent(Event):
    """An event in history, with how and when it ended."""

    outcome: str
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class Turn:
    """One event, or several of one lane, under one lease. The fence tells this holder from all others."""

    queue: str
    fence: int
    events: tuple[Event, ...] = field(compare=False)

    @property
    def primary(self) -> Event:
        return self.events[0]

    @property
    def ids(self) -> list[int]:
        return [event.id for event in self.events]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMessage:
    """A line of an agent's conversation history; append-only."""

    agent_id: str
    role: str
    channel: str
    sender: str
    message_id: str
    content: str
    id: int | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """A line of a team's room; append-only."""

    team_id: str
    from_agent: str
    message: str
    id: int | None = None
    created_at: datetime | None = None


Record = AgentMessage | ChatMessage
