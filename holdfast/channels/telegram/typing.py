"""The sign that the bot is typing, while an agent works on a message."""

from __future__ import annotations

import asyncio

from aiogram.enums import ChatAction
from aiogram.methods import SendChatAction

from holdfast.channels.telegram.bot import TelegramBot
from holdfast.channels.telegram.post import Destination
from holdfast.errors import HoldfastError


async def keep_typing(bot: TelegramBot, destination: Destination) -> None:
    """Send the sign again before it disappears. A sign that Telegram refuses is not worth a log."""
    method = SendChatAction(
        chat_id=destination.chat, message_thread_id=destination.thread, action=ChatAction.TYPING
    )
    while True:
        try:
            await bot.call(method, chat=f"typing {destination.chat}")
        except HoldfastError:
            return
        await asyncio.sleep(bot.access.limits.typing_every.total_seconds())
