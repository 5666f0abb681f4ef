"""Receives the messages of one bot in order, and fetches those that were missed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

import discord
from aiohttp import ClientError

from holdfast.channels.admission import Admission
from holdfast.channels.base import NotNow, Put
from holdfast.channels.buttons import press
from holdfast.channels.discord.bot import Bot, Gateway
from holdfast.channels.discord.incoming import (
    CHANNEL,
    WRITTEN,
    event_of,
    gap_message_of,
    message_id,
    presser_of,
    readable,
    sender_of,
)
from holdfast.channels.edits import edit_message, withdraw_message
from holdfast.channels.gap import find_answered
from holdfast.channels.watermark import Watermarks
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.policy import Backoff
from holdfast.queue.store import Store
from holdfast.telemetry import (
    CHANNEL_EVENT_FAILED,
    GAP_ROOM_UNREADABLE,
    PLATFORM_UNREACHABLE,
    RECEIVE_FAILED,
)
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

CLOSED = "This question is closed."
WAITING = 10_000
"""Received messages that wait to be stored. If more come, they are fetched later."""
WRITE_EVERY = 5.0
"""Seconds between two writes of the watermark."""
OVERLAP_MS = 5_000
"""Fetching starts this long before the watermark, since messages may come out of order."""
DIRECT_ROOMS = 1_000
"""Direct message channels that are asked after a gap. Discord does not list them to bots."""

Work = Callable[[], Awaitable[None]]


@dataclass
class Session:
    """A session of the gateway. Its servers are known once Discord has listed them."""

    client: Gateway
    is_known: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False

    def end(self) -> None:
        """Let nothing wait any longer for its servers or try again to read them."""
        self.is_over = True
        self.is_known.set()


class Receiver:
    """Stores messages of the gateway in the order of their arrival.

    Discord takes no acknowledgement. Messages that were not stored are fetched from the history of
    the rooms: at each new session, and after an overflow. The watermark is the largest message id
    below which everything was stored; ids grow with time over all rooms."""

    def __init__(self, bot: Bot, store: Store, put: Put) -> None:
        self._bot = bot
        self._store = store
        self._put = put
        self._admission = Admission(store, CHANNEL, bot.access.rules)
        self._watermarks = Watermarks(store, CHANNEL)
        self._waiting: asyncio.Queue[Work] = asyncio.Queue(WAITING)
        self._has_overflowed = False
        self._has_gap = True
        """Whether messages may be missing, so that the watermark must stay."""
        self._user = ""
        self._position = self._written = 0
        self._written_at = 0.0
        self._direct_rooms: list[str] | None = None

    @contextmanager
    def listen(self, client: Gateway) -> Iterator[None]:
        """Receive the events of a client during the block."""
        session = Session(client)

        async def on_connect() -> None:
            nonlocal session
            session.end()
            session = Session(client)
            self._has_gap = True
            # Queued before any message of the session, so that older ones are stored first.
            self._enqueue(partial(self._catch_up, session))

        async def on_ready() -> None:
            session.is_known.set()

        async def on_message(message: discord.Message) -> None:
            self._enqueue(partial(self._store_live, client, message))

        async def on_raw_message_edit(edit: discord.RawMessageUpdateEvent) -> None:
            self._enqueue(partial(self._edit, client, edit))

        async def on_raw_message_delete(deletion: discord.RawMessageDeleteEvent) -> None:
            self._enqueue(partial(self._delete, client, deletion))

        async def on_interaction(interaction: discord.Interaction) -> None:
            self._enqueue(partial(self._press, interaction))

        for listener in (on_connect, on_ready, on_message, on_interaction):
            client.event(listener)
        client.event(on_raw_message_edit)
        client.event(on_raw_message_delete)
        try:
            yield
        finally:
            session.end()

    def _enqueue(self, work: Work) -> None:
        if not self._has_overflowed:
            try:
                self._waiting.put_nowait(work)
            except asyncio.QueueFull:
                self._has_overflowed = True

    async def run(self) -> None:
        """Work the queue until cancelled."""
        try:
            while True:
                work = await self._next()
                if work is not None:
                    await self._until_stored(work)
                if self._has_overflowed and self._waiting.empty():
                    self._has_overflowed, self._has_gap = False, True
                    self._enqueue(self._catch_up_again)
                if time.monotonic() >= self._written_at + WRITE_EVERY:
                    await self._write_watermark()
        finally:
            await self._write_watermark()

    async def _next(self) -> Work | None:
        """Return the next work, None if there is none for a while."""
        try:
            async with asyncio.timeout(WRITE_EVERY):
                return await self._waiting.get()
        except TimeoutError:
            return None

    async def _until_stored(self, work: Work) -> None:
        """Do one piece of work. Retry it while the database is unreachable; later messages wait."""
        backoff, failures = Backoff(), 0
        while True:
            try:
                await work()
                return
            except HoldfastError as error:
                failures += 1
                log.warning(Entry(RECEIVE_FAILED, channel=CHANNEL, error=error))
                await asyncio.sleep(backoff.delay(failures).total_seconds())
            except Exception:
                log.exception(Entry(CHANNEL_EVENT_FAILED, channel=CHANNEL))
                return

    async def _store_live(self, client: Gateway, message: discord.Message) -> None:
        await self._store_message(client, message)
        if not self._has_gap:
            self._position = max(self._position, message.id)

    async def _store_message(self, client: Gateway, message: discord.Message) -> bool:
        """Store a message if it is for the bot. Returns whether it is new."""
        user = client.user
        if user is None or message.author.id == user.id or message.type not in WRITTEN:
            return False
        sender = sender_of(message, user, self._bot.access.rules)
        decision = await self._admission.decide(sender)
        new = event_of(message, user)
        if not decision.is_admitted:
            await self._admission.announce(decision, {**new.event, "message_id": new.message_id})
            return False
        if sender.is_direct:
            await self._remember_direct_room(user.id, str(message.channel.id))
        return await self._put(new) is not None

    async def _edit(self, client: Gateway, edit: discord.RawMessageUpdateEvent) -> None:
        user, message = client.user, edit.message
        # Discord also reports previews of links as edits. Those have no time of an edit.
        if user is None or message.edited_at is None or message.author.id == user.id:
            return
        id = message_id(user.id, message.channel.id, message.id)
        await edit_message(self._store, id, readable(message, user))

    async def _delete(self, client: Gateway, deletion: discord.RawMessageDeleteEvent) -> None:
        if client.user is not None:
            id = message_id(client.user.id, deletion.channel_id, deletion.message_id)
            await withdraw_message(self._store, id)

    async def _press(self, interaction: discord.Interaction) -> None:
        """Send the signal of a button, and take the buttons away."""
        room, message = interaction.channel, interaction.message
        data: Payload = dict(interaction.data or {})
        if room is None or message is None or not await self._acknowledge(interaction):
            return
        sender = presser_of(interaction, room, self._bot.access.rules)
        decision = await self._admission.decide(sender)
        button = None
        if decision.is_admitted:
            button = await press(self._store, str(data.get("custom_id")), CHANNEL, sender)
        # The signal is stored. A button that stays visible does no harm.
        with suppress(discord.HTTPException, NotNow):
            if button is not None:
                await self._bot.room(room.id).get_partial_message(message.id).edit(view=None)
            else:
                await interaction.followup.send(CLOSED, ephemeral=True)

    async def _acknowledge(self, interaction: discord.Interaction) -> bool:
        """Tell Discord that the press was taken. Returns False if another process took it."""
        try:
            if not interaction.response.is_done():
                await interaction.response.defer()
        except discord.HTTPException:
            return False
        return True

    async def _catch_up_again(self) -> None:
        """Fetch missed messages after an overflow. A new session does the same by itself."""
        with suppress(NotNow):
            session = Session(self._bot.client)
            session.is_known.set()
            await self._catch_up(session)

    async def _catch_up(self, session: Session) -> None:
        """Store messages written since the watermark. Retries until the session is over."""
        await session.is_known.wait()
        backoff, failures = Backoff(), 0
        while not session.is_over and not session.client.is_closed():
            try:
                await self._close_gap(session.client)
            except (discord.DiscordException, ClientError, OSError, TimeoutError) as error:
                failures += 1
                log.warning(Entry(PLATFORM_UNREACHABLE, channel=CHANNEL, error=error))
                await asyncio.sleep(backoff.delay(failures).total_seconds())
            else:
                self._bot.note_connected()
                return

    async def _close_gap(self, client: Gateway) -> None:
        user = client.user
        assert user is not None
        self._user = str(user.id)
        # Read the clock first: messages that come from now on are in the queue.
        now = discord.utils.time_snowflake(datetime.now(UTC))
        found = await self._watermarks.read(self._user)
        if found is None:
            self._position = max(self._position, now)
        else:
            since = max(int(found), self._position)
            messages = await self._fetch_missed(client, user.id, since)
            await self._watermarks.note_gap(messages, discord.utils.snowflake_time(since))
        self._has_gap = False
        await self._write_watermark()

    async def _fetch_missed(self, client: Gateway, user: int, since: int) -> int:
        oldest = datetime.now(UTC) - self._bot.access.limits.gap_age
        after = max(since - (OVERLAP_MS << 22), discord.utils.time_snowflake(oldest))
        missed = self._missed_messages(client, user, after)
        if self._bot.access.skip_answered:
            missed = _without_answered(missed)
        messages, newest = 0, since
        async for message in missed:
            messages += await self._store_message(client, message)
            newest = max(newest, message.id)
        self._position = max(self._position, newest)
        return messages

    async def _missed_messages(
        self, client: Gateway, user: int, after: int
    ) -> AsyncIterator[discord.Message]:
        """Yield the missed messages, room by room."""
        async for room in self._rooms_with_news(client, user, after):
            for message in await self._history(room, after):
                yield message

    async def _rooms_with_news(
        self, client: Gateway, user: int, after: int
    ) -> AsyncIterator[discord.abc.Messageable]:
        for server in client.guilds:
            rooms: list[discord.TextChannel | discord.Thread]
            rooms = [*server.text_channels, *server.threads]
            for room in rooms:
                if (room.last_message_id or 0) > after:
                    yield room
        for id in await self._known_direct_rooms(user):
            yield client.get_partial_messageable(int(id))

    async def _history(self, room: discord.abc.Messageable, after: int) -> list[discord.Message]:
        """Return the newest missed messages of a room, oldest first."""
        most = self._bot.access.limits.gap_messages
        history = room.history(limit=most, after=discord.Object(after), oldest_first=False)
        try:
            found = [message async for message in history]
        except (discord.Forbidden, discord.NotFound) as error:
            log.debug(Entry(GAP_ROOM_UNREADABLE, channel=CHANNEL, error=error))
            return []
        return found[::-1]

    async def _write_watermark(self) -> None:
        self._written_at = time.monotonic()
        if self._position > self._written:
            with suppress(HoldfastError):
                await self._watermarks.write(self._user, str(self._position))
                self._written = self._position

    async def _known_direct_rooms(self, user: int) -> list[str]:
        found = await self._store.setting(f"discord/{user}/direct_rooms")
        return [str(id) for id in found or ()]

    async def _remember_direct_room(self, user: int, room: str) -> None:
        if self._direct_rooms is None:
            self._direct_rooms = await self._known_direct_rooms(user)
        if room not in self._direct_rooms:
            # Read again: another process may have added one.
            known = await self._known_direct_rooms(user)
            self._direct_rooms = [*(id for id in known if id != room), room][-DIRECT_ROOMS:]
            await self._store.set_setting(f"discord/{user}/direct_rooms", self._direct_rooms)


async def _without_answered(
    missed: AsyncIterator[discord.Message],
) -> AsyncIterator[discord.Message]:
    """Leave out messages that a person has answered since, maybe in a thread of their own."""
    found = [message async for message in missed]
    left_out = find_answered(gap_message_of(one) for one in sorted(found, key=lambda one: one.id))
    for message in found:
        if str(message.id) not in left_out:
            yield message
