"""Discord's errors, translated: permanent, not now, or a failure that is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import discord
from aiohttp import ClientConnectorError

from holdfast.channels.base import NotNow, Undeliverable
from holdfast.errors import HoldfastError

DEFAULT_WAIT = 30.0
"""Seconds to wait if a rate limit names no time."""
REFUSED = (400, 403, 404, 413)
"""Statuses of requests that stay refused, if the answer has one of Discord's codes."""


class AccessDenied(HoldfastError):
    """Discord refuses the token of a bot or one of its intents."""


class Unreachable(NotNow):
    """No connection, so nothing was sent. An outage makes no dead letters."""

    def __init__(self, delay: timedelta, reason: object) -> None:
        super().__init__(delay)
        self.args = (f"Discord is out of reach: {reason}",)


def translate_error(error: discord.HTTPException) -> Exception:
    """Return NotNow for a rate limit, Undeliverable for a permanent error, else the error."""
    if error.status == 429:
        given = error.response.headers.get("Retry-After") or DEFAULT_WAIT
        return NotNow(timedelta(seconds=float(given)))
    if error.status in REFUSED and error.code:
        first_line = error.text.partition("\n")[0]
        return Undeliverable(str(error.code), f"is Discord's answer: {first_line}")
    return error


@contextmanager
def translating(unreachable_delay: timedelta) -> Iterator[None]:
    """Translate the errors of requests in the block."""
    try:
        yield
    except discord.RateLimited as limit:
        raise NotNow(timedelta(seconds=limit.retry_after)) from None
    except discord.HTTPException as error:
        raise translate_error(error) from None
    except ClientConnectorError as error:
        raise Unreachable(unreachable_delay, error) from None
