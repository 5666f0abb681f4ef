"""Builds and sends messages over SMTP. Sending blocks, so it runs in a thread."""

from __future__ import annotations

import mimetypes
import smtplib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formataddr, formatdate

from holdfast.channels.base import NotNow, Undeliverable
from holdfast.channels.email.access import Access
from holdfast.channels.email.incoming import short_hash
from holdfast.channels.email.mailbox import AccessDenied

TIMEOUT = 30.0
DEFAULT_SUBJECT = "Message"
LINE_LENGTH = 200
"""Some programs do not read a Message-ID that stands on a line of its own."""


class Unreachable(NotNow):
    """No connection, so nothing was sent. An outage makes no dead letters."""

    def __init__(self, delay: timedelta, reason: object) -> None:
        super().__init__(delay)
        self.args = (f"the mail server is out of reach: {reason}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMail:
    """A message to send."""

    id: str
    to: str
    text: str
    subject: str = ""
    answered: str = ""
    """Message-ID of the message that it answers."""
    references: Sequence[str] = ()
    sender_name: str = ""
    files: Sequence[tuple[str, bytes]] = ()


def message_id(key: str, conversation: str, address: str) -> str:
    """Return the Message-ID of a part: the same in every process.

    It contains the conversation, so that replies are assigned to it."""
    thread = conversation.partition(":")[2]
    named = thread if len(thread) == 24 else short_hash(conversation)
    return f"<hf.{short_hash(key)}.{named}@{address.rpartition('@')[2]}>"


def compose(mail: OutgoingMail, access: Access) -> bytes:
    """Return a mail as bytes. Raises Undeliverable if its recipient is not an address."""
    message = EmailMessage(policy=SMTP.clone(max_line_length=_line_length(mail)))
    try:
        message["From"] = formataddr((mail.sender_name, access.address))
        message["To"] = mail.to
        message["Subject"] = _reply_subject(mail)
        message["Date"] = formatdate(localtime=False)
        message["Message-ID"] = mail.id
        if mail.answered:
            message["In-Reply-To"] = mail.answered
            message["References"] = " ".join([*mail.references, mail.answered])
    except (ValueError, UnicodeError) as error:
        raise Undeliverable("bad_address", f"cannot be written in a header: {error}") from None
    # Programs that answer automatically must not answer us.
    message["Auto-Submitted"] = "auto-replied" if mail.answered else "auto-generated"
    message["X-Auto-Response-Suppress"] = "All"
    message.set_content(mail.text)
    for name, content in mail.files:
        kind, _ = mimetypes.guess_type(name)
        main, _, sub = (kind or "application/octet-stream").partition("/")
        message.add_attachment(content, maintype=main, subtype=sub, filename=name)
    return message.as_bytes()


def _line_length(mail: OutgoingMail) -> int:
    """Return a length with room for each id: one that does not fit would be written encoded."""
    longest = max(len(id) for id in (mail.id, mail.answered, *mail.references))
    return max(LINE_LENGTH, longest + len("In-Reply-To: "))


def _reply_subject(mail: OutgoingMail) -> str:
    subject = " ".join(mail.subject.split()) or DEFAULT_SUBJECT
    is_reply = subject.lower().startswith("re:") or not mail.answered
    return subject if is_reply else f"Re: {subject}"


def send(access: Access, to: str, source: bytes) -> None:
    """Send a message. Raises Undeliverable, NotNow or AccessDenied if it was not taken."""
    limits = access.limits
    try:
        with _signed_in(access) as server:
            server.sendmail(access.address, [to], source)
    except smtplib.SMTPRecipientsRefused as error:
        code, text = next(iter(error.recipients.values()))
        raise _refusal(code, text, access) from None
    except smtplib.SMTPAuthenticationError as error:
        reason = f"{error.smtp_code} {_line(error.smtp_error)}"
        raise AccessDenied(
            f"{access.name}: the server for sending refuses the login: {reason}"
        ) from None
    except smtplib.SMTPResponseException as error:
        raise _refusal(error.smtp_code, error.smtp_error, access) from None
    except (ConnectionRefusedError, _NoConnection) as error:
        raise Unreachable(limits.unreachable_delay, error) from None


@contextmanager
def _signed_in(access: Access) -> Iterator[smtplib.SMTP]:
    """Yield a connection. Failures of its end are ignored: what was taken is not sent again."""
    server = sign_in(access)
    try:
        yield server
    finally:
        with suppress(smtplib.SMTPException, OSError):
            server.quit()
        server.close()


def _refusal(code: int, text: bytes | str, access: Access) -> Exception:
    if code >= 500:
        return Undeliverable(str(code), f"is the mail server's answer: {_line(text)}")
    return NotNow(access.limits.busy_delay)


def _line(text: bytes | str) -> str:
    found = text.decode(errors="replace") if isinstance(text, bytes) else text
    return " ".join(found.split())[:200]


class _NoConnection(Exception):
    """The server could not be reached, so nothing was sent."""


def sign_in(access: Access) -> smtplib.SMTP:
    """Connect and sign in. Raises _NoConnection, or SMTPResponseException for a refusal."""
    server = access.smtp
    try:
        client = (
            smtplib.SMTP_SSL(
                server.host, server.port, timeout=TIMEOUT, context=ssl.create_default_context()
            )
            if server.has_tls
            else smtplib.SMTP(server.host, server.port, timeout=TIMEOUT)
        )
        if not server.has_tls and not server.is_local:
            client.starttls(context=ssl.create_default_context())
        if server.user:
            client.login(server.user, server.password)
    except smtplib.SMTPResponseException:
        raise
    except (OSError, smtplib.SMTPException) as error:
        raise _NoConnection(str(error)) from None
    return client
