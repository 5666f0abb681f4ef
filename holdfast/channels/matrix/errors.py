"""Matrix's error codes, translated: permanent, not now, or a failure that is tried again."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.channels.base import NotNow, Undeliverable
from holdfast.errors import HoldfastError
from holdfast.message import Payload

if TYPE_CHECKING:
    from aiohttp import ClientResponse

DEFAULT_WAIT = 5.0
"""Seconds to wait if a rate limit names no time."""
LONGEST_WAIT = 3600.0
"""A rate limit that names a longer time counts as this one."""
LONGEST_ERROR = 64 * 1024
"""Maximum number of bytes to read of an error's body."""

PERMANENT_ERRORS = frozenset(
    (
        "M_BAD_JSON",
        "M_CANNOT_LEAVE_SERVER_NOTICE_ROOM",
        "M_FORBIDDEN",
        "M_GUEST_ACCESS_FORBIDDEN",
        "M_INVALID_PARAM",
        "M_INVALID_ROOM_STATE",
        "M_NOT_FOUND",
        "M_TOO_LARGE",
        "M_UNSUPPORTED_ROOM_VERSION",
    )
)
"""Codes after which trying again is useless."""
TOKEN_ERRORS = frozenset(
    ("M_MISSING_TOKEN", "M_UNKNOWN_TOKEN", "M_USER_DEACTIVATED", "M_USER_LOCKED")
)
"""Codes of a token that a person has to replace."""
OUTAGES = frozenset((502, 503, 504))
"""Statuses of a proxy that cannot reach its server."""


class AccessDenied(HoldfastError):
    """The homeserver refuses the token, or there is none."""


class Unreachable(NotNow):
    """No answer. A transaction id makes it safe to send again, so no attempt is used."""

    def __init__(self, delay: timedelta, reason: str) -> None:
        super().__init__(delay)
        self.args = (f"the homeserver is out of reach: {reason}",)


class Refusal(HoldfastError):
    """The homeserver refused a request; `code` is its error code."""

    def __init__(self, code: str, message: str, status: int) -> None:
        super().__init__(f"{code} {message}".strip())
        self.code = code
        self.status = status


async def raise_for_error(answer: ClientResponse) -> None:
    """Raise the error of an answer. A session of aiohttp calls this for every answer."""
    if answer.status < 400:
        return
    body = _body(await answer.content.read(LONGEST_ERROR))
    raise translate_error(answer.status, body, answer.headers.get("retry-after"))


def translate_error(status: int, body: Payload, retry_after: str | None) -> HoldfastError:
    """Return the error that an answer means."""
    code, message = str(body.get("errcode") or f"status_{status}"), str(body.get("error") or "")
    if status == 429 or code == "M_LIMIT_EXCEEDED":
        return NotNow(_wait(body.get("retry_after_ms"), retry_after))
    if code in TOKEN_ERRORS:
        return AccessDenied(f"{code} {message[:500]}".strip().rstrip("."))
    if code in PERMANENT_ERRORS:
        return Undeliverable(code, message[:500])
    if status in OUTAGES:
        return Unreachable(timedelta(seconds=DEFAULT_WAIT), code)
    return Refusal(code, message[:500], status)


def _body(text: bytes) -> Payload:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _wait(milliseconds: object, retry_after: str | None) -> timedelta:
    """Return how long to wait. New servers send the header, old ones the field."""
    try:
        named = float(str(milliseconds)) / 1000 if retry_after is None else float(retry_after)
    except ValueError:
        named = DEFAULT_WAIT
    # NaN compares as false, so it becomes the default.
    return timedelta(seconds=min(named, LONGEST_WAIT) if named >= 0 else DEFAULT_WAIT)
