"""Checks of a mailbox for `holdfast doctor`: reading and sending."""

from __future__ import annotations

import asyncio
import smtplib
from collections.abc import Callable

from imapclient.exceptions import IMAPClientError  # type: ignore[import-untyped]

from holdfast.channels.base import Check
from holdfast.channels.email.access import Access
from holdfast.channels.email.mailbox import AccessDenied, open_mailbox
from holdfast.channels.email.outgoing import sign_in

CHECK_WITHIN = 10.0


async def check(access: Access) -> list[Check]:
    """Check one mailbox: reading by IMAP, and sending by SMTP."""
    return [
        await _check("E-mail in", lambda: _read(access)),
        await _check("E-mail out", lambda: _send(access)),
        _forgery(access),
    ]


async def _check(name: str, ask: Callable[[], str]) -> Check:
    try:
        async with asyncio.timeout(CHECK_WITHIN):
            return Check(name, "ok", await asyncio.to_thread(ask))
    except AccessDenied as error:
        return Check(name, "fail", str(error))
    except smtplib.SMTPResponseException as error:
        return Check(name, "fail", f"the server refuses the login ({error.smtp_code})")
    except Exception as error:  # noqa: BLE001 - whatever fails is a line for people
        return Check(name, "fail", f"the server cannot be reached: {type(error).__name__}")


def _read(access: Access) -> str:
    with open_mailbox(access) as mailbox:
        try:
            sent = "with" if mailbox.has_sent_folder else "without"
        except IMAPClientError:
            sent = "without"
        return f"{access.address} can be read, {sent} a folder of sent messages"


def _send(access: Access) -> str:
    with sign_in(access):
        return f"the server {access.smtp.host} takes messages"


def _forgery(access: Access) -> Check:
    if access.authentication_server:
        detail = f"only messages that {access.authentication_server} vouches for are read"
        return Check("E-mail senders", "ok", detail)
    detail = "senders can be forged: set authentication_server to the name of your mail server"
    return Check("E-mail senders", "warn", detail)
