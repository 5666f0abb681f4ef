"""Tokens, address and limits of one phone number, read from its settings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.channels.admission import Rules, rules_of
from holdfast.queue.policy import Backoff
from holdfast.settings.channels.table import Pairing
from holdfast.settings.channels.whatsapp import WhatsApp

API_URL = "https://graph.facebook.com"
VERSION = "v23.0"
MEBIBYTE = 1024 * 1024
BACKOFF = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=60))
_VERSION = re.compile(r"/v\d{1,3}\.\d{1,3}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits and intervals of a number that are not settings."""

    backoff: Backoff = BACKOFF
    """Pauses between checks of the token that failed."""
    unreachable_delay: timedelta = timedelta(seconds=10)
    """Delay of a response while WhatsApp is unreachable."""
    repair_delay: timedelta = timedelta(minutes=1)
    """Delay of a response while a person has to replace the token."""
    rate_limit_delay: timedelta = timedelta(seconds=30)
    """Delay after a rate limit that names no time."""
    typing_every: timedelta = timedelta(seconds=20)
    """WhatsApp shows "typing" for at most 25 seconds."""
    download_bytes: int = 100 * MEBIBYTE
    """Size of the largest file that is downloaded."""


LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything needed to use a number."""

    name: str = "WHATSAPP_TOKEN"
    """Variable of the token. It tells numbers apart in messages to people."""
    token: str = field(repr=False)
    phone_number_id: str
    app_secret: str = field(repr=False)
    verify_token: str = field(repr=False)
    api_url: str = f"{API_URL}/{VERSION}"
    rules: Rules = field(default_factory=Rules)
    limits: Limits = LIMITS


def access_of(table: WhatsApp, pairing: Pairing) -> Access:
    """Read the settings of a number and the variables they name."""
    secrets = table.secrets()
    return Access(
        name=table.token_variable,
        token=secrets.token,
        phone_number_id=secrets.phone_number_id,
        app_secret=secrets.app_secret,
        verify_token=secrets.verify_token,
        api_url=_with_version(secrets.api_url or API_URL),
        rules=rules_of(table, pairing),
        limits=LIMITS,
    )


def _with_version(url: str) -> str:
    base = url.rstrip("/")
    return base if _VERSION.search(base) else f"{base}/{VERSION}"
