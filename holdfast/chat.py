"""Rows of chats that are kept beside the events: lines of agents, of rooms, files, versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from holdfast.queue.pages import Page, PageOptions
from holdfast.queue.record import Record
from holdfast.queue.store import Store, Transaction

TITLE_LENGTH = 80


# Not frozen: every turn creates one or two of these.
@dataclass(slots=True, kw_only=True)
class AgentMessage(Record):
    """A line of an agent's conversation history; append-only."""

    agent_id: str
    role: str
    channel: str
    sender: str
    message_id: str
    content: str
    conversation: str = ""
    subject: str = ""
    """The person who wrote the message, or whom the line answers."""
    origin: str = ""
    """The person's message that led to this line; '' if that is the line itself. Not read back."""
    event_id: int | None = None
    """The event of a user's line, from which `id` derives. Not read back."""
    id: int | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage(Record):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NewConversation(Record):
    """A conversation, as described by a message that is sent to it.

    Adds it to the list of conversations, or moves it to the top. Its first title stays."""

    conversation: str
    owner: str | None
    channel: str
    sender: str
    subject: str
    text: str

    @property
    def title(self) -> str:
        """The beginning of the text, on one line."""
        line = " ".join(self.text[: 4 * TITLE_LENGTH].split())
        return line if len(line) <= TITLE_LENGTH else f"{line[: TITLE_LENGTH - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion(Record):
    """A message that replaces an earlier one, which its sender edited or asked once more.

    Lines of the earlier versions leave the list of the conversation and the agents' history."""

    message_id: str
    original: str
    """The first version."""
    conversation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SentFiles(Record):
    """Uploaded files that a message carries. Only files of their owner that were not sent count."""

    ids: Sequence[str]
    owner: str | None
    message_id: str
    conversation: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFile(Record):
    """A file that an agent sent with its answer to a message."""

    id: str
    owner: str | None
    name: str
    type: str
    size: int
    path: str
    """Where it is, below the files root."""
    agent: str
    message_id: str
    conversation: str
    subject: str


class LineOptions(PageOptions, total=False):
    """Options of the list of an agent's history."""

    conversation: str | None
    waiting: bool


class ChatStore(Store, Protocol):
    """A store that keeps the lines of agents and rooms, too."""

    async def say(self, line: ChatMessage, *, tx: Transaction | None = None) -> int:
        """Append a line to a team's room. Returns its id."""

    async def agent_messages(
        self,
        agent_id: str,
        *,
        conversation: str | None = None,
        waiting: bool = True,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[AgentMessage]:
        """List an agent's history, of one conversation or of all, newest first.

        A message gets its line when it is received, and keeps it if it becomes a dead letter.
        `waiting=False` leaves out messages that wait or are being worked on."""

    async def chat_messages(
        self,
        team_id: str,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[ChatMessage]:
        """List the lines of a team's room, newest first."""
