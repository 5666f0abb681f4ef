"""A message of the bot: its destination, sending, editing and deleting it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from aiogram.enums import ParseMode
from aiogram.exceptions import TelegramMigrateToChat
from aiogram.methods import (
    DeleteMessage,
    EditMessageText,
    SendDocument,
    SendMessage,
    TelegramMethod,
)
from aiogram.types import (
    BufferedInputFile,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    LinkPreviewOptions,
    ReplyParameters,
)

from holdfast.channels.base import Undeliverable
from holdfast.channels.preview import STILL_GROWING
from holdfast.channels.split import reach_utf16, split
from holdfast.channels.telegram.bot import TelegramBot
from holdfast.channels.telegram.markdown import telegram_html
from holdfast.message import Payload

T = TypeVar("T")

LONGEST_PART = 4096
"""UTF-16 units of one message, after Telegram parsed its entities."""
CANNOT_PARSE = "can't parse entities"
NOT_MODIFIED = "message is not modified"
GONE = ("message to edit not found", "message can't be edited", "message to delete not found")
TOO_LATE = (*GONE, "message can't be deleted", "MESSAGE_ID_INVALID")
"""Answers to an edit or a deletion of a message that is gone, or too old."""
NO_PREVIEW = LinkPreviewOptions(is_disabled=True)

_CONVERSATION = re.compile(r"telegram:(?:(\d{1,20})@)?(-?\d{1,20})(?::(\d{1,20}))?")
_ANSWERED = re.compile(r"telegram_(\d{1,20})_(-?\d{1,20})_(\d{1,20})")
_CHAT = re.compile(r"-?\d{1,20}")


@dataclass(frozen=True, slots=True)
class Destination:
    """Target of a response. `bot` is None if the response does not name one."""

    bot: int | None
    chat: int
    thread: int | None = None
    reply_to: int | None = None
    """Message to which the first part replies, in a group."""


def destination_of(response: Payload) -> Destination:
    """Read the destination of a response. Raises Undeliverable if it names none."""
    answered = _ANSWERED.match(str(response.get("message_id") or ""))
    found = _CONVERSATION.fullmatch(str(response.get("conversation") or ""))
    bot = int(answered[1]) if answered else None
    if found is None:
        return Destination(bot, _recipient(response))
    chat, thread = int(found[2]), None if found[3] is None else int(found[3])
    is_answer = answered is not None and int(answered[2]) == chat
    # Chats with one person have positive ids, and need no reference to the answered message.
    reply_to = int(answered[3]) if answered is not None and is_answer and chat < 0 else None
    return Destination(int(found[1]) if found[1] else bot, chat, thread, reply_to)


def _recipient(response: Payload) -> int:
    """Return the chat of a proactive message."""
    for name in ("sender_id", "sender"):
        if _CHAT.fullmatch(given := str(response.get(name) or "")):
            return int(given)
    raise Undeliverable(
        "no_address", "the response names neither a conversation nor the id of a chat"
    )


def texts_of(text: str) -> list[str]:
    """Return a text as Telegram's messages, cut at its limit."""
    return split(text, LONGEST_PART, reach_utf16)


def growing_texts_of(text: str) -> list[str]:
    """Return a text as Telegram's messages, with room for a sign that it grows."""
    return split(text, LONGEST_PART - len(STILL_GROWING), reach_utf16)


@dataclass(frozen=True, slots=True)
class Post:
    """One message. Telegram offers no way to find it again by its key."""

    bot: TelegramBot
    destination: Destination
    key: str
    buttons: Sequence[tuple[str, str]] = ()
    """Labels and data of the buttons below it."""

    async def post(self, text: str) -> str:
        """Send the message. Returns its id."""
        try:
            return await self._post(text)
        except Undeliverable as error:
            return await self._in_supergroup(error).post(text)

    async def edit(self, id: str, text: str) -> bool:
        """Replace the text of a message. Returns False if it is too late."""
        try:
            await self._with_fallback(
                EditMessageText(
                    chat_id=self.destination.chat,
                    message_id=int(id),
                    text=text,
                    parse_mode=None,
                    link_preview_options=NO_PREVIEW,
                    reply_markup=self._keyboard,
                ),
                text,
            )
        except Undeliverable as error:
            if NOT_MODIFIED in str(error):
                return True
            if not any(reason in str(error) for reason in TOO_LATE):
                raise
            return False
        return True

    async def delete(self, id: str) -> None:
        """Delete a message, unless it is gone."""
        method = DeleteMessage(chat_id=self.destination.chat, message_id=int(id))
        try:
            await self.bot.call(method, chat=self._chat)
        except Undeliverable as error:
            if not any(reason in str(error) for reason in TOO_LATE):
                raise

    async def find(self, key: str) -> str | None:
        """Return None: bots cannot read the history of a chat."""
        return None

    async def send_file(self, name: str, content: bytes) -> str:
        """Send a file. Returns the id of its message."""
        method = SendDocument(
            chat_id=self.destination.chat,
            message_thread_id=self.destination.thread,
            document=BufferedInputFile(content, filename=name),
        )
        try:
            return str((await self.bot.call(method, chat=self._chat)).message_id)
        except Undeliverable as error:
            return await self._in_supergroup(error).send_file(name, content)

    def _in_supergroup(self, error: Undeliverable) -> Post:
        """Return the message in the supergroup that its group became. Raises any other error."""
        if not isinstance(error.__cause__, TelegramMigrateToChat):
            raise error
        chat = error.__cause__.migrate_to_chat_id
        return replace(self, destination=replace(self.destination, chat=chat, reply_to=None))

    async def _post(self, text: str) -> str:
        to = self.destination
        method = SendMessage(
            chat_id=to.chat,
            message_thread_id=to.thread,
            text=text,
            parse_mode=None,
            link_preview_options=NO_PREVIEW,
            reply_parameters=None
            if to.reply_to is None
            else ReplyParameters(message_id=to.reply_to, allow_sending_without_reply=True),
            reply_markup=self._keyboard,
        )
        return str((await self._with_fallback(method, text)).message_id)

    async def _with_fallback(self, method: TelegramMethod[T], text: str) -> T:
        """Send Markdown as HTML, and as it was written if Telegram cannot parse that."""
        html = method.model_copy(update={"text": telegram_html(text), "parse_mode": ParseMode.HTML})
        try:
            return await self.bot.call(html, chat=self._chat)
        except Undeliverable as error:
            if CANNOT_PARSE not in str(error):
                raise
        return await self.bot.call(method, chat=self._chat)

    @property
    def _chat(self) -> str:
        return str(self.destination.chat)

    @property
    def _keyboard(self) -> InlineKeyboardMarkup | None:
        rows = [[InlineKeyboardButton(text=label, callback_data=id)] for label, id in self.buttons]
        return InlineKeyboardMarkup(inline_keyboard=rows) if rows else None
