"""Reading a payload: channel, sender, text and conversation of a message."""

from __future__ import annotations

import re
from typing import Any, Protocol

Payload = dict[str, Any]

USER = "USER"
"""The type of the memory subjects that are people."""

# Our own payloads carry a tag, "kind". A payload without it is an event as Slack sent it.
DEFAULT_WORKSPACE = "default"
ROOM = "room"
"""The kind of a message that is a copy of a line in a team's room."""
PROFILE = "agent_profile"
"""Key of a response that holds the name and icon under which channels show its agent."""
SCHEDULE = "schedule"
"""The channel of scheduled messages whose answers stay in history. Also the key of a payload that
holds the id of its schedule, whichever channel gets the answer."""
PREVIEW = "preview"
"""Key of a response that locates the preview of the growing answer, which the response replaces."""

# Release 0.4.0 stored the result of routing in the payload; since then it has columns.
ROUTED_TEXT = "routed_text"
ROUTED_TEAM = "routed_team"


class Message(Protocol):
    """The fields of a stored or new event, beside the payload, on which its text depends."""

    @property
    def event(self) -> Payload:
        """The payload as the platform sent it."""

    @property
    def routed_text(self) -> str | None:
        """The text for the agent, if a prefix named it."""

    @property
    def routed_team(self) -> str | None:
        """The team by which the message was routed."""


_MENTION = re.compile(r"\A\s*<@[A-Z0-9]+(?:\|[^<>]*)?>[:,]?\s*")


def text_of(message: Message) -> str:
    """Return the text for the agent: without a prefix that named it and without a mention."""
    routed = message.routed_text
    if routed is None:
        routed = message.event.get(ROUTED_TEXT)
    return text_before_routing(message.event) if routed is None else str(routed)


def team_of(message: Message) -> str | None:
    """Return the team by which a message was routed."""
    return message.routed_team or message.event.get(ROUTED_TEAM)


def text_before_routing(payload: Payload) -> str:
    """Return the text, with the prefix that named an agent, but without a leading Slack mention."""
    written = written_of(payload)
    return _MENTION.sub("", written, count=1) if payload.get("type") == "app_mention" else written


def written_of(payload: Payload) -> str:
    """Return the text as its sender wrote it, with the prefix that named an agent."""
    return str(payload.get("message" if "kind" in payload else "text") or "")


def channel_of(payload: Payload) -> str:
    """Return the name of the channel by which a message came."""
    return str(payload.get("channel") or "") if "kind" in payload else "slack"


def sender_id_of(payload: Payload) -> str | None:
    """Return the sender's id on the channel, None if only a name is known."""
    id_ = payload.get("sender_id" if "kind" in payload else "user")
    return None if id_ is None or id_ == "" else str(id_)


def sender_of(payload: Payload) -> str:
    """Return the sender's name; on Slack their id."""
    return str(payload.get("sender" if "kind" in payload else "user") or "")


def conversation_of(payload: Payload) -> str:
    """Return the conversation: a chat, a channel or a thread; '' if there is none."""
    if "kind" in payload:
        return str(payload.get("conversation") or "")
    thread = payload.get("thread_ts") or payload.get("ts")
    parts = ("slack", payload.get("team"), payload.get("channel"), thread)
    return ":".join(map(str, filter(None, parts)))


def collect_key(payload: object) -> tuple[str | None, ...]:
    """Return conversation and person of a message. Only messages with equal keys join one turn.

    agent.collect_key does the same in SQL. A sender without an id is known by name, which never
    equals an id."""
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


def workspace_of(payload: Payload) -> str:
    """Return the workspace of a message: Slack's own, else the default one."""
    return str(payload.get("workspace" if "kind" in payload else "team") or DEFAULT_WORKSPACE)


def own_workspace(payload: Payload) -> Payload:
    """Return the workspace as a field for derived messages; {} for the default one."""
    workspace = workspace_of(payload)
    return {} if workspace == DEFAULT_WORKSPACE else {"workspace": workspace}


def person_of(payload: Payload) -> str:
    """Return the sender's identity, `channel:id:…` or `channel:name:…`; '' if nobody is known.

    It names the channel, and a name never equals an id: only `holdfast people link` makes two
    identities one person."""
    channel, id_, name = (
        channel_of(payload).replace(":", "_"),
        sender_id_of(payload),
        sender_of(payload),
    )
    if id_ is not None and id_.strip():
        return f"{channel}:id:{id_}"
    return f"{channel}:name:{name}" if name.strip() else ""


def subject_of(payload: Payload) -> str:
    """Return the memory subject of the sender; '' if nobody is known.

    Every row derived from a message stores it, so that forgetting a person finds all their rows.
    agent.subject_of does the same on PostgreSQL, and a trigger on SQLite."""
    person = person_of(payload)
    return f"{workspace_of(payload)}:{USER}:{person}" if person else ""
