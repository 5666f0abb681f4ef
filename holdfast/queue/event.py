"""An event is one durable row; a turn is what a consumer holds of a lane while it works."""

from __future__ import annotations

import re
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
from holdfast.memory.observation import USER, Observation

INBOX = "inbox"
OUTBOX = "outbox"
MEMORY = "memory"

RESPONSE_ATTEMPTS = 10

Payload = dict[str, Any]

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


def response_event(payload: Payload) -> NewEvent:
    """A response for its channel, in order per conversation."""
    channel, conversation = payload["channel"], payload.get("conversation")
    lane = f"{channel}/{conversation}" if conversation else None
    return NewEvent(
        event=payload, queue=OUTBOX, target=channel, lane=lane, max_attempts=RESPONSE_ATTEMPTS
    )


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


# Payloads of ours carry a tag, "kind"; one without it is an event as Slack sent it. What routing found when the
# message was stored stands beside, in keys that no platform uses.
UNREADABLE = "unreadable"
"""The kind of a payload that is shown in place of one that cannot be read."""
DEFAULT_WORKSPACE = "default"
ROOM = "room"
"""The kind of a message that is a copy of what was said in a team's room."""
ROUTED_TEXT = "routed_text"
ROUTED_TEAM = "routed_team"


def is_routed(payload: Payload) -> bool:
    """Whether routing added a text or a team to the payload."""
    return ROUTED_TEXT in payload or ROUTED_TEAM in payload


def unrouted(payload: Payload) -> tuple[Payload, str | None, str | None]:
    """Part a payload as its platform sent it, to be stored, from the routed text and team, which have columns."""
    if not is_routed(payload):
        return payload, None, None
    text, team = payload.get(ROUTED_TEXT), payload.get(ROUTED_TEAM)
    sent = {key: value for key, value in payload.items() if key not in (ROUTED_TEXT, ROUTED_TEAM)}
    return sent, None if text is None else str(text), None if team is None else str(team)


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


_MENTION = re.compile(r"\A\s*<@[A-Z0-9]+(?:\|[^<>]*)?>[:,]?\s*")


def text_of(payload: Payload) -> str:
    """What is meant for the agent; a mention in Slack begins with the name of the bot, which is not part of it."""
    text = payload.get(ROUTED_TEXT)
    if text is not None:
        return str(text)
    written = written_of(payload)
    return _MENTION.sub("", written, count=1) if payload.get("type") == "app_mention" else written


def written_of(payload: Payload) -> str:
    """What was written, with the prefix that named an agent."""
    return str(payload.get("message" if "kind" in payload else "text") or "")


def team_of(payload: Payload) -> str | None:
    """The team by which a message was routed."""
    return payload.get(ROUTED_TEAM)


def with_text(payload: Payload, text: str) -> Payload:
    """The same payload with another text for the agent; what was written stays."""
    return payload | {ROUTED_TEXT: text}


def channel_of(payload: Payload) -> str:
    return str(payload.get("channel") or "") if "kind" in payload else "slack"


def sender_id_of(payload: Payload) -> str | None:
    """The id of the sender on the channel, None if only a name is known."""
    id_ = payload.get("sender_id" if "kind" in payload else "user")
    return None if id_ is None or id_ == "" else str(id_)


def origin_id_of(event: Event) -> str | None:
    """The id of the message that a person sent, also for what agents made of it."""
    return event.event.get("origin_id") or event.message_id


def sender_of(payload: Payload) -> str:
    return str(payload.get("sender" if "kind" in payload else "user") or "")


def conversation_of(payload: Payload) -> str:
    if "kind" in payload:
        return str(payload.get("conversation") or "")
    thread = payload.get("thread_ts") or payload.get("ts")
    return ":".join(
        [
            str(part)
            for part in ("slack", payload.get("team"), payload.get("channel"), thread)
            if part
        ]
    )


def collect_key(payload: object) -> tuple[str | None, ...]:
    """The conversation and the person of a message; only messages with equal keys may share a turn.

    agent.collect_key in SQL says the same. A sender without an id is known by name, which never equals an id."""
    if not isinstance(payload, dict):
        return ()

    def part(*names: str) -> str | None:
        values = (payload.get(name) for name in names)
        return next((str(value) for value in values if value is not None and value != ""), None)

    if "kind" not in payload:
        return (
            "slack",
            part("team"),
            part("channel"),
            part("thread_ts", "ts"),
            part("user", "bot_id"),
        )
    person = part("sender_id")
    name = None if person else part("sender")
    return part("kind"), part("channel"), part("conversation"), part("room"), person, name


def may_share_turn(queue: str, one: object, other: object) -> bool:
    """Whether a turn may collect both payloads. In other queues than the inbox the lane alone decides."""
    return queue != INBOX or collect_key(one) == collect_key(other)


def workspace_of(payload: Payload) -> str:
    """The workspace of a message: Slack's, else the one that all others share."""
    return str(payload.get("workspace" if "kind" in payload else "team") or DEFAULT_WORKSPACE)


def own_workspace(payload: Payload) -> Payload:
    """The workspace as what comes of a message carries it, if it is not the one that all share."""
    workspace = workspace_of(payload)
    return {} if workspace == DEFAULT_WORKSPACE else {"workspace": workspace}


def person_of(payload: Payload) -> str:
    """The identity of the person behind a payload, `channel:id:…` or `channel:name:…`; '' if nobody is known.

    It carries the channel, and a name never equals an id: only `holdfast people link` makes two identities one."""
    channel, id_, name = (
        channel_of(payload).replace(":", "_"),
        sender_id_of(payload),
        sender_of(payload),
    )
    if id_ is not None and id_.strip():
        return f"{channel}:id:{id_}"
    return f"{channel}:name:{name}" if name.strip() else ""


def subject_of(payload: Payload) -> str:
    """The memory subject of the person behind a payload; '' if nobody is known.

    It is stored with all that is kept of a message, so that forgetting a person finds it.
    agent.subject_of says the same in SQL, and a trigger on SQLite."""
    person = person_of(payload)
    return f"{workspace_of(payload)}:{USER}:{person}" if person else ""


# Not frozen: every turn makes one or two of these.
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
    """Names the line in the copies that members get of it."""
    id: int | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """What happened, for whoever watches: frames, each with its `type`; one that has no `timestamp` gets its row's."""

    frames: tuple[Payload, ...]


Record = AgentMessage | ChatMessage | Activity | Observation
