"""Fixtures of the tests of Discord: a local server, and limits that suit it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
import pytest_asyncio

from holdfast.channels.discord import factory
from holdfast.channels.discord.access import Access, Limits, access_of
from holdfast.queue.policy import Backoff
from holdfast.settings.channels.discord import Discord
from holdfast.settings.channels.table import Pairing
from holdfast.testing.discord import LocalDiscord

QUICK = Limits(
    guilds_within=timedelta(milliseconds=20),
    reconnect_backoff=Backoff(first=timedelta(milliseconds=20), most=timedelta(milliseconds=100)),
    unreachable_delay=timedelta(milliseconds=50),
    refused_retry=timedelta(milliseconds=200),
    download_bytes=100,
    upload_bytes=100,
)


def quick_access(table: Discord, pairing: Pairing) -> Access:
    return replace(access_of(table, pairing), limits=QUICK)


@pytest_asyncio.fixture
async def discord(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalDiscord]:
    """A local Discord in the environment, and no Slack."""
    for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(factory, "access_of", quick_access)
    monkeypatch.setenv("HOLDFAST_PAIRING", "open")
    async with LocalDiscord() as server:
        monkeypatch.setenv("DISCORD_BOT_TOKEN", server.token)
        monkeypatch.setenv("DISCORD_API_URL", server.api_url)
        yield server
