"""The contract of channels for Discord, against the local Discord."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from holdfast.channels.discord import factory
from holdfast.channels.discord.access import Access
from holdfast.settings.channels.discord import Discord
from holdfast.settings.channels.table import Pairing
from holdfast.testing.channels import ChannelContract, Platform
from holdfast.testing.discord import LocalDiscord
from holdfast.testing.discord.guild import ADA, BEN, GENERAL, OTHER_BOT
from tests.channels.discord_fixtures import QUICK, quick_access


class DiscordPlatform(Platform):
    """One channel of a server."""

    name = "discord"
    limit = 2000
    largest_file = QUICK.download_bytes
    largest_upload = QUICK.upload_bytes
    # Discord takes no acknowledgement; what was not stored is fetched from the history.
    can_acknowledge = False
    can_go_away = True

    def __init__(self, discord: LocalDiscord) -> None:
        self._discord = discord
        self._messages: dict[str, dict[str, Any]] = {}

    async def say(self, text: str) -> str:
        return await self._mention(text)

    async def _mention(self, text: str, **further: Any) -> str:
        message = await self._discord.mention(text, **further)
        self._messages[message["id"]] = message
        return str(message["id"])

    async def answers(self) -> list[str]:
        return [one["content"] for one in self._discord.bot_messages() if one["content"]]

    async def say_again(self, message: str) -> None:
        await self._discord.deliver(self._messages[message])

    async def edit(self, message: str, text: str) -> None:
        await self._discord.edit(self._messages[message], text)

    async def delete(self, message: str) -> None:
        await self._discord.delete(self._messages[message])

    async def send_file(self, text: str, name: str, content: bytes) -> str:
        return await self._mention(text, attachments=[self._discord.rest.attachment(name, content)])

    async def files(self) -> Mapping[str, bytes]:
        return {
            file["filename"]: self._discord.guild.files[file["id"]]
            for message in self._discord.bot_messages()
            for file in message["attachments"]
        }

    async def was_typing(self) -> bool:
        return bool(self._discord.rest.typing)

    async def say_as_stranger(self, text: str) -> None:
        await self._discord.say_directly(text, user=BEN)

    async def answers_to_stranger(self) -> list[str]:
        room = self._discord.guild.direct_room(BEN)
        return [message["content"] for message in self._discord.bot_messages(room.id)]

    async def say_unaddressed(self, text: str) -> None:
        await self._discord.say(text, room=GENERAL)

    async def say_as_bot(self, text: str) -> None:
        await self._mention(text, user=OTHER_BOT)

    async def limit_next(self, seconds: int) -> None:
        self._discord.faults.plan("create_message", "ratelimited", seconds=seconds)

    async def refuse_next(self) -> str:
        self._discord.faults.plan("create_message", "error", code="50013")
        return "50013"

    async def lose_next_answer(self) -> None:
        self._discord.faults.plan("create_message", "drop_after")

    async def disconnect(self) -> None:
        self._discord.gateway.drop(forget=True)

    async def go_away(self) -> None:
        self._discord.go_away()

    async def come_back(self) -> None:
        self._discord.come_back()

    async def revoke_token(self) -> None:
        self._discord.token = "another token"


class TestDiscord(ChannelContract):
    """The Discord channel."""

    @pytest_asyncio.fixture
    async def platform(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Platform]:
        def admitting_access(table: Discord, pairing: Pairing) -> Access:
            access = quick_access(table, pairing)
            return replace(access, rules=replace(access.rules, allow=frozenset((ADA,))))

        monkeypatch.setattr(factory, "access_of", admitting_access)
        async with LocalDiscord() as discord:
            monkeypatch.setenv("DISCORD_BOT_TOKEN", discord.token)
            monkeypatch.setenv("DISCORD_API_URL", discord.api_url)
            yield DiscordPlatform(discord)
