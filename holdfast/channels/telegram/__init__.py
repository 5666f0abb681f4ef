"""The Telegram channel: private chats, groups and topics, by long polling or webhook."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from holdfast.channels.accounts import check_accounts
from holdfast.channels.background import BackgroundTasks
from holdfast.channels.base import (
    Channel,
    Check,
    Part,
    Preview,
    PreviewFence,
    Put,
    Undeliverable,
    Webhook,
    part_key,
)
from holdfast.channels.budget import EditBudget
from holdfast.channels.buttons import button_id, buttons_of
from holdfast.channels.files import read_file
from holdfast.channels.parts import parts_of
from holdfast.channels.preview import EditedPreview, Style, replace_preview
from holdfast.channels.telegram.access import Access
from holdfast.channels.telegram.bot import CHANNEL, TelegramBot
from holdfast.channels.telegram.check import check
from holdfast.channels.telegram.download import download_files
from holdfast.channels.telegram.errors import AccessDenied
from holdfast.channels.telegram.polling import Poller
from holdfast.channels.telegram.post import (
    LONGEST_PART,
    Destination,
    Post,
    destination_of,
    growing_texts_of,
    texts_of,
)
from holdfast.channels.telegram.receiving import Receiver
from holdfast.channels.telegram.typing import keep_typing
from holdfast.message import PREVIEW, Payload
from holdfast.queue.event import Event
from holdfast.queue.store import Store

STYLE = Style(growing_texts_of, LONGEST_PART)
PRIVATE_EDITS, GROUP_EDITS = 40, 10
"""Edits a minute in one chat. Telegram allows a bot about one message a second in a chat, and 20 a
minute in a group."""
MOST_BUDGETS = 1000
"""Chats whose edits are counted; the one that was quiet longest is dropped first."""
WEBHOOK = "/telegram/webhook"


class TelegramChannel(Channel):
    """All configured bots. The bot in a response's conversation, or message id, selects one."""

    name = CHANNEL
    notifies_senders = True
    has_buttons = True

    def __init__(
        self, accesses: Sequence[Access], *, store: Store, files: Path | None = None
    ) -> None:
        self.bots = [TelegramBot(access) for access in accesses]
        self._store = store
        self._files = files
        has_other_bots = len(self.bots) > 1
        self._receivers = {
            bot: Receiver(bot, store, has_other_bots=has_other_bots) for bot in self.bots
        }
        self._background = BackgroundTasks()
        self._running: Sequence[TelegramBot] = self.bots
        self._put: Put | None = None
        self._budgets: OrderedDict[int, EditBudget] = OrderedDict()

    async def run(self, put: Put) -> None:
        await self._run(self.bots, put, polls=True)

    async def run_webhooks(self, put: Put) -> None:
        await self._run(self._webhook_bots, put, polls=False)

    async def _run(self, bots: Sequence[TelegramBot], put: Put, *, polls: bool) -> None:
        self._running, self._put = bots, put
        async with self._background.open() as group:
            try:
                for bot in bots:
                    group.create_task(self._run_bot(bot, put, polls=polls))
                await asyncio.Event().wait()
            finally:
                self._put = None

    async def _run_bot(self, bot: TelegramBot, put: Put, *, polls: bool) -> None:
        """Receive until cancelled. A bot that cannot work does not stop the others."""
        try:
            async with bot.open():
                await bot.sign_in()
                if polls and not bot.access.webhook_secret:
                    poller = Poller(bot, self._receivers[bot], self._store)
                    await poller.run(put, self.process_id)
                bot.listening.set()
                await asyncio.Event().wait()
        except AccessDenied:
            # Logged already, and named by `problems`.
            bot.listening.set()

    async def wait_ready(self) -> None:
        for bot in self._running:
            await bot.listening.wait()

    @property
    def webhooks(self) -> Mapping[str, Webhook]:
        return {WEBHOOK: self.receive} if self._webhook_bots else {}

    async def receive(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """Handle a request to the webhook. The secret in its header tells the bot."""
        for bot in self._webhook_bots:
            answer = await self._receivers[bot].receive_webhook(body, headers, self._put)
            if answer is not None:
                return answer
        return 401, "the secret token is not that of the webhook"

    @property
    def _webhook_bots(self) -> list[TelegramBot]:
        return [bot for bot in self.bots if bot.access.webhook_secret]

    @property
    def problems(self) -> Sequence[str]:
        found = [bot.problem or bot.outage for bot in self.bots]
        return [problem for problem in found if problem]

    async def check(self) -> Sequence[Check]:
        accesses = [one.access for one in self.bots]
        return await check_accounts(accesses, check, lambda access: access.name)

    async def fetch_files(self, payload: Payload) -> Sequence[Path]:
        if self._files is None or not payload.get("attachments"):
            return ()
        found = self._find(payload)
        return () if found is None else await download_files(found[0], self._files, payload)

    def show_typing(self, payload: Payload, *, again: bool) -> AbstractAsyncContextManager[object]:
        found = self._find(payload)
        if not self._background.is_open or found is None:
            return nullcontext()
        return self._background.during(keep_typing(*found))

    def open_preview(
        self, draft: Payload, key: str, note: Payload, fence: PreviewFence
    ) -> Preview | None:
        found = self._find(draft)
        if not self._background.is_open or found is None:
            return None
        bot, destination = found
        post = Post(bot, destination, key)
        budget = self._budget(destination.chat)
        return EditedPreview(post, STYLE, budget, note, fence, self._background.start)

    def split(self, response: Event) -> Sequence[Part]:
        return parts_of(response, texts_of)

    async def send_part(self, response: Event, part: Part, note: Payload) -> Payload:
        destination = destination_of(response.event)
        bot = self._bot_of(destination)
        if part.file is not None:
            limit = bot.access.limits.upload_bytes
            name, content = await asyncio.to_thread(
                read_file, self._files, part.file, response.event, limit
            )
            id = await Post(bot, destination, part.key).send_file(name, content)
            return {"chat": destination.chat, "message_id": id}
        is_first = part.key == part_key(response, 0)
        post = Post(
            bot,
            destination if is_first else replace(destination, reply_to=None),
            part.key,
            _buttons(response) if part.key == _last_text(self.split(response)).key else (),
        )
        preview = response.event.get(PREVIEW) if is_first else None
        shown = await replace_preview(post, preview, part.text) if preview else None
        if shown is None and part.text:
            shown = await post.post(part.text)
        return {"chat": destination.chat, "message_id": shown}

    def _find(self, payload: Payload) -> tuple[TelegramBot, Destination] | None:
        """Return the bot and destination of a payload; None if it names none of ours."""
        try:
            destination = destination_of(payload)
            return self._bot_of(destination), destination
        except Undeliverable:
            return None

    def _bot_of(self, destination: Destination) -> TelegramBot:
        if destination.bot is None or len(self.bots) == 1:
            return self.bots[0]
        for bot in self.bots:
            if bot.id == destination.bot:
                return bot
        raise Undeliverable("bot_not_found", f"there is no token for the bot {destination.bot}")

    def _budget(self, chat: int) -> EditBudget:
        budget = self._budgets.get(chat)
        if budget is None:
            per_minute = PRIVATE_EDITS if chat > 0 else GROUP_EDITS
            budget = self._budgets[chat] = EditBudget(self._store, per_minute)
        self._budgets.move_to_end(chat)
        while len(self._budgets) > MOST_BUDGETS:
            self._budgets.popitem(last=False)
        return budget


def _last_text(parts: Sequence[Part]) -> Part:
    return [part for part in parts if part.file is None][-1]


def _buttons(response: Event) -> list[tuple[str, str]]:
    found = buttons_of(response.event)
    return [(button.label, button_id(response, nth)) for nth, button in enumerate(found)]
