"""[channels.x]: the platforms that messages come from. Tokens are named by their variables and stand in no file."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from pydantic import Field

from holdfast.settings.duration import Duration
from holdfast.settings.environment import slack_tokens, variable
from holdfast.settings.table import Table


class Slack(Table):
    """A workspace. Without any such table there is one as soon as SLACK_BOT_TOKEN is set."""

    bot_token_variable: str = "SLACK_BOT_TOKEN"  # noqa: S105
    """Variable of the environment that holds the bot token, xoxb-…"""
    app_token_variable: str = "SLACK_APP_TOKEN"  # noqa: S105
    """Variable that holds the app-level token, xapp-…, for Socket Mode; without it events come to /slack/events."""
    signing_secret_variable: str = "SLACK_SIGNING_SECRET"  # noqa: S105
    """Variable that holds the signing secret, which requests to /slack/events are checked with."""
    api_url: str = Field(default="", examples=["https://slack-gov.com/api/"])
    """Another address of Slack's API, as SLACK_API_URL for all workspaces: GovSlack, or a local Slack."""
    allow_users: tuple[str, ...] = ()
    """Ids of the only people who are heard, U…; by default everybody is."""
    deny_users: tuple[str, ...] = ()
    """Ids of people who are not heard."""
    allow_channels: tuple[str, ...] = ()
    """Ids of the only channels that are heard, C… or D…; by default all are."""
    deny_channels: tuple[str, ...] = ()
    """Ids of channels that are not heard."""
    bots: bool = False
    """Whether other bots are heard; two that answer each other do so until somebody stops them."""
    external: bool = False
    """Whether people of other workspaces are heard, as those of other companies in a channel shared with them."""
    status: str = "eyes"
    """Name of the reaction that a message has while its agent works; empty for none."""
    status_after: Duration = timedelta(seconds=1)
    """An agent that answers sooner shows no status: Slack allows only some fifty reactions a minute."""

    def tokens(self) -> SlackTokens:
        """What the variables hold now."""
        return SlackTokens(
            bot_token=variable(self.bot_token_variable),
            app_token=variable(self.app_token_variable),
            signing_secret=variable(self.signing_secret_variable),
            api_url=self.api_url or variable("SLACK_API_URL"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackTokens:
    """Secrets of one workspace; empty is what is not set."""

    bot_token: str = field(default="", repr=False)
    app_token: str = field(default="", repr=False)
    signing_secret: str = field(default="", repr=False)
    api_url: str = ""


def slack_is_off() -> str | None:
    """Why Slack does not start although a part of it is set up in the environment; None if all is well."""
    set_ = sorted(slack_tokens())
    if not set_ or "SLACK_BOT_TOKEN" in set_:
        return None
    return f"{' and '.join(set_)} set without SLACK_BOT_TOKEN, so Slack is off; set the bot token, xoxb-…, too"


class Channels(Table):
    """Where messages come from, beside the API."""

    slack: tuple[Slack, ...] = ()
    """A Slack workspace, once for each; one alone needs no table, its tokens in the environment are enough."""
