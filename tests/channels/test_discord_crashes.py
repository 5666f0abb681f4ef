"""kill -9 between a send to Discord and its settle: exactly one visible answer."""

from __future__ import annotations

import signal
from pathlib import Path

from holdfast.store import open_store
from holdfast.testing.discord import LocalDiscord
from tests.channels.crashes import process, without_grace
from tests.channels.discord_fixtures import discord
from tests.channels.doomed import AFTER_POST, parts_of
from tests.steps import both_engines, finished

__all__ = ["discord"]


@both_engines
async def test_a_process_that_dies_after_sending_leaves_exactly_one_answer(
    discord: LocalDiscord, database_url: str, tmp_path: Path
) -> None:
    without_grace(database_url)
    async with process("discord", database_url, tmp_path, AFTER_POST) as doomed:
        await discord.mention("hello")
        assert await doomed.death() == -signal.SIGKILL
    # Written while no process runs: found in the history of the room.
    await discord.mention("echo and then")
    async with process("discord", database_url, tmp_path), open_store(database_url) as store:
        await finished(store, count=2, queue="outbox")
    texts = [reply["content"] for reply in discord.bot_messages()]
    assert sorted(texts, key=len) == ["and then", *parts_of("discord")]
    # The second part was sent twice with one nonce.
    assert discord.faults.calls["create_message"] == 4
