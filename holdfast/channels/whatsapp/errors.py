"""Errors of the Cloud API, translated: permanent, not now, or a failure that is tried again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.channels.base import NotNow, Undeliverable
from holdfast.errors import HoldfastError

TOKEN_CODES = frozenset((0, 3, 10, 190, *range(200, 300)))
"""Codes of a token that is expired, revoked, or lacks a permission."""
RATE_CODES = frozenset((4, 80007, 130429, 131048, 133016))
"""Codes of rate limits of the app, the account and the number."""
PAIR_LIMIT = 131056
"""Code of a rate limit of one number to one person."""
PASSING_CODES = frozenset((1, 2, 131000, 131016, 133004))
"""Codes of failures of WhatsApp itself."""
WINDOW_CLOSED = 131047
ADVICE = {
    WINDOW_CLOSED: "more than 24 hours have passed since the person wrote last;"
    " they have to write first",
}


class AccessDenied(HoldfastError):
    """WhatsApp refuses the token of a number, or there is none."""


class Unreachable(NotNow):
    """No connection, so nothing was sent.

    An outage makes no dead letters, however long it takes."""

    def __init__(self, delay: timedelta, reason: str) -> None:
        super().__init__(delay)
        self.args = (f"WhatsApp is out of reach: {reason}",)


class NumberLimited(NotNow):
    """A rate limit of the number: it may not write to others either."""


class Refusal(HoldfastError):
    """WhatsApp failed in a way that may pass."""


def translate_error(
    status: int, body: Any, retry_after: str | None, default_delay: timedelta
) -> HoldfastError:
    """Return the error of an answer that is not a success."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return Refusal(f"WhatsApp answers with status {status} and no error of its own")
    code = error.get("code")
    code = code if isinstance(code, int) else -1
    if code == PAIR_LIMIT:
        return NotNow(_delay(retry_after, default_delay))
    if code in RATE_CODES or status == 429:
        return NumberLimited(_delay(retry_after, default_delay))
    if code in TOKEN_CODES or status == 401:
        return AccessDenied(f"WhatsApp refuses the token: {describe(error)}")
    if code in PASSING_CODES or status >= 500:
        return Refusal(f"{code} {describe(error)} (WhatsApp's answer)")
    return undeliverable(code, error)


def undeliverable(code: int, error: dict[str, Any]) -> Undeliverable:
    """Return the error of a message that WhatsApp refused for good."""
    return Undeliverable(str(code), ADVICE.get(code) or f"{describe(error)} (WhatsApp's answer)")


def describe(error: dict[str, Any]) -> str:
    """Return the words of an error for people."""
    data = error.get("error_data")
    details = data.get("details") if isinstance(data, dict) else None
    words = (error.get("message") or error.get("title"), details)
    return ": ".join(str(word)[:300] for word in words if word) or "no reason given"


def _delay(retry_after: str | None, default: timedelta) -> timedelta:
    is_number = retry_after is not None and retry_after.isascii() and retry_after.isdigit()
    return timedelta(seconds=min(int(retry_after or 0), 86_400)) if is_number else default
