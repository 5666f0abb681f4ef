"""Address, token and rules of one account, read from its settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.channels.admission import Rules, rules_of
from holdfast.queue.policy import Backoff
from holdfast.settings.channels.matrix import Matrix
from holdfast.settings.channels.table import Pairing

BACKOFF = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=10))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits and intervals of an account that are not settings."""

    long_poll: timedelta = timedelta(seconds=30)
    backoff: Backoff = BACKOFF
    """Delays between attempts to reach the homeserver."""
    unreachable_delay: timedelta = timedelta(seconds=5)
    """Delay of a response while the homeserver is unreachable."""
    timeline: int = 100
    """Events of a room that one sync brings; the rest of a gap is read page by page."""
    page: int = 100
    """Events that one request reads."""
    thread_lines: int = 200
    """Maximum number of messages of a conversation that an agent gets: the newest ones."""
    download_bytes: int = 20 * 1024 * 1024
    """Size of the largest file that is downloaded."""
    gap_age: timedelta = timedelta(hours=24)
    """Age of the oldest message that is answered after a time without a connection."""
    gap_messages: int = 1000
    """Maximum number of events read from a room after a time without a connection: the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything needed to use an account."""

    name: str = "MATRIX_ACCESS_TOKEN"
    """Variable of the token. It tells accounts apart in messages to people."""
    homeserver: str = ""
    token: str = field(default="", repr=False)
    rules: Rules = field(default_factory=Rules)
    status: str = "👀"
    status_after: timedelta = timedelta(seconds=1)
    edits_per_minute: int = 10
    skip_answered: bool = False
    limits: Limits = Limits()

    @property
    def missing(self) -> str | None:
        """Reason why the account cannot work; None if address and token are there."""
        if not self.homeserver:
            return f"{self.name} needs the address of its homeserver: set MATRIX_HOMESERVER"
        if not self.homeserver.startswith(("https://", "http://")):
            return f"the homeserver of {self.name} must be a URL, https://…"
        return None if self.token else f"{self.name} is not set: Matrix needs the bot's token"


def access_of(table: Matrix, pairing: Pairing) -> Access:
    """Read the settings of an account and the variables they name."""
    homeserver, token = table.credentials()
    return Access(
        name=table.token_variable,
        homeserver=homeserver,
        token=token,
        rules=rules_of(table, pairing),
        status=table.status,
        status_after=table.status_after,
        edits_per_minute=table.edits_per_minute,
        skip_answered=table.skip_answered,
    )
