"""Token, address and rules of one bot, read from its settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

from holdfast.channels.admission import Rules, rules_of
from holdfast.queue.policy import Backoff
from holdfast.settings.channels.discord import Discord
from holdfast.settings.channels.table import Pairing
from holdfast.settings.environment import variable

API_URL = "https://discord.com/api/v10"
API_URL_VARIABLE = "DISCORD_API_URL"
RECONNECT_BACKOFF = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=60))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits and intervals of a bot that are not settings."""

    reconnect_backoff: Backoff = RECONNECT_BACKOFF
    refused_retry: timedelta = timedelta(minutes=5)
    """Interval at which a refused bot tries again, in case a person repaired it."""
    unreachable_delay: timedelta = timedelta(seconds=10)
    """Delay of a response while Discord is unreachable."""
    guilds_within: timedelta = timedelta(seconds=2)
    """Time without a further server, after which the list of servers is complete."""
    gap_age: timedelta = timedelta(hours=24)
    """Age of the oldest message that is fetched after a gap."""
    gap_messages: int = 500
    """Maximum number of messages fetched from a room after a gap: the newest ones."""
    thread_lines: int = 100
    """Maximum number of messages of a thread that an agent gets: the newest ones."""
    download_bytes: int = 20 * 1024 * 1024
    """Size of the largest file that is downloaded."""
    nonce_window: timedelta = timedelta(minutes=2)
    """Time for which Discord surely remembers a nonce; its documentation says a few minutes."""
    upload_bytes: int = 10 * 1024 * 1024
    """Size of the largest file that is sent. Discord takes larger ones only in boosted servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything needed to use a bot."""

    name: str = "DISCORD_BOT_TOKEN"
    """Variable of the token. It tells bots apart in messages to people."""
    token: str = field(repr=False)
    api_url: str = API_URL
    message_content: bool = True
    skip_answered: bool = False
    """Whether to leave out messages of a gap that a person has answered since."""
    rules: Rules = field(default_factory=Rules)
    limits: Limits = Limits()

    @property
    def is_local(self) -> bool:
        """Whether the address is not Discord's own, so that it must be asked for its gateway."""
        return self.api_url != API_URL


def access_of(table: Discord, pairing: Pairing) -> Access:
    """Read the settings of a bot and the variable they name."""
    return Access(
        name=table.token_variable,
        token=variable(table.token_variable).strip(),
        api_url=complete_url(table.api_url or variable(API_URL_VARIABLE)),
        message_content=table.message_content,
        skip_answered=table.skip_answered,
        rules=rules_of(table, pairing),
    )


def complete_url(url: str) -> str:
    """Return a base address with the path and version of Discord's API, if it has none."""
    url = url.rstrip("/")
    path = urlsplit(url).path
    if not url:
        return API_URL
    if path in ("", "/api"):
        return f"{url}{'' if path else '/api'}/v10"
    return url
