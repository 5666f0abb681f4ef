"""Build the Slack channel from its settings."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.channels import Setup
from holdfast.channels.slack import SlackChannel
from holdfast.channels.slack.access import access_of
from holdfast.settings import Slack


def slack_channel(setup: Setup, workspaces: Sequence[Slack]) -> SlackChannel:
    """Return the channel of all workspaces."""
    accesses = [access_of(workspace, setup.app_token) for workspace in workspaces]
    return SlackChannel(accesses, files=setup.settings.files, store=setup.store)
