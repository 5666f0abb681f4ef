"""Tokens, address and permissions of one workspace, read from its settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.channels.slack.incoming import Permissions
from holdfast.queue.policy import Backoff
from holdfast.settings import Slack

API_URL = "https://slack.com/api/"
SIGN_IN_BACKOFF = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=60))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits and intervals of a workspace that are not settings."""

    ping_seconds: float = 5.0
    """Interval of pings. A dead connection is noticed after four of them."""
    sign_in_backoff: Backoff = SIGN_IN_BACKOFF
    unreachable_delay: timedelta = timedelta(seconds=10)
    """Delay of a response while Slack is unreachable."""
    name_seconds: float = 2.0
    """Seconds to wait for a name; after that the id is used."""
    refresh_status_after: timedelta = timedelta(seconds=100)
    """Slack removes a status after two minutes. One that still applies is set again before."""
    page: int = 200
    """Messages that one request reads."""
    thread_lines: int = 200
    """Maximum number of messages of a thread that an agent gets: the newest ones."""
    download_bytes: int = 20 * 1024 * 1024
    """Size of the largest file that is downloaded."""
    gap_age: timedelta = timedelta(days=1)
    """Longest absence for which missed messages are fetched."""
    gap_threads: timedelta = timedelta(days=2)
    """Maximum age of a thread, at the start of a gap, whose new replies are fetched."""
    gap_messages: int = 200
    """Maximum number of missed messages that are fetched from one conversation."""
    gap_channels: int = 200
    """Maximum number of conversations whose missed messages are fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything needed to use a workspace. Without an app token, events come by signed HTTP."""

    name: str = "SLACK_BOT_TOKEN"
    """Variable of the bot token. It tells workspaces apart in messages to people."""
    bot_token: str = field(repr=False)
    app_token: str = field(default="", repr=False)
    signing_secret: str = field(default="", repr=False)
    api_url: str = API_URL
    permissions: Permissions = field(default_factory=Permissions)
    status: str = "eyes"
    status_after: timedelta = timedelta(seconds=1)
    skip_answered: bool = False
    """Whether a missed message stays unanswered if a person has replied to it since."""
    limits: Limits = Limits()

    @property
    def receiving_problem(self) -> str | None:
        """Reason why no messages come in; None if Socket Mode or signed HTTP is set up."""
        if self.app_token or self.signing_secret:
            return None
        return (
            f"{self.name} is set alone, so no messages come in; set the app token (Socket Mode),"
            " or the signing secret (events at /slack/events)"
        )


def _permissions(workspace: Slack) -> Permissions:
    return Permissions(
        allow_users=frozenset(workspace.allow_users),
        deny_users=frozenset(workspace.deny_users),
        allow_channels=frozenset(workspace.allow_channels),
        deny_channels=frozenset(workspace.deny_channels),
        bots=workspace.bots,
        external=workspace.external,
    )


def access_of(workspace: Slack, app_token: str | None = None) -> Access:
    """Read the settings of a workspace and the variables they name."""
    tokens = workspace.tokens()
    return Access(
        name=workspace.bot_token_variable,
        bot_token=tokens.bot_token,
        app_token=app_token or tokens.app_token,
        signing_secret=tokens.signing_secret,
        api_url=tokens.api_url or API_URL,
        permissions=_permissions(workspace),
        status=workspace.status,
        status_after=workspace.status_after,
        skip_answered=workspace.skip_answered,
    )
