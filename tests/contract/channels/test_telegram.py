"""The contract of channels for Telegram, against the local Bot API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.channels.telegram import access
from holdfast.channels.telegram.access import Limits
from holdfast.queue.policy import Backoff
from holdfast.settings import Settings
from holdfast.settings.channels import Channels
from holdfast.settings.channels.telegram import Telegram
from holdfast.testing.channels import ChannelContract, Platform
from holdfast.testing.telegram import ADA, GROUP, FakeTelegram
from holdfast.testing.telegram.chats import BOB, OTHER_BOT

SOON = timedelta(milliseconds=50)
LARGEST_FILE = 1000


class TelegramPlatform(Platform):
    """The private chat of a person with the bot."""

    name = "telegram"
    limit = 4096
    largest_file = largest_upload = LARGEST_FILE
    can_go_away = True
    # Telegram tells bots nothing of deletions, and has no history that they could read.
    can_delete = can_look_up = False

    def __init__(self, telegram: FakeTelegram) -> None:
        self._telegram = telegram

    async def say(self, text: str) -> str:
        return str(await self._telegram.say(text))

    async def answers(self) -> list[str]:
        return [one["text"] for one in self._telegram.bot_messages() if "text" in one]

    async def say_again(self, message: str) -> None:
        found = self._telegram.chats.find(ADA, int(message))
        await self._telegram.deliver({"message": found})
        await self._telegram.until(lambda: not self._telegram.updates)

    async def is_acknowledged(self, message: str) -> bool:
        ids = [one.get("message", {}).get("message_id") for one in self._telegram.confirmed]
        return int(message) in ids

    async def edit(self, message: str, text: str) -> None:
        await self._telegram.edit(int(message), text)

    async def send_file(self, text: str, name: str, content: bytes) -> str:
        return str(await self._telegram.send_file("document", content, name=name, caption=text))

    async def files(self) -> Mapping[str, bytes]:
        sent = [one["document"] for one in self._telegram.bot_messages() if "document" in one]
        uploads = self._telegram.chats.uploads
        return {file["file_name"]: uploads[file["file_id"]].content for file in sent}

    async def was_typing(self) -> bool:
        return (ADA, "typing") in self._telegram.chats.actions

    async def say_as_stranger(self, text: str) -> None:
        await self._telegram.say(text, user=BOB)

    async def answers_to_stranger(self) -> list[str]:
        return [one["text"] for one in self._telegram.bot_messages(BOB)]

    async def say_unaddressed(self, text: str) -> None:
        await self._telegram.say(text, chat=GROUP)

    async def say_as_bot(self, text: str) -> None:
        await self._telegram.say(text, user=OTHER_BOT, chat=ADA)

    async def limit_next(self, seconds: int) -> None:
        self._telegram.faults.plan("sendMessage", "ratelimited", seconds=seconds)

    async def refuse_next(self) -> str:
        code = "403 Forbidden: bot was blocked by the user"
        self._telegram.faults.plan("sendMessage", "error", code=code)
        return "403"

    async def disconnect(self) -> None:
        self._telegram.disconnect()

    async def go_away(self) -> None:
        for method in ("getMe", "getUpdates"):
            self._telegram.faults.plan(method, "drop_before", times=1_000_000)
        self._telegram.disconnect()

    async def come_back(self) -> None:
        self._telegram.faults.planned.clear()

    async def revoke_token(self) -> None:
        self._telegram.is_revoked = True


class TestTelegram(ChannelContract):
    """The Telegram channel."""

    @pytest_asyncio.fixture
    async def platform(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Platform]:
        backoff = Backoff(first=SOON, most=SOON)
        limits = Limits(backoff=backoff, download_bytes=LARGEST_FILE, upload_bytes=LARGEST_FILE)
        monkeypatch.setattr(access, "LIMITS", limits)
        async with FakeTelegram() as telegram:
            monkeypatch.setenv("TELEGRAM_BOT_TOKEN", telegram.token)
            monkeypatch.setenv("TELEGRAM_API_URL", telegram.api_url)
            yield TelegramPlatform(telegram)

    @pytest.fixture
    def settings(self, platform: Platform, database_url: str, tmp_path: Path) -> Settings:
        channels = Channels(telegram=(Telegram(allow=(str(ADA),)),))
        return Settings(home=tmp_path, database=database_url, channels=channels)
