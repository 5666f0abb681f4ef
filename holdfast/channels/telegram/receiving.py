"""Receives updates: stores messages of people who are admitted, applies edits, takes presses."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Mapping
from typing import Any

from aiogram.methods import AnswerCallbackQuery, EditMessageReplyMarkup
from aiogram.types import CallbackQuery, Message, Update
from pydantic import ValidationError

from holdfast.channels.admission import Admission, Sender
from holdfast.channels.base import Put
from holdfast.channels.buttons import press
from holdfast.channels.edits import edit_message
from holdfast.channels.telegram.bot import CHANNEL, TelegramBot
from holdfast.channels.telegram.errors import AccessDenied
from holdfast.channels.telegram.incoming import Incoming, name_of
from holdfast.errors import HoldfastError
from holdfast.queue.store import Store
from holdfast.telemetry import RECEIVE_FAILED, UPDATE_UNREADABLE
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105
SIGN_IN_WITHIN = 5.0
"""Seconds that a webhook request waits for the sign-in."""
ANSWERS = ("message", "edited_message", "callback_query")
"""Kinds of updates that are asked for."""


class Receiver:
    """Takes the updates of one bot, one after the other."""

    def __init__(self, bot: TelegramBot, store: Store, *, has_other_bots: bool) -> None:
        self._bot = bot
        self._store = store
        self._has_other_bots = has_other_bots
        self._admission = Admission(store, CHANNEL, bot.access.rules)
        self._arriving = asyncio.Lock()

    async def receive(self, raw: Mapping[str, Any], put: Put) -> bool:
        """Store the message, edit or press of an update.

        Returns after the commit, and True for a message of an admitted sender. Raises HoldfastError
        if it could not be stored. Unreadable updates are skipped: otherwise Telegram would send
        them again for ever, and nothing after them."""
        try:
            update = Update.model_validate(raw, context={"bot": self._bot.client})
        except (ValidationError, RecursionError, ValueError):
            log.warning(Entry(UPDATE_UNREADABLE, channel=CHANNEL, update=str(raw.get("update_id"))))
            return False
        async with self._arriving:
            if update.message is not None:
                return await self._receive_message(update.message, put)
            if update.edited_message is not None:
                await self._receive_edit(update.edited_message)
            if update.callback_query is not None:
                await self._receive_press(update.callback_query)
        return False

    async def receive_webhook(
        self, body: bytes, headers: Mapping[str, str], put: Put | None
    ) -> tuple[int, str] | None:
        """Handle a request to the webhook. Returns None if its secret is not that of this bot."""
        secret = self._bot.access.webhook_secret
        given = headers.get(SECRET_HEADER, "")
        if not secret or not hmac.compare_digest(given.encode(), secret.encode()):
            return None
        try:
            update = json.loads(body.decode())
        except (ValueError, RecursionError):
            return 400, "the body is not JSON"
        if not isinstance(update, dict):
            return 400, "the body is not an update of Telegram"
        if put is None:
            return 503, ""
        try:
            async with asyncio.timeout(SIGN_IN_WITHIN):
                await self._bot.ready()
            await self.receive(update, put)
        except (TimeoutError, AccessDenied):
            return 503, ""
        except HoldfastError as error:
            log.warning(Entry(RECEIVE_FAILED, channel=CHANNEL, error=error))
            return 503, ""
        return 200, ""

    async def _receive_message(self, message: Message, put: Put) -> bool:
        incoming = await self._incoming(message)
        if incoming.is_empty or not incoming.has_sender:
            return False
        decision = await self._admission.decide(incoming.sender)
        if decision.is_admitted:
            await put(incoming.event)
        else:
            await self._admission.announce(decision, incoming.payload)
        return decision.is_admitted

    async def _receive_edit(self, message: Message) -> None:
        incoming = await self._incoming(message)
        await edit_message(self._store, incoming.id, incoming.text)

    async def _receive_press(self, query: CallbackQuery) -> None:
        """Send the signal of a button, and take the buttons away.

        Telegram shows a clock on the button until the query is answered."""
        message = query.message
        if not isinstance(message, Message) or query.data is None:
            return
        incoming = await self._incoming(message)
        person = query.from_user
        sender = Sender(
            id=str(person.id),
            name=name_of(person),
            conversation=incoming.conversation,
            is_direct=incoming.is_direct,
            is_mentioned=True,
            group=None if incoming.is_direct else str(message.chat.id),
        )
        decision = await self._admission.decide(sender)
        button = None
        if decision.is_admitted:
            button = await press(self._store, query.data, CHANNEL, sender)
        await self._answer(query, message, is_taken=button is not None)

    async def _answer(self, query: CallbackQuery, message: Message, *, is_taken: bool) -> None:
        chat = str(message.chat.id)
        text = None if is_taken else "This question is closed."
        try:
            await self._bot.call(AnswerCallbackQuery(callback_query_id=query.id, text=text))
            if is_taken:
                taken = EditMessageReplyMarkup(
                    chat_id=message.chat.id, message_id=message.message_id, reply_markup=None
                )
                await self._bot.call(taken, chat=chat)
        except HoldfastError as error:
            # The signal is stored; a button that stays visible does no harm.
            log.info(Entry(RECEIVE_FAILED, channel=CHANNEL, error=error))

    async def _incoming(self, message: Message) -> Incoming:
        return Incoming(await self._bot.ready(), message, self._has_other_bots)
