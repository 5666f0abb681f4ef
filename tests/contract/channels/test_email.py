"""The contract of channels for e-mail, against Dovecot and Postfix."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from email.message import EmailMessage
from email.utils import make_msgid

import pytest
import pytest_asyncio

from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.channels.email import factory
from holdfast.channels.email.access import Access, access_of
from holdfast.channels.watermark import Watermarks
from holdfast.settings import Settings
from holdfast.settings.channels.email import Email
from holdfast.settings.channels.table import Pairing
from holdfast.testing.channels import ChannelContract, Platform
from holdfast.testing.channels.contract import platform_only
from holdfast.testing.harness import quick_harness, running, until
from holdfast.testing.mail import MailServer
from tests.channels.forwarder import Forwarder
from tests.channels.mail_fixtures import QUICK, Mail, server, text

__all__ = ["server"]


LARGEST_MESSAGE = 10_000


class EmailPlatform(Platform):
    """One thread."""

    name = "email"
    largest_file = LARGEST_MESSAGE
    largest_upload = QUICK.upload_bytes
    can_go_away = True
    # A message cannot be changed after it was sent, and nobody sees that an agent works.
    can_edit = can_delete = can_show_typing = can_show_growth = False
    # Postfix does none of this on demand; other tests refuse a recipient and kill a process.
    can_limit = can_refuse = can_look_up = False
    has_groups = has_bots = False

    def __init__(self, mail: Mail, imap: Forwarder, monkeypatch: pytest.MonkeyPatch) -> None:
        self._mail = mail
        self._imap = imap
        self._monkeypatch = monkeypatch
        self._mails: dict[str, EmailMessage] = {}
        self._app: AgentHarness | None = None

    def prepare(self, app: AgentHarness) -> None:
        self._app = app

    async def say(self, text: str) -> str:
        return await self._send(self._new_mail(text))

    def _new_mail(self, text: str) -> EmailMessage:
        """Return a message of the thread."""
        root = next(iter(self._mails), None)
        return self._mail.letter(text, **({"References": root} if root else {}))

    async def _send(self, letter: EmailMessage) -> str:
        """Send a message, and wait until it has arrived, so that the next one comes later."""
        count = len(await asyncio.to_thread(self._mail.server.read, self._mail.bot))
        id = await self._mail.send(letter)
        self._mails[id] = letter
        await self._mail.received(self._mail.bot, count + 1)
        return id

    async def answers(self) -> list[str]:
        found = await asyncio.to_thread(self._mail.server.read, self._mail.ada)
        return [text(message) for message in found]

    async def say_again(self, message: str) -> None:
        await self._send(self._mails[message])

    async def is_acknowledged(self, message: str) -> bool:
        """Return whether the watermark has passed the message, the last one in the mailbox."""
        assert self._app is not None
        position = await Watermarks(self._app.store, "email").read(self._mail.folder)
        found = await asyncio.to_thread(self._mail.server.read, self._mail.bot)
        return int(str(position).partition(":")[2]) >= len(found)

    async def send_file(self, text: str, name: str, content: bytes) -> str:
        letter = self._new_mail(text)
        letter.add_attachment(content, maintype="text", subtype="plain", filename=name)
        return await self._send(letter)

    async def files(self) -> Mapping[str, bytes]:
        found = await asyncio.to_thread(self._mail.server.read, self._mail.ada)
        return {
            str(file.get_filename()): str(file.get_content()).encode()
            for message in found
            for file in message.iter_attachments()
        }

    async def say_as_stranger(self, text: str) -> None:
        letter = self._mail.server.letter(f"stranger-{self._mail.ada}", self._mail.bot, text)
        del letter["Message-ID"]
        letter["Message-ID"] = make_msgid()
        await self._mail.send(letter)

    async def answers_to_stranger(self) -> list[str]:
        name = f"stranger-{self._mail.ada}"
        return [text(one) for one in await asyncio.to_thread(self._mail.server.read, name)]

    async def disconnect(self) -> None:
        await asyncio.to_thread(self._mail.server.kick, self._mail.bot)

    async def go_away(self) -> None:
        await self._imap.go_away()

    async def come_back(self) -> None:
        await self._imap.come_back()

    async def revoke_token(self) -> None:
        url = self._mail.server.imap_url(self._mail.bot, "another")
        self._monkeypatch.setenv("EMAIL_IMAP_URL", url)


@pytest.mark.skipif(os.geteuid() != 0, reason="Dovecot and Postfix have to be started by root")
class TestEmail(ChannelContract):
    """The e-mail channel."""

    @pytest_asyncio.fixture
    async def platform(
        self, server: MailServer, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[Platform]:
        mail = Mail(server)
        mail.set_environment(monkeypatch)

        def quick_access(table: Email, pairing: Pairing) -> Access:
            access = access_of(table, pairing)
            rules = replace(access.rules, allow=frozenset((server.address(mail.ada),)))
            return replace(access, limits=replace(QUICK, mail_bytes=LARGEST_MESSAGE), rules=rules)

        monkeypatch.setattr(factory, "access_of", quick_access)
        async with Forwarder(server.imap_port).open() as imap:
            monkeypatch.setenv("EMAIL_IMAP_URL", server.imap_url(mail.bot, port=imap.port))
            yield EmailPlatform(mail, imap, monkeypatch)

    @platform_only
    async def test_a_long_answer_is_split_at_the_limit_and_code_blocks_stay_whole(
        self, platform: Platform, settings: Settings
    ) -> None:
        """A message has no limit, so that it stays whole."""
        whole = "\n".join(f"{number} {'x' * 200}" for number in range(500))

        async def answer(turn: Turn) -> str:
            return whole

        app = quick_harness(answer)
        async with running(app, settings):
            await platform.say("go on")
            [found] = await until(platform.answers)
        assert found.replace("\r\n", "\n") == whole
