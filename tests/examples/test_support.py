"""The support inbox with real mail servers, worked by real processes."""

from __future__ import annotations

import asyncio
import os
import signal
from email.message import EmailMessage
from pathlib import Path

import pytest

from holdfast.testing.harness import until
from holdfast.testing.mail import MailServer
from tests.channels.mail_fixtures import Mail, server, text
from tests.cli.shell import Shell
from tests.examples.conftest import Start

__all__ = ["server"]

EXAMPLE = "support"
KILLER = "import os\nimport re\nimport signal"
WORK = ("work", "--app", "support:app")

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="Dovecot and Postfix have to be started by root"
)


class Customer(Mail):
    """Ada, whose orders these are."""

    def __init__(self, server: MailServer, shell: Shell) -> None:
        super().__init__(server)
        orders = (shell.folder / "orders.toml").read_text()
        shell.write("orders.toml", orders.replace("ada@", f"{self.ada}@"))

    @property
    def variables(self) -> dict[str, str]:
        return {
            "EMAIL_IMAP_URL": self.server.imap_url(self.bot),
            "EMAIL_SMTP_URL": self.server.smtp_url,
            "EMAIL_ADDRESS": self.server.address(self.bot),
            "HOLDFAST_PAIRING": "open",
        }


@needs_root
async def test_customers_are_answered_by_mail(
    start: Start, shell: Shell, server: MailServer
) -> None:
    mail = Customer(server, shell)
    async with start(*WORK, **mail.variables):
        await mail.write("Where is order 1001?")
        await mail.answers(1)
        await mail.send(with_photo(mail.letter("Please refund order 1002")))
        await mail.answers(2)
        await mail.send(server.letter(f"eve{mail.ada}", mail.bot, "Please refund order 1002"))
        [refused] = await mail.received(f"eve{mail.ada}", 1)
        answers = [text(one) for one in await mail.answers(2)]
    assert answers[0] == "Order 1001 is on its way."
    paid = "We paid 20 euros back for order 1002 (R-1002). Thank you for the pictures (1)."
    assert answers[1] == paid
    assert text(refused).startswith("Which order is this about?")
    assert lines(shell.folder / "payments.csv") == ["R-1002,20"]


def with_photo(letter: EmailMessage) -> EmailMessage:
    letter.add_attachment(b"png", maintype="image", subtype="png", filename="photo.png")
    return letter


async def test_a_colleague_decides_about_large_amounts(start: Start, shell: Shell) -> None:
    payments = shell.folder / "payments.csv"
    async with start(*WORK):
        asked = await asyncio.to_thread(shell.json, "send", "Please refund order 1003")
        await asyncio.to_thread(shell.out, "send", "Where is order 1001?", "--wait")
        assert lines(payments) == []
        goes_on = await asyncio.to_thread(
            shell.out, "send", f"@staff approve {asked['messageId']}", "--wait"
        )
        assert goes_on == f"{asked['messageId']} goes on.\n"
        await until(lambda: lines(payments) == ["R-1003,250"])
        unknown = await asyncio.to_thread(shell.out, "send", "@staff approve nobody", "--wait")
        assert unknown == "That is not possible: there is no message 'nobody'.\n"


async def test_a_kill_in_the_middle_of_a_payment_pays_once(start: Start, shell: Shell) -> None:
    app = (shell.folder / "support.py").read_text()
    written = 'file.write(f"{payment},{euros}\\n")\n'
    assert written in app
    doomed = f"{written}    os.kill(os.getpid(), signal.SIGKILL)\n"
    shell.write("support.py", app.replace(written, doomed).replace("import re", KILLER))
    await asyncio.to_thread(shell.out, "migrate")
    asked = await asyncio.to_thread(shell.json, "send", "Please refund order 1002")
    async with start(*WORK) as running:
        assert await asyncio.to_thread(running.end) == -signal.SIGKILL
    shell.write("support.py", app)
    async with start(*WORK):
        await until(lambda: shell.json("history", "--queue", "inbox"))
    [event] = await asyncio.to_thread(shell.json, "history", "--queue", "inbox")
    assert (event["message_id"], event["outcome"]) == (asked["messageId"], "completed")
    assert lines(shell.folder / "payments.csv") == ["R-1002,20"]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
