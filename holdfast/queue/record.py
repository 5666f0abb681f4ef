"""Rows that are kept beside the events, in the transaction that stores or settles them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from holdfast.message import Payload

if TYPE_CHECKING:
    from holdfast.memory.observation import Observation


# Not frozen: every turn creates one or two of these.
@dataclass(slots=True, kw_only=True)
class AgentMessage:
    """A line of an agent's conversation history; append-only."""

    agent_id: str
    role: str
    channel: str
    sender: str
    message_id: str
    content: str
    conversation: str = ""
    subject: str = ""
    """The person whose message it is, or answers."""
    id: int | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """A line of a team's room; append-only."""

    team_id: str
    from_agent: str
    message: str
    subject: str = ""
    """The person whose message led to it."""
    key: str = ""
    """Id of the line, which the copies for members carry."""
    id: int | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """Frames for the event stream, each with its `type`.

    A frame without a `timestamp` gets that of its row."""

    frames: tuple[Payload, ...]


Record: TypeAlias = "AgentMessage | ChatMessage | Activity | Observation"
