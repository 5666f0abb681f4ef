"""Gap repair: after a start or a reconnect, store the messages to the bot that were missed.

Slack retries an event for a while, but drops the messages of a longer absence. So the channel
reads the history of its conversations since the watermark. Messages that are stored already are
recognised by their ids."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.channels.base import NotNow, Put, Undeliverable
from holdfast.channels.gap import GapMessage, find_answered
from holdfast.channels.slack.errors import Refusal, Unreachable
from holdfast.channels.slack.incoming import is_bot, message_of, platform_time
from holdfast.channels.watermark import Watermarks
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.event import NewEvent
from holdfast.queue.wake import Wake
from holdfast.telemetry import GAP_NOT_CLOSED, GAP_ROOM_UNREADABLE
from holdfast.telemetry.logs import Entry

if TYPE_CHECKING:
    from holdfast.channels.slack.workspace import Workspace

log = logging.getLogger(__name__)

OVERLAP = timedelta(minutes=1)
"""Time before the last sign of life that is read again: a dead connection is noticed late."""
WRITE_SECONDS = 30.0
HOLD_SECONDS = 2.0
"""Time for which a new event waits for missed ones before it; Slack waits three seconds."""
TYPES = "public_channel,private_channel,im"
GROUP_TYPE = "mpim"
"""Type of group direct messages. Apps of earlier manifests lack the scope to list them."""
MISSING_SCOPE = "missing_scope"
MAX_TRIES = 5
"""Tries of one request while Slack asks to wait."""


class Gaps:
    """Closes the gaps of one workspace, and moves its watermark while it is connected."""

    def __init__(
        self, workspace: Workspace, watermarks: Watermarks, put: Put, session: Callable[[], object]
    ) -> None:
        """`session` returns the current connection, None without one."""
        self._workspace = workspace
        self._watermarks = watermarks
        self._put = put
        self._session = session
        self._tried: object = None
        self._repaired: object = None
        self._is_failing = False
        self._next_write_at = 0.0
        self._is_closed = asyncio.Event()
        self._hold_until = 0.0
        self._in_order = asyncio.Lock()
        self._wake = Wake()

    async def run(self) -> None:
        """Close gaps until cancelled: now, and after each reconnect."""
        limits = self._workspace.access.limits
        while True:
            session = self._session()
            if session is not None:
                await self._try_close(session)
            await self._wake.wait(poll=timedelta(seconds=limits.ping_seconds))

    async def receive(self, new: NewEvent) -> None:
        """Store a new message, after the missed ones before it."""
        await self._hold()
        try:
            await self._put(new)
        except HoldfastError:
            # Slack may give up on this message, so read it from the history later.
            self._repaired = None
            raise

    async def _hold(self) -> None:
        """Wait for missed messages, for a limited time."""
        if self._session() not in (None, self._tried):
            self._open()
            self._wake.set()
        # One after the other: an event that comes now must not overtake those that wait.
        async with self._in_order:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._hold_until):
                    await self._is_closed.wait()

    def _open(self) -> None:
        """Hold new events from now on, for a limited time in all."""
        if self._is_closed.is_set() or not self._hold_until:
            self._hold_until = asyncio.get_running_loop().time() + HOLD_SECONDS
        self._is_closed.clear()

    async def _try_close(self, session: object) -> None:
        from aiohttp import ClientError

        if session is not self._tried:
            self._open()
        self._tried, seen_at = session, datetime.now(UTC)
        try:
            if session is not self._repaired:
                await self._close()
                self._repaired, self._next_write_at = session, 0.0
            if self._session() is session:
                await self._write(seen_at)
            self._is_failing = False
        except (HoldfastError, ClientError, OSError, TimeoutError) as error:
            # The watermark stays, so the next look reads the same again.
            if not self._is_failing:
                log.warning(Entry(GAP_NOT_CLOSED, channel="slack", error=error))
            self._is_failing = True
        finally:
            # New events wait only for the first try, so that a failing repair does not block them.
            self._is_closed.set()

    async def _write(self, seen_at: datetime) -> None:
        """Move the watermark, at most every 30 s."""
        if time.monotonic() < self._next_write_at:
            return
        self._next_write_at = time.monotonic() + WRITE_SECONDS
        position = (seen_at - OVERLAP).timestamp()
        await self._watermarks.write(await self._source(), f"{position:.6f}")

    async def _source(self) -> str:
        return (await self._workspace.ready()).team

    async def _close(self) -> None:
        """Store what was missed since the watermark. A first start has missed nothing."""
        position = await self._watermarks.read(await self._source())
        if position is None:
            return
        limits = self._workspace.access.limits
        since = max(float(position), (datetime.now(UTC) - limits.gap_age).timestamp())
        messages = 0
        for channel in await self._channels():
            try:
                messages += await self._close_channel(channel, since)
            except (Refusal, Undeliverable) as refusal:
                # The bot was removed, or lacks a scope for this kind of channel.
                log.warning(Entry(GAP_ROOM_UNREADABLE, channel="slack", error=refusal))
        await self._watermarks.note_gap(messages, platform_time(position))

    async def _channels(self) -> list[Payload]:
        """Return the conversations that the bot is in; none if Slack does not list them."""
        for types in (f"{TYPES},{GROUP_TYPE}", TYPES):
            try:
                return await self._read(
                    "users.conversations",
                    self._workspace.access.limits.gap_channels,
                    key="channels",
                    types=types,
                    exclude_archived=True,
                )
            except (Refusal, Undeliverable) as refusal:
                log.warning(Entry(GAP_ROOM_UNREADABLE, channel="slack", error=refusal))
                if refusal.code != MISSING_SCOPE:
                    break
        return []

    async def _close_channel(self, channel: Payload, since: float) -> int:
        """Store the missed messages of a channel, in order. Returns how many were new."""
        id, limits = str(channel["id"]), self._workspace.access.limits
        # Threads are listed by their first message, which may be older than the gap.
        oldest = f"{since - limits.gap_threads.total_seconds():.6f}"
        most = limits.gap_messages
        roots = await self._read("conversations.history", most, channel=id, oldest=oldest)
        missed: list[Payload] = []
        for root in roots:
            replies = await self._replies(id, root, since)
            missed += [one for one in (root, *replies) if float(one["ts"]) > since]
        in_order = sorted(missed, key=lambda one: float(one["ts"]))[-most:]
        skips = self._workspace.access.skip_answered
        left_out = find_answered(map(_gap_message, in_order)) if skips else ()
        return sum(
            [await self._store(channel, one) for one in in_order if one["ts"] not in left_out]
        )

    async def _replies(self, channel: str, root: Payload, since: float) -> list[Payload]:
        """Return the replies in a thread since a moment; none if it has no new ones."""
        if float(root.get("latest_reply") or 0) <= since:
            return []
        most = self._workspace.access.limits.gap_messages
        thread = await self._read(
            "conversations.replies", most, channel=channel, ts=root["ts"], oldest=f"{since:.6f}"
        )
        return [reply for reply in thread if reply["ts"] != root["ts"]]

    async def _read(
        self, method: str, most: int, *, key: str = "messages", **where: Any
    ) -> list[Payload]:
        """Read a list page by page, up to a number."""
        found: list[Payload] = []
        cursor: str | None = None
        while len(found) < most:
            limit = min(self._workspace.access.limits.page, most - len(found))
            answer = await self._call(method, **where, limit=limit, cursor=cursor)
            found += answer.get(key) or ()
            cursor = (answer.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                break
        return found

    async def _call(self, method: str, **arguments: Any) -> Payload:
        """Call a method, and wait as often as Slack asks for it."""
        for _ in range(MAX_TRIES - 1):
            try:
                return await self._workspace.call(method, **arguments)
            except Unreachable:
                raise
            except NotNow as wait:
                await asyncio.sleep(wait.delay.total_seconds())
        return await self._workspace.call(method, **arguments)

    async def _store(self, channel: Payload, message: Payload) -> bool:
        """Store a message as if Slack had sent it. Returns whether it was new and for the bot."""
        bot = await self._workspace.ready()
        is_direct = bool(channel.get("is_im"))
        kind = {"type": "message", "channel_type": "im"} if is_direct else {}
        if not is_direct and f"<@{bot.user}" in str(message.get("text") or ""):
            kind = {"type": "app_mention"}
        event = {**message, **kind, "channel": channel["id"], "event_ts": message["ts"]}
        body = {
            "type": "event_callback",
            "team_id": bot.team,
            "event": event,
            "is_ext_shared_channel": channel.get("is_ext_shared"),
        }
        new = message_of(body, bot, self._workspace.access.permissions)
        if new is None or not await self._workspace.is_no_loop(new.event):
            return False
        return await self._put(new) is not None


def _gap_message(message: Payload) -> GapMessage:
    return GapMessage(
        id=str(message["ts"]),
        sender=str(message.get("user")),
        is_person=bool(message.get("user")) and not is_bot(message),
        thread=message.get("thread_ts"),
    )
