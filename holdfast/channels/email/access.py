"""Addresses, secrets and rules of one mailbox, read from its settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import unquote, urlsplit

from holdfast.channels.admission import Rules, rules_of
from holdfast.errors import HoldfastError
from holdfast.queue.policy import Backoff
from holdfast.settings.channels.email import Email
from holdfast.settings.channels.table import Pairing
from holdfast.settings.environment import variable

PORTS = {"imap": 143, "imaps": 993, "smtp": 587, "smtps": 465}
LOOPBACK = ("127.0.0.1", "::1", "localhost")
RECONNECT_BACKOFF = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=60))
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server for reading or sending mail."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    folder: str = "INBOX"

    @property
    def has_tls(self) -> bool:
        """Whether the connection begins with TLS; else it is upgraded by STARTTLS."""
        return self.scheme.endswith("s")

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine, so that a plain connection is allowed."""
        return self.host in LOOPBACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits and intervals of a mailbox that are not settings."""

    reconnect_backoff: Backoff = RECONNECT_BACKOFF
    refused_retry: timedelta = timedelta(minutes=5)
    """Interval at which a refused mailbox is tried again, in case a person repaired it."""
    busy_delay: timedelta = timedelta(minutes=1)
    """Delay of a response that the server asks to send later."""
    unreachable_delay: timedelta = timedelta(seconds=10)
    """Delay of a response while the server is unreachable."""
    gap_age: timedelta = timedelta(days=7)
    """Age of the oldest message that is read after a gap."""
    gap_messages: int = 500
    """Most messages that are read after a gap, the newest ones."""
    mail_bytes: int = 25 * MEBIBYTE
    """Size of the largest message that is read whole. Of a larger one, the beginning is read."""
    upload_bytes: int = 20 * MEBIBYTE
    """Size of the largest file that is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything needed to use a mailbox."""

    name: str = "EMAIL_IMAP_URL"
    """Variable of the mailbox. It tells mailboxes apart in messages to people."""
    address: str
    imap: Server
    smtp: Server
    authentication_server: str = ""
    skip_answered: bool = False
    """Whether to leave out messages of a gap that a person has answered since."""
    rules: Rules = field(default_factory=Rules)
    limits: Limits = Limits()


def access_of(table: Email, pairing: Pairing) -> Access:
    """Read the settings of a mailbox and the variables they name."""
    address = variable(table.address_variable).strip()
    if address.count("@") != 1:
        raise HoldfastError(f"{table.address_variable} is not an e-mail address")
    return Access(
        name=table.imap_url_variable,
        address=address.lower(),
        imap=server_of(table.imap_url_variable, ("imaps", "imap")),
        smtp=server_of(table.smtp_url_variable, ("smtps", "smtp")),
        authentication_server=table.authentication_server,
        skip_answered=table.skip_answered,
        rules=rules_of(table, pairing),
    )


def server_of(name: str, schemes: tuple[str, ...]) -> Server:
    """Read a URL from a variable. An error names the variable and shows no password."""
    try:
        parts = urlsplit(variable(name).strip())
        port, host = parts.port, parts.hostname
    except ValueError:
        raise HoldfastError(f"{name} is not a URL") from None
    if parts.scheme not in schemes or not host:
        raise HoldfastError(f"{name} must begin with {' or '.join(f'{one}://' for one in schemes)}")
    return Server(
        scheme=parts.scheme,
        host=host,
        port=port or PORTS[parts.scheme],
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        folder=unquote(parts.path.strip("/")) or "INBOX",
    )
