"""Errors of the Bot API, translated: permanent, not now, or a failure that is tried again."""

from __future__ import annotations

from datetime import timedelta

from aiogram import exceptions
from aiohttp import ClientConnectorError

from holdfast.channels.base import NotNow, Undeliverable
from holdfast.errors import HoldfastError

CODES: tuple[tuple[type[exceptions.TelegramAPIError], int], ...] = (
    (exceptions.TelegramBadRequest, 400),
    (exceptions.TelegramMigrateToChat, 400),
    (exceptions.TelegramUnauthorizedError, 401),
    (exceptions.TelegramForbiddenError, 403),
    (exceptions.TelegramNotFound, 404),
    (exceptions.TelegramConflictError, 409),
    (exceptions.TelegramEntityTooLarge, 413),
    (exceptions.TelegramServerError, 500),
)
"""Telegram's `error_code` of each error; the client does not keep it."""
PERMANENT_CODES = (400, 403, 404, 413)
"""Codes after which trying again is useless."""
TOKEN_CODES = (401, 404)
"""Codes of a token that a person has to replace; a malformed one is "Not Found"."""


class AccessDenied(HoldfastError):
    """Telegram refuses the token of a bot, or there is none."""


class Unreachable(NotNow):
    """No connection, so nothing was sent.

    An outage makes no dead letters, however long it takes."""

    def __init__(self, delay: timedelta, reason: str) -> None:
        super().__init__(delay)
        self.args = (f"Telegram is out of reach: {reason}",)


class Refusal(HoldfastError):
    """Telegram refused a request in a way that may pass; `code` is its error code."""

    def __init__(self, method: str, code: int, description: str) -> None:
        answer = f"{code} {description} (Telegram's answer to {method})"
        super().__init__(answer if code else f"no answer to {method}: {description}")
        self.code = code


def error_code(error: exceptions.TelegramAPIError) -> int:
    """Return Telegram's code, 0 if there was no answer."""
    return next((code for kind, code in CODES if isinstance(error, kind)), 0)


def translate_error(
    method: str, error: exceptions.TelegramAPIError, unreachable_delay: timedelta
) -> HoldfastError:
    """Return NotNow for a rate limit, Undeliverable for a permanent error, else Refusal."""
    if isinstance(error, exceptions.TelegramRetryAfter):
        return NotNow(timedelta(seconds=error.retry_after))
    if isinstance(error.__cause__, ClientConnectorError):
        return Unreachable(unreachable_delay, error.message)
    code = error_code(error)
    if code == 401:
        return AccessDenied(f"Telegram refuses the token: {error.message}")
    if code in PERMANENT_CODES:
        return Undeliverable(str(code), f"{error.message} (Telegram's answer to {method})")
    return Refusal(method, code, error.message)
