"""A crowd that writes to one mailbox of real mail servers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.message import EmailMessage

from holdfast.testing.crowds import Answer, Crowd
from holdfast.testing.harness import until
from holdfast.testing.mail import Inbox, MailServer

BOT, ADA = "bot", "ada"
_THREAD = re.compile(r"(?:Re: )?thread (-?\d+)")


class EmailCrowd(Crowd):
    """Threads of one person, told apart by their subjects."""

    title = "e-mail"
    per_second = 5
    poll_seconds = 0.5

    def __init__(self, server: MailServer) -> None:
        super().__init__()
        self._server = server
        self._sent: dict[int, list[str]] = {}
        self._to_bot, self._to_ada = Inbox(server, BOT), Inbox(server, ADA)

    @property
    def variables(self) -> Mapping[str, str]:
        return {
            "EMAIL_IMAP_URL": self._server.imap_url(BOT),
            "EMAIL_SMTP_URL": self._server.smtp_url,
            "EMAIL_ADDRESS": self._server.address(BOT),
        }

    async def write(self, thread: int, text: str) -> None:
        earlier = self._sent.setdefault(thread, [])
        if earlier:
            # Postfix promises no order, so the one before has to be there.
            await self._arrival(earlier[-1])
        further = {"References": " ".join(earlier)} if earlier else {}
        letter = self._server.letter(ADA, BOT, text, **further)
        letter.replace_header("Subject", f"thread {thread}")
        earlier.append(await asyncio.to_thread(self._server.send, letter))

    async def _arrival(self, id: str) -> None:
        def is_there() -> bool:
            return any(str(letter["Message-ID"]) == id for _, letter in self._to_bot.read())

        await until(is_there)

    async def answers(self) -> Mapping[int, list[Answer]]:
        found: dict[int, list[Answer]] = {thread: [] for thread in self._sent}
        for at, letter in await asyncio.to_thread(self._to_ada.read):
            subject = _THREAD.fullmatch(str(letter["Subject"]))
            assert subject is not None, letter["Subject"]
            found[int(subject[1])].append(Answer(_text(letter), at))
        return found


def _text(letter: EmailMessage) -> str:
    body = letter.get_body(("plain",))
    return "" if body is None else str(body.get_content()).strip()


@asynccontextmanager
async def email_crowd() -> AsyncIterator[Crowd]:
    """Start Dovecot and Postfix."""
    server = MailServer()
    await asyncio.to_thread(server.__enter__)
    try:
        yield EmailCrowd(server)
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)
