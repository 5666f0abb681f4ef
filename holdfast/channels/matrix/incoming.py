"""Reads Matrix events: which are messages, whom they address, and the ids of a conversation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.channels.gap import GapMessage, find_answered
from holdfast.message import Payload
from holdfast.queue.event import NewEvent

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CHANNEL = "matrix"
MEDIA_TYPES = ("m.file", "m.image", "m.audio", "m.video")
TEXT_TYPES = ("m.text", "m.emote")
"""Types of messages that people write; m.notice is that of bots, and is ignored."""
MATRIX_TO = "https://matrix.to/#/"
LONGEST_NAME = 100
"""Characters of a display name that is looked for in a text."""

_QUOTE = re.compile(r"\A(?:> [^\n]*+\n)++\n?")
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Bot:
    """Our user on the homeserver."""

    user: str
    name: str = ""

    def is_mentioned(self, content: Payload) -> bool:
        """Return whether a message mentions the bot: in its list of mentions, else in its text."""
        mentions = content.get("m.mentions")
        if isinstance(mentions, dict):
            users = mentions.get("user_ids")
            return isinstance(users, list) and self.user in users
        if f"{MATRIX_TO}{self.user}" in str(content.get("formatted_body") or ""):
            return True
        body = _body(content)
        return self.user in body or any(True for _ in _positions(body, self._names))

    def text_without_mention(self, text: str) -> str:
        """Return the text without the bot's id, and without its name at the beginning."""
        pieces: list[str] = []
        at = 0
        for start, end in _positions(text, [self.user]):
            pieces.append(text[at:start].rstrip(" \t"))
            at = end
        rest = " ".join([*pieces, _after_mark(text[at:]) if pieces else text[at:]]).strip()
        return self._without_name(rest)

    def _without_name(self, text: str) -> str:
        for name in self._names:
            if text[: len(name)].casefold() == name and not _WORD.match(text, len(name)):
                return _after_mark(text[len(name) :]).strip()
        return text

    @property
    def _names(self) -> list[str]:
        name = self.name.strip().casefold()
        return [f"@{name}", name] if 0 < len(name) <= LONGEST_NAME else []


def _after_mark(text: str) -> str:
    """Return a text without the colon or comma behind a mention."""
    return text.lstrip(" \t").removeprefix(":").removeprefix(",").lstrip(" \t")


def _positions(text: str, names: Iterable[str]) -> Iterable[tuple[int, int]]:
    """Yield start and end of each name that stands as a word of its own, ignoring case."""
    folded = text.casefold() if len(text.casefold()) == len(text) else text
    for name in names:
        at = folded.find(name.casefold())
        while at >= 0:
            end = at + len(name)
            if not _WORD.match(text, end) and (at == 0 or not _WORD.match(text, at - 1)):
                yield at, end
            at = folded.find(name.casefold(), end)


@dataclass(frozen=True, slots=True)
class Location:
    """A conversation: a room, or a thread in it. `account` is None if it is not known."""

    room: str
    thread: str | None = None
    account: str | None = None
    answered: str | None = None
    """Id of the event that a response answers."""

    @property
    def conversation(self) -> str:
        return ":".join([CHANNEL, self.room, *([self.thread] if self.thread else [])])


def location_of(payload: Payload) -> Location | None:
    """Read the conversation of a message or a response; None if it names none."""
    conversation = str(payload.get("conversation") or "")
    if not conversation.startswith(f"{CHANNEL}:!"):
        return None
    room, _, root = conversation.removeprefix(f"{CHANNEL}:").partition(":$")
    account, answered_room, event = _ids_of(str(payload.get("message_id") or ""))
    return Location(
        room,
        f"${root}" if root else None,
        payload.get("account") or account,
        event if answered_room == room else None,
    )


def _ids_of(message: str) -> tuple[str | None, str | None, str | None]:
    """Return account, room and event of a message's id; None for each if it is not one of ours.

    Each kind of id begins with a character of its own, which separates them."""
    account, _, rest = message.removeprefix(f"{CHANNEL}_").partition("_!")
    room, _, event = rest.partition("_$")
    if not account.startswith("@") or not event:
        return None, None, None
    return account, f"!{room}", f"${event}"


def message_id(account: str, room: str, event: str) -> str:
    """Return the id of a message: the same for every delivery of the event."""
    return f"{CHANNEL}_{account}_{room}_{event}"


def is_message(event: Payload) -> bool:
    """Return whether an event is a message that a person wrote, and no edit of one."""
    content = content_of(event)
    return (
        event.get("type") == "m.room.message"
        and content.get("msgtype") in (*TEXT_TYPES, *MEDIA_TYPES)
        and bool(event.get("event_id") and event.get("sender"))
        and _relation(content).get("rel_type") != "m.replace"
    )


