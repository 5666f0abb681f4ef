"""The Discord channel: direct messages, mentions and threads in, replies out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

import discord

from holdfast.channels.accounts import check_accounts
from holdfast.channels.background import BackgroundTasks
from holdfast.channels.base import (
    Channel,
    Check,
    Line,
    NotNow,
    Part,
    Preview,
    PreviewFence,
    Put,
    Undeliverable,
    part_key,
)
from holdfast.channels.buttons import button_id, buttons_of
from holdfast.channels.cache import Cache
from holdfast.channels.discord import files
from holdfast.channels.discord.access import Access
from holdfast.channels.discord.bot import SIGN_IN_DELAY, Bot
from holdfast.channels.discord.check import check
from holdfast.channels.discord.incoming import CHANNEL, readable
from holdfast.channels.discord.post import STYLE, Destination, Post, destination_of, texts_of
from holdfast.channels.discord.receiver import Receiver
from holdfast.channels.parts import parts_of
from holdfast.channels.preview import EditedPreview, replace_preview
from holdfast.message import PREVIEW, Payload
from holdfast.queue.event import Event
from holdfast.queue.store import Store

TYPE_EVERY = 8.0
"""Seconds between two typing signs; Discord shows one for ten."""
MOST_PEOPLE = 10_000
"""Maximum number of people whose direct message channels are remembered."""
SENT_AT = "at"
"""Key of a note: when the part was sent."""


class DiscordChannel(Channel):
    """All configured bots. The bot that received a message sends the response."""

    name = CHANNEL
    notifies_senders = True
    has_buttons = True

    def __init__(
        self, accesses: Sequence[Access], store: Store, *, files: Path | None = None
    ) -> None:
        self.bots = [Bot(access, store) for access in accesses]
        self._store = store
        self._files = files
        self._background = BackgroundTasks()
        self._people: Cache[tuple[Bot, int], int] = Cache(MOST_PEOPLE)

    async def run(self, put: Put) -> None:
        async with self._background.open() as group:
            for bot in self.bots:
                receiver = Receiver(bot, self._store, put)
                group.create_task(receiver.run())
                group.create_task(bot.run(receiver.listen))
            await asyncio.Event().wait()

    async def wait_ready(self) -> None:
        for bot in self.bots:
            await bot.listening.wait()

    @property
    def problems(self) -> Sequence[str]:
        found = [bot.problem or bot.outage for bot in self.bots]
        return [problem for problem in found if problem]

    async def check(self) -> Sequence[Check]:
        accesses = [one.access for one in self.bots]
        return await check_accounts(accesses, check, lambda access: access.name)

    async def fetch_thread(self, payload: Payload) -> Sequence[Line]:
        destination = destination_of(payload)
        bot = self._bot_of(destination)
        user = bot.client.user
        is_thread = str(payload.get("conversation")).count(":") == 2
        if destination.room is None or user is None or not (is_thread or payload.get("is_direct")):
            return ()
        before = discord.Object(int(payload["discord_message"]))
        with bot.translating():
            found = bot.room(destination.room).history(
                limit=bot.access.limits.thread_lines, before=before
            )
            lines = [_line(message, user) async for message in found if message.content]
        return lines[::-1]

    async def fetch_files(self, payload: Payload) -> Sequence[Path]:
        if self._files is None or not payload.get("attachments"):
            return ()
        return await files.download_files(
            self._bot_of(destination_of(payload)), self._files, payload
        )

    def show_typing(self, payload: Payload, *, again: bool) -> AbstractAsyncContextManager[object]:
        if not self._background.is_open or not payload.get("discord_room"):
            return nullcontext()
        return self._background.during(self._keep_typing(payload))

    async def _keep_typing(self, payload: Payload) -> None:
        while True:
            try:
                room = self._bot_of(destination_of(payload)).room(int(payload["discord_room"]))
                await room.typing()
            except Exception:  # noqa: BLE001 - a typing sign is not worth a turn
                return
            await asyncio.sleep(TYPE_EVERY)

    def open_preview(
        self, draft: Payload, key: str, note: Payload, fence: PreviewFence
    ) -> Preview | None:
        destination = destination_of(draft)
        if not self._background.is_open or destination.room is None:
            return None
        bot = self._bot_of(destination)
        post = Post(bot, destination.room, key, destination.answered, _sent_at(destination))
        return EditedPreview(post, STYLE, bot.edits, note, fence, self._background.start)

    def split(self, response: Event) -> Sequence[Part]:
        return parts_of(response, texts_of)

    async def prepare_part(self, response: Event, part: Part) -> Payload:
        return {SENT_AT: datetime.now(UTC).isoformat()}

    async def send_part(self, response: Event, part: Part, note: Payload) -> Payload:
        post = await self._post(response, part, note)
        if part.file is not None:
            file = await files.sendable_file(post.bot, self._files, part.file, response.event)
            return _receipt(post, await post.send(file=file))
        id = None
        preview = response.event.get(PREVIEW)
        if preview and part.key == part_key(response, 0):
            id = await replace_preview(post, preview, part.text)
        if id is None and part.text:
            view = self._buttons(response, part)
            id = await (post.post(part.text) if view is None else post.send(part.text, view=view))
        return _receipt(post, id)

    def _buttons(self, response: Event, part: Part) -> discord.ui.View | None:
        """Return the buttons below the last text of a response, None if there are none."""
        buttons = buttons_of(response.event)
        last = [one for one in self.split(response) if one.file is None][-1]
        if not buttons or part.key != last.key:
            return None
        view: discord.ui.View = discord.ui.View(timeout=None)
        for nth, button in enumerate(buttons):
            item: discord.ui.Button[discord.ui.View] = discord.ui.Button(
                label=button.label, custom_id=button_id(response, nth)
            )
            view.add_item(item)
        # The library keeps views that are not stopped, and would answer presses itself.
        view.stop()
        return view

    async def find_part(self, response: Event, part: Part, note: Payload) -> Payload | None:
        post = await self._post(response, part, note)
        file = None if part.file is None else Path(part.file).name
        id = await post.find(part.key, part.text, file)
        return None if id is None else _receipt(post, id)

    async def _post(self, response: Event, part: Part, note: Payload) -> Post:
        """Return the message of a part. The first part replies to the answered message."""
        destination = destination_of(response.event)
        bot = self._bot_of(destination)
        room = await self._room_of(bot, destination)
        is_first = part.key == part_key(response, 0)
        since = datetime.fromisoformat(note[SENT_AT]) if SENT_AT in note else None
        return Post(bot, room, part.key, destination.answered if is_first else None, since)

    async def _room_of(self, bot: Bot, destination: Destination) -> int:
        """Return the room of a destination; opens direct messages if needed."""
        if destination.room is not None:
            return destination.room
        assert destination.person is not None
        key = (bot, destination.person)
        if key in self._people:
            return self._people[key]
        with bot.translating():
            room = await bot.client.create_dm(discord.Object(destination.person))
        return self._people.keep(key, room.id)

    def _bot_of(self, destination: Destination) -> Bot:
        """Return the bot that received the answered message, or one that sees the room."""
        if len(self.bots) == 1:
            return self.bots[0]
        ready = {bot.user_id: bot for bot in self.bots if bot.user_id is not None}
        if destination.bot in ready:
            return ready[destination.bot]
        if len(ready) < len(self.bots) and not all(bot.problem for bot in self.bots):
            raise NotNow(SIGN_IN_DELAY)
        for bot in ready.values():
            if destination.room is None or bot.is_in_server(destination.room):
                return bot
        raise Undeliverable("no_bot", "no bot on Discord sees the room of the response")


def _receipt(post: Post, id: str | None) -> Payload:
    return {"room": str(post.room), "id": id}


def _sent_at(destination: Destination) -> datetime:
    """Return when the answered message was written."""
    if destination.answered is None:
        return datetime.now(UTC)
    return discord.utils.snowflake_time(destination.answered)


def _line(message: discord.Message, user: discord.ClientUser) -> Line:
    return Line(
        sender=message.author.display_name,
        text=readable(message, user),
        sent_at=message.created_at,
        is_own=message.author.id == user.id,
    )
