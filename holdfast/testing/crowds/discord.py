"""A crowd in the threads of the local Discord."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from holdfast.testing.crowds import Answer, Crowd
from holdfast.testing.discord import LocalDiscord
from holdfast.testing.discord.guild import DISCORD_EPOCH_MS, GENERAL, Message
from holdfast.testing.faults import Limit


class DiscordCrowd(Crowd):
    """Threads of one channel, in which people mention the bot."""

    title = "Discord"

    def __init__(self, discord: LocalDiscord) -> None:
        super().__init__()
        self._discord = discord
        self._rooms: dict[int, str] = {}

    @property
    def variables(self) -> Mapping[str, str]:
        return {"DISCORD_BOT_TOKEN": self._discord.token, "DISCORD_API_URL": self._discord.api_url}

    async def wait_ready(self) -> None:
        await self._discord.until(lambda: self._discord.gateway.counts["identify"])

    async def write(self, thread: int, text: str) -> None:
        if thread not in self._rooms:
            room = self._discord.guild.thread(GENERAL, f"thread {thread}")
            self._rooms[thread] = room.id
            await self._discord.announce(room)
        await self._discord.mention(text, room=self._rooms[thread])

    async def answers(self) -> Mapping[int, list[Answer]]:
        return {
            thread: [Answer(one["content"], _time(one)) for one in self._discord.bot_messages(room)]
            for thread, room in self._rooms.items()
        }

    def limit(self) -> None:
        self._discord.faults.limits["create_message"] = Limit(most=5, seconds=5, by="room")

    @property
    def early_requests(self) -> Counter[str]:
        return self._discord.faults.impatient


def _time(message: Message) -> float:
    return ((int(message["id"]) >> 22) + DISCORD_EPOCH_MS) / 1000


@asynccontextmanager
async def discord_crowd() -> AsyncIterator[Crowd]:
    """Start a local Discord."""
    async with LocalDiscord() as discord:
        yield DiscordCrowd(discord)
