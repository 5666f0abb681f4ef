"""Long polling: the offset moves only past updates that are stored, and one process polls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from aiogram.methods import TelegramMethod

from holdfast.channels.base import Put
from holdfast.channels.telegram.bot import CHANNEL, TelegramBot
from holdfast.channels.telegram.errors import AccessDenied, Refusal
from holdfast.channels.telegram.receiving import ANSWERS, Receiver
from holdfast.channels.watermark import Watermarks
from holdfast.errors import HoldfastError
from holdfast.queue.store import Store
from holdfast.telemetry import CHANNEL_EVENT_FAILED, RECEIVE_FAILED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

MOST_UPDATES = 100
CONFLICT = 409
SETTLED_WITHIN = 0.2
"""Seconds after which two processes that wrote at once see the same holder."""


class GetRawUpdates(TelegramMethod[list[dict[str, Any]]]):
    """getUpdates without reading the updates: one that cannot be read must not hold up others."""

    __returning__ = list[dict[str, Any]]
    __api_method__ = "getUpdates"

    offset: int | None = None
    limit: int = MOST_UPDATES
    timeout: int = 0
    allowed_updates: Sequence[str] = ANSWERS


class PollingLease:
    """The right to poll for a bot. Telegram refuses a second poll at the same time.

    It is a stored value with the id of a process, which holds as long as that process lives. Two
    processes may believe for a moment that they have it. Then Telegram ends one of the polls, and a
    message that comes twice has the same id."""

    def __init__(self, store: Store, bot_id: int, process_id: str) -> None:
        self._store = store
        self._key = f"poller/{CHANNEL}/{bot_id}"
        self._process_id = process_id

    async def take(self) -> bool:
        """Take the lease, or check it. Returns False if another living process has it."""
        holder = await self._store.setting(self._key)
        if holder == self._process_id:
            return True
        if holder in [process.id for process in await self._store.processes()]:
            return False
        await self._store.set_setting(self._key, self._process_id)
        # Another process may have written at the same moment. The last writer has the lease.
        await asyncio.sleep(SETTLED_WITHIN)
        return bool(await self._store.setting(self._key) == self._process_id)


class Poller:
    """Polls for one bot until cancelled."""

    def __init__(self, bot: TelegramBot, receiver: Receiver, store: Store) -> None:
        self._bot = bot
        self._receiver = receiver
        self._store = store
        self._offset: int | None = None
        self._failures = 0

    async def run(self, put: Put, process_id: str) -> None:
        """Poll while this process holds the lease; else stand by."""
        user = await self._bot.ready()
        lease = PollingLease(self._store, user.id, process_id)
        was_polling = False
        while True:
            is_polling = await self._holds(lease)
            if not is_polling:
                self._bot.listening.set()
                await asyncio.sleep(self._bot.access.limits.stand_by.total_seconds())
            elif was_polling and not self._failures:
                await self._poll(put, self._bot.access.limits.poll_within)
            else:
                # Do not long-poll after a failure: an answer at once shows that the outage is over.
                await self._catch_up(put)
            was_polling = is_polling

    async def _holds(self, lease: PollingLease) -> bool:
        try:
            return await lease.take()
        except HoldfastError as error:
            await self._pause(error)
            return False

    async def _catch_up(self, put: Put) -> None:
        """Read updates that came while nobody polled. Telegram keeps them for a day."""
        missed = await self._poll(put, timedelta(0))
        try:
            if missed:
                await Watermarks(self._store, CHANNEL).note_gap(missed)
        except HoldfastError as error:
            await self._pause(error)

    async def _poll(self, put: Put, within: timedelta) -> int:
        """Poll once and store what comes. Returns the number of messages."""
        method = GetRawUpdates(offset=self._offset, timeout=int(within.total_seconds()))
        try:
            updates = await self._bot.poll(method, within)
        except AccessDenied as error:
            await self._bot.wait_for_repair(error)
            return 0
        except HoldfastError as error:
            await self._pause(error)
            return 0
        self._note_success()
        return await self._receive(updates, put)

    async def _receive(self, updates: Sequence[dict[str, Any]], put: Put) -> int:
        messages = 0
        for update in updates:
            try:
                messages += await self._receiver.receive(update, put)
            except HoldfastError as error:
                log.warning(Entry(RECEIVE_FAILED, channel=CHANNEL, error=error))
                await asyncio.sleep(self._bot.access.limits.backoff.first.total_seconds())
                break
            except Exception:
                # It would fail again each time, and hold up everything behind it.
                log.exception(Entry(CHANNEL_EVENT_FAILED, channel=CHANNEL))
            # Only now may Telegram forget it.
            self._offset = int(update["update_id"]) + 1
        return messages

    async def _pause(self, error: HoldfastError) -> None:
        if isinstance(error, Refusal) and error.code == CONFLICT:
            self._bot.deny(
                f": {error}; another program polls this bot, or it has a webhook:"
                " stop that program, or call deleteWebhook"
            )
        self._failures += 1
        self._bot.listening.set()
        await self._bot.pause(self._failures, error)

    def _note_success(self) -> None:
        self._bot.problem = None
        self._bot.resume(self._failures)
        self._failures = 0
        self._bot.listening.set()
