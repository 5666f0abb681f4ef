"""A crowd in private chats of the local Telegram."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from holdfast.testing.crowds import Answer, Crowd
from holdfast.testing.faults import Limit
from holdfast.testing.telegram import FakeTelegram

FIRST_PERSON = 8000


class TelegramCrowd(Crowd):
    """People, each in their own chat with the bot."""

    title = "Telegram"

    def __init__(self, telegram: FakeTelegram) -> None:
        super().__init__()
        self._telegram = telegram

    @property
    def variables(self) -> Mapping[str, str]:
        return {
            "TELEGRAM_BOT_TOKEN": self._telegram.token,
            "TELEGRAM_API_URL": self._telegram.api_url,
        }

    async def wait_ready(self) -> None:
        await self._telegram.until(lambda: self._telegram.faults.calls["getUpdates"])

    async def write(self, thread: int, text: str) -> None:
        person = FIRST_PERSON + thread
        self._telegram.chats.users.setdefault(person, (f"Person {thread}", f"p{thread}"))
        await self._telegram.say(text, user=person)

    async def answers(self) -> Mapping[int, list[Answer]]:
        taken_at = self._telegram.chats.taken_at
        return {
            thread: [
                Answer(one["text"], taken_at[one["message_id"]])
                for one in self._telegram.bot_messages(FIRST_PERSON + thread)
            ]
            for thread in self.sent_at
        }

    def limit(self) -> None:
        self._telegram.faults.limits["sendMessage"] = Limit(most=5, seconds=1, by="chat_id")

    @property
    def early_requests(self) -> Counter[str]:
        return self._telegram.faults.impatient


@asynccontextmanager
async def telegram_crowd() -> AsyncIterator[Crowd]:
    """Start a local Telegram."""
    async with FakeTelegram() as telegram:
        yield TelegramCrowd(telegram)
