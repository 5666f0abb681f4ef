"""The Slack channel of the environment with limits for tests, and its dead letters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.app import AgentHarness
from holdfast.channels.slack import SlackChannel
from holdfast.channels.slack.access import Limits, access_of
from holdfast.queue.event import OUTBOX
from holdfast.queue.store import Filter
from holdfast.settings import Settings, Slack


def slack_channel(settings: Settings, **limits: Any) -> SlackChannel:
    """Return the Slack channel of the environment with other limits than the default ones."""
    access = replace(access_of(Slack()), limits=Limits(**limits))
    return SlackChannel([access], files=settings.files)


async def undelivered(app: AgentHarness) -> list[tuple[str, str | None]]:
    """Return outcome and error class of the dead letters of the outbox."""
    dead_letters = await app.store.dead(Filter(queue=OUTBOX))
    return [(letter.outcome, letter.error_class) for letter in dead_letters]
