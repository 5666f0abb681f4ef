"""Channels, one module or package for each platform."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from holdfast.telemetry import SLACK_INCOMPLETE
from holdfast.telemetry.logs import Entry

if TYPE_CHECKING:
    from holdfast.channels.base import Channel
    from holdfast.queue.store import Store
    from holdfast.settings import Settings


log = logging.getLogger(__name__)


def configured_channels(
    settings: Settings, store: Store, given: Collection[str] = (), app_token: str | None = None
) -> Iterator[Channel]:
    """Yield the channels of settings and environment, except those that were given already."""
    from holdfast.settings import Slack, slack_is_off
    from holdfast.settings.extras import require

    if not settings.channels.slack and "slack" not in given and (problem := slack_is_off()):
        log.warning(Entry(SLACK_INCOMPLETE, problem=problem))
    workspaces = settings.channels.slack or (Slack(),)
    wanted = settings.channels.slack or app_token or Slack().tokens().bot_token
    if wanted and "slack" not in given:
        require("slack", "Slack")
        # Imported here, so that a process without Slack does not pay for it.
        from holdfast.channels.slack import SlackChannel
        from holdfast.channels.slack.access import access_of

        accesses = [access_of(workspace, app_token) for workspace in workspaces]
        for problem in [one.receiving_problem for one in accesses if one.bot_token]:
            if problem:
                log.warning(Entry(SLACK_INCOMPLETE, problem=problem))
        yield SlackChannel(accesses, files=settings.files, store=store)
