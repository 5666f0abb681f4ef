"""Fixtures of the tests of WhatsApp: a local Cloud API, and limits that suit it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio

from holdfast.channels.whatsapp import access
from holdfast.channels.whatsapp.access import Limits
from holdfast.queue.policy import Backoff
from holdfast.testing.whatsapp import FakeWhatsApp

SOON = timedelta(milliseconds=50)
QUICK = Limits(
    backoff=Backoff(first=SOON, most=SOON),
    unreachable_delay=SOON,
    repair_delay=SOON,
    download_bytes=1000,
)


@pytest_asyncio.fixture
async def whatsapp(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeWhatsApp]:
    """A local Cloud API in the environment, and no Slack."""
    for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(access, "LIMITS", QUICK)
    async with FakeWhatsApp() as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        yield server
