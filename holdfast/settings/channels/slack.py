"""[[channels.slack]]: workspaces of Slack."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from pydantic import Field

from holdfast.settings.channels.table import PlatformTable
from holdfast.settings.duration import Duration
from holdfast.settings.environment import variable


class Slack(PlatformTable):
    """A Slack workspace. Without any table, SLACK_BOT_TOKEN alone turns one on."""

    required = ("bot_token_variable",)

    bot_token_variable: str = "SLACK_BOT_TOKEN"  # noqa: S105
    """Environment variable with the bot token, xoxb-…"""
    app_token_variable: str = "SLACK_APP_TOKEN"  # noqa: S105
    """Environment variable with the app-level token, xapp-…, for Socket Mode. Without it, Slack
    sends events to /slack/events."""
    signing_secret_variable: str = "SLACK_SIGNING_SECRET"  # noqa: S105
    """Environment variable with the signing secret, which verifies requests to /slack/events."""
    api_url: str = Field(default="", examples=["https://slack-gov.com/api/"])
    """Base URL of another Slack API, such as GovSlack or a local one; SLACK_API_URL sets it for
    all workspaces."""
    allow_users: tuple[str, ...] = ()
    """User ids, U…, to answer exclusively; by default everybody is answered."""
    deny_users: tuple[str, ...] = ()
    """User ids to ignore."""
    allow_channels: tuple[str, ...] = ()
    """Channel ids, C… or D…, to listen in exclusively; by default all."""
    deny_channels: tuple[str, ...] = ()
    """Channel ids to ignore."""
    bots: bool = False
    """Answer other bots, too; at most ten times in ten minutes unless a person writes."""
    external: bool = False
    """Answer people of other workspaces, too, such as other companies in a shared channel."""
    status: str = "eyes"
    """Reaction on a message while its agent works; empty for none."""
    status_after: Duration = timedelta(seconds=1)
    """Delay before that reaction; Slack allows about 50 a minute, so fast answers show none."""
    skip_answered: bool = False
    """Leave a message that was missed during an absence unanswered if a person has replied to it
    in its thread since."""

    def tokens(self) -> SlackTokens:
        """Read the variables."""
        return SlackTokens(
            bot_token=variable(self.bot_token_variable),
            app_token=variable(self.app_token_variable),
            signing_secret=variable(self.signing_secret_variable),
            api_url=self.api_url or variable("SLACK_API_URL"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackTokens:
    """Secrets of one workspace; an empty text means not set."""

    bot_token: str = field(default="", repr=False)
    app_token: str = field(default="", repr=False)
    signing_secret: str = field(default="", repr=False)
    api_url: str = ""
