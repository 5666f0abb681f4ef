"""Reads rooms: the earlier messages of a conversation, and a part that was sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta

from holdfast.channels.base import Line, Undeliverable
from holdfast.channels.matrix.account import Account
from holdfast.channels.matrix.homeserver import transaction_id
from holdfast.channels.matrix.incoming import (
    Location,
    content_of,
    is_message,
    platform_time,
    text_of_content,
    thread_of,
    with_edits,
)
from holdfast.channels.matrix.post import PART, Post
from holdfast.message import Payload

LOOK_BACK = timedelta(minutes=10)
"""A look-up starts this much before the response was stored, since clocks may differ."""
MOST_PAGES = 50


async def read_conversation(account: Account, location: Location, event: str) -> list[Line]:
    """Return the earlier messages of a thread, or of a room outside of threads, oldest first."""
    limit = account.access.limits.thread_lines
    try:
        if location.thread is None:
            events = await _before(account, location.room, event, limit)
        else:
            newest = await account.homeserver.thread(location.room, location.thread, limit)
            events = [await account.homeserver.event(location.room, location.thread), *newest[::-1]]
    except Undeliverable:
        # The bot has left the room. A turn does not depend on what was said before.
        return []
    return list(_lines(account, [one for one in events if one.get("event_id") != event]))


async def _before(account: Account, room: str, event: str, limit: int) -> list[Payload]:
    found = await account.homeserver.context(room, event, limit)
    events = [one for one in found.get("events_before") or () if isinstance(one, dict)]
    return [one for one in events[::-1] if thread_of(one) is None]


def _lines(account: Account, events: Iterable[Payload]) -> Iterable[Line]:
    bot = account.bot
    for event in with_edits(events):
        text = text_of_content(content_of(event))
        if is_message(event) and text:
            sender = str(event["sender"])
            sent_at = platform_time(event.get("origin_server_ts"))
            is_own = bot is not None and sender == bot.user
            yield Line(sender=sender, text=text, sent_at=sent_at, is_own=is_own)


async def find_sent(account: Account, post: Post, stored_at: datetime) -> str | None:
    """Return the id of a message that was sent with the key of a post, None if there is none."""
    part = transaction_id(post.key)
    async for event in _since(account, post.location.room, stored_at - LOOK_BACK):
        is_own = account.bot is not None and event.get("sender") == account.bot.user
        if is_own and content_of(event).get(PART) == part:
            return str(event.get("event_id"))
    return None


async def _since(account: Account, room: str, moment: datetime) -> AsyncIterator[Payload]:
    """Yield the events of a room since a moment, newest first."""
    at: str | None = None
    for _ in range(MOST_PAGES):
        page = await account.homeserver.messages(room, at, None, account.access.limits.page)
        for event in page.get("chunk") or ():
            sent_at = platform_time(event.get("origin_server_ts"))
            if sent_at is not None and sent_at < moment:
                return
            yield event
        at = page.get("end")
        if at is None:
            return