def edit_of(event: Payload) -> tuple[str, Payload] | None:
    """Return the id of the message that an event edits, and its new content; None if no edit."""
    content = content_of(event)
    relation, new = _relation(content), content.get("m.new_content")
    if event.get("type") != "m.room.message" or relation.get("rel_type") != "m.replace":
        return None
    return (str(relation.get("event_id")), new) if isinstance(new, dict) else None


def redacted_by(event: Payload) -> str | None:
    """Return the id of the event that a redaction removes; None if it is not a redaction."""
    if event.get("type") != "m.room.redaction":
        return None
    # Since room version 11 the id is part of the content.
    found = event.get("redacts") or content_of(event).get("redacts")
    return None if found is None else str(found)


def with_edits(events: Iterable[Payload]) -> list[Payload]:
    """Return events with the edits among them applied, so that no agent sees the older text."""
    events = list(events)
    senders = {event.get("event_id"): event.get("sender") for event in events}
    edits: dict[str, Payload] = {}
    for event in events:
        edit = edit_of(event)
        # A homeserver lets everybody send an edit; it counts only from the message's sender.
        if edit is not None and senders.get(edit[0]) == event.get("sender"):
            edits[edit[0]] = edit[1]
    return [
        event | {"content": content_of(event) | edits[str(event.get("event_id"))]}
        if event.get("event_id") in edits
        else event
        for event in events
    ]


def thread_of(event: Payload) -> str | None:
    """Return the root of the thread that an event is in."""
    relation = _relation(content_of(event))
    root = relation.get("event_id")
    return str(root) if root and relation.get("rel_type") == "m.thread" else None


def without_answered(events: Sequence[Payload], bot: str) -> list[Payload]:
    """Leave out messages that another person has answered later, in their thread or by a reply."""
    messages = [_gap_message(event, bot) for event in events if is_message(event)]
    left_out = find_answered(messages)
    return [event for event in events if str(event.get("event_id")) not in left_out]


def _gap_message(event: Payload, bot: str) -> GapMessage:
    sender, replied_to = str(event.get("sender")), _replied_to(event)
    return GapMessage(
        id=str(event.get("event_id")),
        sender=sender,
        is_person=sender != bot,
        thread=thread_of(event),
        replies_to=frozenset([replied_to] if replied_to else ()),
    )


def _replied_to(event: Payload) -> str | None:
    """Return the id of the event that a message replies to. A thread's fallback is not a reply."""
    relation = _relation(content_of(event))
    reply = relation.get("m.in_reply_to")
    if not isinstance(reply, dict) or relation.get("is_falling_back") is True:
        return None
    return str(reply.get("event_id"))


def text_of_content(content: Payload) -> str:
    """Return the text of a message, without the quotation of the message it replies to.

    A file has a text only if its caption differs from its name."""
    body = _body(content)
    if content.get("msgtype") in MEDIA_TYPES:
        name = content.get("filename")
        return body if name and name != body else ""
    if "m.in_reply_to" in _relation(content):
        return _QUOTE.sub("", body, count=1)
    return body


def file_of_content(content: Payload) -> Payload | None:
    """Return address, name and size of the file that a message brings; None if it has none."""
    if content.get("msgtype") not in MEDIA_TYPES or not isinstance(content.get("url"), str):
        return None
    info = content.get("info")
    size = info.get("size") if isinstance(info, dict) else None
    name = str(content.get("filename") or content.get("body") or "file")
    return {
        "url": content["url"],
        "name": name[:200],
        "size": size if isinstance(size, int) else None,
    }


def new_message(bot: Bot, room: str, event: Payload, name: str, *, is_direct: bool) -> NewEvent:
    """Return the message to store."""
    content = content_of(event)
    location = Location(room, thread_of(event))
    file = file_of_content(content)
    payload: Payload = {
        "kind": "message",
        "channel": CHANNEL,
        "account": bot.user,
        "room": room,
        "event_id": event["event_id"],
        "sender": name,
        "sender_id": event["sender"],
        "message": text_of_content(content),
        "conversation": location.conversation,
        "is_direct": is_direct,
        **({"files": [file]} if file else {}),
    }
    return NewEvent(
        event=payload,
        message_id=message_id(bot.user, room, str(event["event_id"])),
        event_ts=platform_time(event.get("origin_server_ts")),
    )


def content_of(event: Payload) -> Payload:
    """Return the content of an event; {} if it is malformed."""
    content = event.get("content")
    return content if isinstance(content, dict) else {}


def platform_time(milliseconds: Any) -> datetime | None:
    """Convert Matrix's milliseconds. Returns None for an invalid time."""
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except (OverflowError, TypeError, ValueError):
        return None


def _relation(content: Payload) -> Mapping[str, Any]:
    relation = content.get("m.relates_to")
    return relation if isinstance(relation, dict) else {}


def _body(content: Payload) -> str:
    body = content.get("body")
    return body if isinstance(body, str) else ""
