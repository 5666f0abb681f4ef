"""Reads conversations from Slack: messages page by page, names of people and channels."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

from holdfast.channels.base import Line
from holdfast.channels.cache import Cache
from holdfast.channels.slack.incoming import platform_time
from holdfast.channels.slack.mrkdwn import unescape
from holdfast.channels.slack.workspace import Workspace
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.telemetry import SLACK_NAME_UNKNOWN
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

MOST_NAMES = 5000
"""Maximum number of cached names."""
MOST_THREADS = 5000
"""Maximum number of long threads that are not read from their beginning again."""
NAME_TTL = 3600.0
"""Seconds for which a name is cached."""
MISSING_NAME_TTL = 60.0
"""Seconds after which an unknown name is asked for again."""
_ID = re.compile(r"<([@#])([A-Z0-9]+)(?:\|([^<>]*))?>")
_LINK = re.compile(r"<((?:https?|mailto):[^<>|]+)(?:\|([^<>]*))?>")


async def messages(
    workspace: Workspace, channel: str, thread_ts: str | None, **wanted: Any
) -> AsyncIterator[Payload]:
    """Yield all messages of a thread, oldest first, or of a channel, newest first."""
    method = "conversations.replies" if thread_ts else "conversations.history"
    where = {"channel": channel, "ts": thread_ts} if thread_ts else {"channel": channel}
    wanted |= {"limit": workspace.access.limits.page}
    cursor: str | None = None
    while True:
        answer = await workspace.call(method, **where, **wanted, cursor=cursor)
        for message in answer.get("messages") or ():
            yield message
        cursor = (answer.get("response_metadata") or {}).get("next_cursor")
        if not cursor:
            return


class Reader:
    """Reads threads of one workspace, and caches names."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._names: OrderedDict[str, tuple[float, str | None]] = OrderedDict()
        self._thread_starts: Cache[tuple[str, str], str] = Cache(MOST_THREADS)
        """Time before the lines that were read last of a long thread."""

    async def thread(self, payload: Payload) -> Sequence[Line]:
        """Return the newest messages before this one in its thread or direct messages, oldest
        first."""
        channel, thread_ts, ts = (
            str(payload.get("channel")),
            payload.get("thread_ts"),
            str(payload.get("ts")),
        )
        most = self._workspace.access.limits.thread_lines
        before: Iterable[Payload]
        if thread_ts:
            before = await self._newest_in_thread(channel, str(thread_ts), ts)
        elif channel.startswith("D"):
            before = found = deque[Payload]()
            async for message in messages(self._workspace, channel, None, latest=ts):
                found.appendleft(message)
                if len(found) == most:
                    break
        else:
            return ()
        return [await self._line(message) for message in before]

    async def _newest_in_thread(self, channel: str, thread_ts: str, ts: str) -> list[Payload]:
        """Return the newest messages before a time.

        Slack lists a thread from its beginning. So begin where the last read found enough."""
        most, key = self._workspace.access.limits.thread_lines, (channel, thread_ts)
        start = self._thread_starts.get(key, "")
        found = await self._between(channel, thread_ts, start, ts, most + 1)
        if start and len(found) < most:
            # Messages were deleted, or these are older than those of the last read.
            found = await self._between(channel, thread_ts, "", ts, most + 1)
        if len(found) > most:
            self._thread_starts.keep(key, str(found.popleft().get("ts")))
        return list(found)

    async def _between(
        self, channel: str, thread_ts: str, start: str, end: str, most: int
    ) -> deque[Payload]:
        """Return the newest messages of a thread between two times, oldest first."""
        wanted = {"oldest": start} if start else {}
        found: deque[Payload] = deque(maxlen=most)
        async for message in messages(self._workspace, channel, thread_ts, **wanted):
            # Slack adds the first message of the thread, whatever the times.
            if start < str(message.get("ts")) < end:
                found.append(message)
        return found

    async def _line(self, message: Payload) -> Line:
        bot = await self._workspace.ready()
        user = str(message.get("user") or "")
        # Messages of a bot may carry a name instead of a user.
        name = message.get("username") or (await self._name(user) if user else None)
        return Line(
            sender=str(name or user or message.get("bot_id") or ""),
            text=await self.readable(str(message.get("text") or "")),
            sent_at=platform_time(message.get("ts")),
            is_own=bot.is_author(message),
        )

    async def readable(self, text: str) -> str:
        """Return Slack's text for an agent: unescaped, with names and Markdown links."""
        return unescape(await self.replace_ids(text))

    async def replace_ids(self, text: str) -> str:
        """Replace ids of people and channels by known names, and links by Markdown."""
        names: dict[str, str | None] = {}
        for found in _ID.finditer(text):
            names[found[2]] = found[3] or await self._name(found[2])
        text = _ID.sub(
            lambda found: f"{found[1]}{name}" if (name := names.get(found[2])) else found[0], text
        )
        return _LINK.sub(lambda found: f"[{found[2]}]({found[1]})" if found[2] else found[1], text)

    async def _name(self, id: str) -> str | None:
        """Return the name of a person or a channel; None if Slack does not give it."""
        match id[:1]:
            case "U" | "W":
                return await self._cached_name(id, self._user)
            case "C" | "G":
                return await self._cached_name(id, self._channel)
        return None

    async def _cached_name(
        self, id: str, ask: Callable[[str], Awaitable[str | None]]
    ) -> str | None:
        known = self._names.get(id)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        if not self._workspace.is_ready:
            return None
        name = await self._try_name(ask(id))
        self._names[id] = (time.monotonic() + (NAME_TTL if name else MISSING_NAME_TTL), name)
        self._names.move_to_end(id)
        while len(self._names) > MOST_NAMES:
            self._names.popitem(last=False)
        return name

    async def _user(self, id: str) -> str | None:
        user = (await self._workspace.call("users.info", user=id)).get("user") or {}
        return (
            (user.get("profile") or {}).get("display_name")
            or user.get("real_name")
            or user.get("name")
        )

    async def _channel(self, id: str) -> str | None:
        channel = (await self._workspace.call("conversations.info", channel=id)).get(
            "channel"
        ) or {}
        name: str | None = channel.get("name")
        return name

    async def _try_name(self, request: Awaitable[str | None]) -> str | None:
        """Return a name, or None after any failure: a name is not worth failing a turn."""
        from aiohttp import ClientError

        try:
            async with asyncio.timeout(self._workspace.access.limits.name_seconds):
                return await request
        except (HoldfastError, ClientError, TimeoutError, OSError) as error:
            log.debug(Entry(SLACK_NAME_UNKNOWN, error=error))
            return None
