"""Fixtures of the tests of e-mail: real servers, and people of their own for each test."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest

from holdfast.channels.email.access import Limits
from holdfast.queue.policy import Backoff
from holdfast.testing.harness import until
from holdfast.testing.mail import MailServer
from tests.steps import AT_ONCE

TOOLS = Path(__file__).parents[2] / "tools"
QUICK = Limits(reconnect_backoff=Backoff(first=AT_ONCE, most=AT_ONCE))
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[MailServer]:
    """Where the servers cannot be had, tests are skipped, and in CI they fail."""
    asked = subprocess.run([TOOLS / "mail"], capture_output=True, text=True, check=False)
    if asked.returncode and os.environ.get("CI") == "true":
        pytest.fail(f"no mail server: {asked.stderr.strip()}", pytrace=False)
    if asked.returncode:
        pytest.skip(f"no mail server: {asked.stderr.strip()}")
    with MailServer() as mail:
        yield mail


class Mail:
    """The bot and Ada, with mailboxes of their own."""

    def __init__(self, server: MailServer) -> None:
        number = next(_numbers)
        self.server = server
        self.bot, self.ada = f"bot{number}", f"ada{number}"

    @property
    def folder(self) -> str:
        """The source of the bot's watermark."""
        return f"{self.server.address(self.bot)}/INBOX"

    def set_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Turn on e-mail, and Slack off."""
        for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_API_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("EMAIL_IMAP_URL", self.server.imap_url(self.bot))
        monkeypatch.setenv("EMAIL_SMTP_URL", self.server.smtp_url)
        monkeypatch.setenv("EMAIL_ADDRESS", self.server.address(self.bot))

    async def write(self, text: str, **headers: str) -> str:
        return await self.send(self.letter(text, **headers))

    def letter(self, text: str, **headers: str) -> EmailMessage:
        return self.server.letter(self.ada, self.bot, text, **headers)

    async def send(self, letter: EmailMessage) -> str:
        return await asyncio.to_thread(self.server.send, letter)

    async def answers(self, count: int = 1) -> list[EmailMessage]:
        """Wait for mail to Ada. Returns all of it."""
        return await self.received(self.ada, count)

    async def received(self, name: str, count: int) -> list[EmailMessage]:
        async def enough() -> list[EmailMessage]:
            found = await asyncio.to_thread(self.server.read, name)
            return found if len(found) >= count else []

        found: list[EmailMessage] = await until(enough)
        return found


def text(message: EmailMessage) -> str:
    body = message.get_body(("plain",))
    assert body is not None
    return str(body.get_content()).strip()
