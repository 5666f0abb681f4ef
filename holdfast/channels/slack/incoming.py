"""Reads Slack events: which are messages for an agent, and from whom they are accepted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from holdfast.channels.edits import edit_message, withdraw_message
from holdfast.message import Payload
from holdfast.queue.event import NewEvent
from holdfast.queue.store import Store

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MESSAGE_SUBTYPES = (None, "file_share", "thread_broadcast", "bot_message")
"""Subtypes of messages that somebody wrote; others report edits, joins and the like."""
CHANGED, DELETED, TOMBSTONE = "message_changed", "message_deleted", "tombstone"
"""Subtypes that report an edit or a deletion; a thread keeps a tombstone of its first message."""
SLACKBOT = "USLACKBOT"
LONGEST_ID = 255
SENDER_TEAMS = ("user_team", "source_team", "team")
"""Keys that may hold the workspace of a message's sender."""
_MENTION = re.compile(r"<@([A-Z0-9]++)(?:\|[^<>]*+)?>[:,]?[ \t]*+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """The senders and channels whose messages agents take. An empty allow-list allows all."""

    allow_users: frozenset[str] = field(default_factory=frozenset)
    deny_users: frozenset[str] = field(default_factory=frozenset)
    allow_channels: frozenset[str] = field(default_factory=frozenset)
    deny_channels: frozenset[str] = field(default_factory=frozenset)
    bots: bool = False
    external: bool = False

    def allows(self, event: Payload) -> bool:
        """Return whether the sender may write in this channel."""
        user, channel = (
            str(event.get("user") or event.get("bot_id") or ""),
            str(event.get("channel")),
        )
        if not self.bots and is_bot(event):
            return False
        return _is_allowed(user, self.allow_users, self.deny_users) and _is_allowed(
            channel, self.allow_channels, self.deny_channels
        )


def _is_allowed(name: str, allowed: frozenset[str], denied: frozenset[str]) -> bool:
    return name not in denied and (not allowed or name in allowed)


@dataclass(frozen=True, slots=True)
class Bot:
    """The bot user of a workspace, as far as Slack describes it."""

    team: str
    user: str
    bot_id: str
    name: str = ""

    def is_author(self, event: Payload) -> bool:
        return event.get("user") == self.user or (
            bool(self.bot_id) and event.get("bot_id") == self.bot_id
        )

    def is_external(self, event: Payload, is_shared: bool) -> bool:
        """Return whether the sender belongs to another workspace, as in a shared channel.

        In a shared channel, a sender without a team counts as external."""
        teams = {str(event[name]) for name in SENDER_TEAMS if event.get(name)}
        return bool(self.team) and (teams != {self.team} if teams else is_shared)

    def is_addressed(self, event: Payload) -> bool:
        """Return whether the event is a mention or a direct message.

        A mention may also come as a plain message of its channel."""
        if event.get("type") == "app_mention":
            return True
        if event.get("type") != "message" or event.get("subtype") not in MESSAGE_SUBTYPES:
            return False
        direct = event.get("channel_type") == "im" or str(event.get("channel", "")).startswith("D")
        return direct or (bool(self.user) and f"<@{self.user}" in str(event.get("text") or ""))


def message_of(body: Payload, bot: Bot, permissions: Permissions) -> NewEvent | None:
    """Return the event to store, with the payload as Slack sent it; None if it is not for us."""
    event = body.get("event")
    if body.get("type") != "event_callback" or not isinstance(event, dict):
        return None
    is_shared = body.get("is_ext_shared_channel") is True
    if not _is_for_bot(event, bot) or not permissions.allows(event):
        return None
    if not permissions.external and bot.is_external(event, is_shared):
        return None
    team = event.get("team") or body.get("team_id")
    ids = (team, event["channel"], event["ts"], event.get("thread_ts"), event.get("user"))
    # Not an id of Slack. PostgreSQL could not index it, and Slack would send the event again.
    if any(len(str(id)) > LONGEST_ID for id in ids):
        return None
    message_id = message_id_of(team, event["channel"], event["ts"])
    event_ts = platform_time(event.get("event_ts"))
    return NewEvent(event=event, message_id=message_id, event_ts=event_ts)


def message_id_of(team: object, channel: object, ts: object) -> str:
    """Build the id from the message, since one message may come under several event ids."""
    return "_".join(str(part) for part in ("slack", team, channel, ts) if part)


async def apply_change(store: Store, body: Payload) -> None:
    """Apply an edit or a deletion to a message that no agent has claimed yet.

    Slack reports them for direct messages, and in channels to apps that read all messages."""
    event = body.get("event")
    if not isinstance(event, dict) or event.get("subtype") not in (CHANGED, DELETED):
        return
    changed = event.get("message") if event["subtype"] == CHANGED else event
    if not isinstance(changed, dict):
        return
    ts = changed.get("ts") if event["subtype"] == CHANGED else event.get("deleted_ts")
    team = changed.get("team") or event.get("team") or body.get("team_id")
    message_id = message_id_of(team, event.get("channel"), ts)
    if event["subtype"] == DELETED or changed.get("subtype") == TOMBSTONE:
        await withdraw_message(store, message_id)
    else:
        await edit_message(store, message_id, str(changed.get("text") or ""))


def is_bot(event: Payload) -> bool:
    """Return whether another bot wrote a message."""
    is_app = event.get("bot_id") or event.get("subtype") == "bot_message"
    return bool(is_app) or event.get("user") == SLACKBOT


def _is_for_bot(event: Payload, bot: Bot) -> bool:
    """Return whether an event is a message to the bot, and not one of its own."""
    is_message = bool(event.get("channel") and event.get("ts"))
    return is_message and not bot.is_author(event) and bot.is_addressed(event)


def platform_time(value: Any) -> datetime | None:
    """Convert Slack's seconds, exact to the microsecond. Returns None for an invalid time."""
    try:
        return EPOCH + timedelta(microseconds=int(Decimal(str(value)) * 1_000_000))
    except (InvalidOperation, OverflowError, ValueError):
        return None


def text_without_mention(bot: Bot, text: str) -> str:
    """Return the text without mentions of the bot."""
    pieces: list[str] = []
    at = 0
    for mention in _MENTION.finditer(text):
        if mention[1] == bot.user:
            # Remove the blanks around the mention, too, but leave one between words.
            pieces.append(text[at : mention.start()].rstrip(" \t") + " ")
            at = mention.end()
    return "".join([*pieces, text[at:]]).strip()
