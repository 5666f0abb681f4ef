"""Token, address and limits of one bot, read from its settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.channels.admission import Rules, rules_of
from holdfast.queue.policy import Backoff
from holdfast.settings.channels.table import Pairing
from holdfast.settings.channels.telegram import Telegram

API_URL = "https://api.telegram.org"
MEBIBYTE = 1024 * 1024
BACKOFF = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=60))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits and intervals of a bot that are not settings."""

    poll_within: timedelta = timedelta(seconds=25)
    """Time for which Telegram holds a poll while there is nothing new."""
    stand_by: timedelta = timedelta(seconds=2)
    """Interval at which a standby process checks whether the polling one is gone."""
    backoff: Backoff = BACKOFF
    """Pauses after a failed sign-in or poll."""
    unreachable_delay: timedelta = timedelta(seconds=10)
    """Delay of a response while Telegram is unreachable."""
    repair_delay: timedelta = timedelta(minutes=1)
    """Delay of a response while a person has to replace the token."""
    typing_every: timedelta = timedelta(seconds=4)
    """Telegram shows "typing" for five seconds."""
    download_bytes: int = 20 * MEBIBYTE
    """Size of the largest file that Telegram lets bots download."""
    upload_bytes: int = 50 * MEBIBYTE
    """Size of the largest file that Telegram takes from bots."""


LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything needed to use a bot. Without a webhook secret, messages are polled."""

    name: str = "TELEGRAM_BOT_TOKEN"
    """Variable of the token. It tells bots apart in messages to people."""
    token: str = field(repr=False)
    webhook_secret: str = field(default="", repr=False)
    api_url: str = API_URL
    rules: Rules = field(default_factory=Rules)
    limits: Limits = LIMITS


def access_of(table: Telegram, pairing: Pairing) -> Access:
    """Read the settings of a bot and the variables they name."""
    secrets = table.secrets()
    return Access(
        name=table.token_variable,
        token=secrets.token,
        webhook_secret=secrets.webhook_secret,
        api_url=secrets.api_url or API_URL,
        rules=rules_of(table, pairing),
        limits=LIMITS,
    )
