"""What of Slack's events is a message for an agent, and under which id, time and conversation it is stored."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from holdfast.message import Payload
from holdfast.queue.event import NewEvent

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SAID = (None, "file_share", "thread_broadcast", "bot_message")
"""Subtypes under which somebody says something; the others tell of edits, joins and the like."""
SLACKBOT = "USLACKBOT"
SENDER_TEAMS = ("user_team", "source_team", "team")
"""Where Slack says to which workspace the sender of a message belongs."""
_MENTION = re.compile(r"<@([A-Z0-9]++)(?:\|[^<>]*+)?>[:,]?[ \t]*+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """Who may speak to the agents and where; an empty list of the allowed allows all."""

    allow_users: frozenset[str] = field(default_factory=frozenset)
    deny_users: frozenset[str] = field(default_factory=frozenset)
    allow_channels: frozenset[str] = field(default_factory=frozenset)
    deny_channels: frozenset[str] = field(default_factory=frozenset)
    bots: bool = False
    external: bool = False

    def admit(self, event: Payload) -> bool:
        user, channel = (
            str(event.get("user") or event.get("bot_id") or ""),
            str(event.get("channel")),
        )
        if not self.bots and (
            event.get("bot_id") or event.get("subtype") == "bot_message" or user == SLACKBOT
        ):
            return False
        return _passes(user, self.allow_users, self.deny_users) and _passes(
            channel, self.allow_channels, self.deny_channels
        )


def _passes(name: str, allowed: frozenset[str], denied: frozenset[str]) -> bool:
    return name not in denied and (not allowed or name in allowed)


@dataclass(frozen=True, slots=True)
class Bot:
    """Who we are in a workspace, as far as Slack says."""

    team: str
    user: str
    bot_id: str
    name: str = ""

    def is_author(self, event: Payload) -> bool:
        return event.get("user") == self.user or (
            bool(self.bot_id) and event.get("bot_id") == self.bot_id
        )

    def is_external(self, event: Payload, is_shared: bool) -> bool:
        """Whether somebody of another workspace speaks, as in a channel shared with another company.

        In a shared channel, a sender without a team counts as one of the others."""
        teams = {str(event[name]) for name in SENDER_TEAMS if event.get(name)}
        return bool(self.team) and (teams != {self.team} if teams else is_shared)

    def is_addressed(self, event: Payload) -> bool:
        """A mention, also where it comes as a plain message of its channel, or a direct message."""
        if event.get("type") == "app_mention":
            return True
        if event.get("type") != "message" or event.get("subtype") not in SAID:
            return False
        direct = event.get("channel_type") == "im" or str(event.get("channel", "")).startswith("D")
        return direct or (bool(self.user) and f"<@{self.user}" in str(event.get("text") or ""))


def message_of(body: Payload, bot: Bot, doors: Doors) -> NewEvent | None:
    """The event to store, its payload as Slack sent it; None where it is nobody's."""
    event = body.get("event")
    if body.get("type") != "event_callback" or not isinstance(event, dict):
        return None
    if not (event.get("channel") and event.get("ts")) or bot.is_author(event):
        return None
    if not bot.is_addressed(event) or not doors.admit(event):
        return None
    if not doors.external and bot.is_external(event, body.get("is_ext_shared_channel") is True):
        return None
    team = event.get("team") or body.get("team_id")
    return NewEvent(
        event=event,
        # From the message and not from the event: one message may come under several event ids.
        message_id="_".join(
            str(part) for part in ("slack", team, event["channel"], event["ts"]) if part
        ),
        event_ts=platform_time(event.get("event_ts")),
    )


def platform_time(value: Any) -> datetime | None:
    """Slack's seconds, exact to the microsecond; None where it is no time."""
    try:
        return EPOCH + timedelta(microseconds=int(Decimal(str(value)) * 1_000_000))
    except (InvalidOperation, OverflowError, ValueError):
        return None


def text_for(bot: Bot, text: str) -> str:
    """Return what was said to the bot, without its name."""
    pieces: list[str] = []
    at = 0
    for mention in _MENTION.finditer(text):
        if mention[1] == bot.user:
            # Blanks around the name go with it; one is left between the words on both sides.
            pieces.append(text[at : mention.start()].rstrip(" \t") + " ")
            at = mention.end()
    return "".join([*pieces, text[at:]]).strip()
