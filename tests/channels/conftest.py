"""Fixtures: the real slack-bolt runs against the fake Slack, on every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.settings import Settings
from holdfast.testing.slack import FakeSlack
from holdfast.testing.telegram import FakeTelegram


@pytest_asyncio.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as slack:
        yield slack


@pytest.fixture(autouse=True)
def slack_in_the_environment(slack: FakeSlack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", slack.bot_token)
    monkeypatch.setenv("SLACK_APP_TOKEN", slack.app_token)
    monkeypatch.setenv("SLACK_API_URL", slack.api_url)


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, database=database_url)


@pytest.fixture
def without_slack(slack_in_the_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_API_URL"):
        monkeypatch.delenv(name)


@pytest_asyncio.fixture
async def telegram(
    without_slack: None, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as telegram:
        monkeypatch.setenv("TELEGRAM_BOT_TOKEN", telegram.token)
        monkeypatch.setenv("TELEGRAM_API_URL", telegram.api_url)
        yield telegram
