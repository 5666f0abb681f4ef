"""Platforms of the channel contract: one can write a message and read the answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from holdfast.app import AgentHarness
from holdfast.channels.slack import SlackChannel
from holdfast.channels.slack.access import Limits, access_of
from holdfast.queue.event import OUTBOX
from holdfast.queue.store import Filter
from holdfast.settings import Settings, Slack
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.workspace import GENERAL
from tests.steps import until


def slack_channel(settings: Settings, **limits: Any) -> SlackChannel:
    """Return the Slack channel of the environment with other limits than the default ones."""
    access = replace(access_of(Slack()), limits=Limits(**limits))
    return SlackChannel([access], files=settings.files)


class Platform(Protocol):
    """One conversation on one platform."""

    async def say(self, text: str) -> str:
        """Write a message. Returns the platform's id of it."""

    async def say_again(self, message: str) -> None:
        """The platform delivers the same message once more."""

    async def visible(self, count: int) -> list[str]:
        """Wait for `count` answers. Returns their texts in order."""


class SlackPlatform:
    """One thread."""

    def __init__(self, slack: FakeSlack, app: AgentHarness) -> None:
        self._slack = slack
        self._root: str | None = None
        self._events: dict[str, dict[str, object]] = {}

    async def say(self, text: str) -> str:
        ts = await self._slack.mention(text, thread_ts=self._root)
        self._root = self._root or ts
        self._events[ts] = self._slack.last_event
        return ts

    async def say_again(self, message: str) -> None:
        acked = len(self._slack.sockets.acked)
        self._slack.deliver(self._events[message])
        await self._slack.until(lambda: len(self._slack.sockets.acked) > acked)

    async def visible(self, count: int) -> list[str]:
        assert self._root is not None
        return [
            reply["text"] for reply in await self._slack.replies(self._root, GENERAL, count=count)
        ]


class ApiPlatform:
    """One sender. Responses wait to be fetched."""

    def __init__(self, slack: FakeSlack, app: AgentHarness) -> None:
        self._app = app
        self._texts: dict[str, str] = {}

    async def say(self, text: str) -> str:
        message = f"client-{len(self._texts)}"
        self._texts[message] = text
        assert await self._app.put(text, sender_id="ada", message_id=message) == message
        return message

    async def say_again(self, message: str) -> None:
        assert (
            await self._app.put(self._texts[message], sender_id="ada", message_id=message) is None
        )

    async def visible(self, count: int) -> list[str]:
        async def waiting() -> list[str]:
            found = await self._app.responses("api")
            return (
                [str(response.event["message"]) for response in found]
                if len(found) >= count
                else []
            )

        texts: list[str] = await until(waiting)
        return texts


async def undelivered(app: AgentHarness) -> list[tuple[str, str | None]]:
    """Return outcome and error class of the dead letters of the outbox."""
    letters = await app.store.dead(Filter(queue=OUTBOX))
    return [(letter.outcome, letter.error_class) for letter in letters]
