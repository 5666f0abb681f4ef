"""Slack's error codes, translated: permanent, not now, or a failure that is tried again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.channels.base import NotNow, Undeliverable
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from slack_sdk.errors import SlackApiError

DEFAULT_WAIT = 30.0
"""Seconds to wait if a rate limit names no time."""

PERMANENT_ERRORS = frozenset(
    (
        "account_inactive",
        "as_user_not_supported",
        "cannot_dm_bot",
        "cannot_reply_to_message",
        "channel_is_limited_access",
        "channel_not_found",
        "file_not_found",
        "file_uploads_disabled",
        "invalid_channel",
        "is_archived",
        "is_inactive",
        "messages_tab_disabled",
        "msg_too_long",
        "no_text",
        "not_in_channel",
        "restricted_action",
        "restricted_action_non_threadable_channel",
        "restricted_action_read_only_channel",
        "restricted_action_thread_locked",
        "team_access_not_granted",
        "team_not_found",
        "thread_not_found",
        "token_revoked",
        "user_disabled",
        "user_not_found",
        "user_not_visible",
    )
)
"""Codes after which trying again is useless."""
TOKEN_ERRORS = frozenset(
    (
        "account_inactive",
        "invalid_auth",
        "missing_scope",
        "not_allowed_token_type",
        "not_authed",
        "token_expired",
        "token_revoked",
    )
)
"""Codes of a token that a person has to replace."""


class AccessDenied(HoldfastError):
    """Slack refuses a token of a workspace, or there is none."""


class Unreachable(NotNow):
    """No connection, so nothing was sent.

    An outage makes no dead letters, however long it takes."""

    def __init__(self, delay: timedelta, reason: str) -> None:
        super().__init__(delay)
        self.args = (f"Slack is out of reach: {reason}",)


class Refusal(HoldfastError):
    """Slack refused a request; `code` is its error code."""

    def __init__(self, method: str, code: str) -> None:
        super().__init__(f"{code} (Slack's answer to {method})")
        self.code = code


def translate_error(method: str, error: SlackApiError) -> HoldfastError:
    """Return NotNow for a rate limit, Undeliverable for a permanent error, else Refusal."""
    answer: Any = error.response
    status = getattr(answer, "status_code", None) or getattr(answer, "status", 0)
    data = getattr(answer, "data", None)
    code = str(data.get("error") or "") if isinstance(data, dict) else ""
    if status == 429 or code == "ratelimited":
        given = (
            answer.headers.get("retry-after") or answer.headers.get("Retry-After") or DEFAULT_WAIT
        )
        return NotNow(timedelta(seconds=float(given)))
    if code in PERMANENT_ERRORS:
        return Undeliverable(code, f"is Slack's answer to {method}")
    return Refusal(method, code or f"status_{status}")
