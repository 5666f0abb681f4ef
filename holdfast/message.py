"""Reading a payload: channel, sender, text and conversation of a message, ours or as Slack sent it."""

from __future__ import annotations

import re
from typing import Any, Protocol

Payload = dict[str, Any]

USER = "USER"
"""The type of the memory subjects that are people."""

# Payloads of ours carry a tag, "kind"; one without it is an event as Slack sent it.
DEFAULT_WORKSPACE = "default"
ROOM = "room"
"""The kind of a message that is a copy of what was said in a team's room."""
PROFILE = "agent_profile"
"""Key of a response that holds the name and icon under which channels show its agent."""

# Release 0.4.0 stored the result of routing in the payload; since then it has columns.
ROUTED_TEXT = "routed_text"
ROUTED_TEAM = "routed_team"


class Message(Protocol):
    """An event, stored or new, as far as its text depends on more than the payload."""

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
    """Return the text for the agent: what routing left of it, else all of it but a leading mention."""
    routed = message.routed_text
    if routed is None:
        routed = message.event.get(ROUTED_TEXT)
    return text_before_routing(message.event) if routed is None else str(routed)


def team_of(message: Message) -> str | None:
    """Return the team by which a message was routed."""
    return message.routed_team or message.event.get(ROUTED_TEAM)


def text_before_routing(payload: Payload) -> str:
    """Return what was written. A mention in Slack begins with the bot's name, which is left out."""
    written = written_of(payload)
    return _MENTION.sub("", written, count=1) if payload.get("type") == "app_mention" else written


def written_of(payload: Payload) -> str:
    """What was written, with the prefix that named an agent."""
    return str(payload.get("message" if "kind" in payload else "text") or "")


def channel_of(payload: Payload) -> str:
    return str(payload.get("channel") or "") if "kind" in payload else "slack"


def sender_id_of(payload: Payload) -> str | None:
    """The id of the sender on the channel, None if only a name is known."""
    id_ = payload.get("sender_id" if "kind" in payload else "user")
    return None if id_ is None or id_ == "" else str(id_)


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
