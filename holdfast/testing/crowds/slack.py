"""A crowd in one channel of the local Slack."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from holdfast.testing.crowds import Answer, Crowd
from holdfast.testing.faults import Limit
from holdfast.testing.slack import FakeSlack

POST = "chat.postMessage"


class SlackCrowd(Crowd):
    """Threads that begin with their first mention."""

    title = "Slack"

    def __init__(self, slack: FakeSlack) -> None:
        super().__init__()
        self._slack = slack
        self._roots: dict[int, str] = {}

    @property
    def variables(self) -> Mapping[str, str]:
        slack = self._slack
        return {
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_APP_TOKEN": slack.app_token,
            "SLACK_API_URL": slack.api_url,
        }

    async def wait_ready(self) -> None:
        await self._slack.until(lambda: self._slack.sockets.connections)

    async def write(self, thread: int, text: str) -> None:
        ts = await self._slack.mention(text, thread_ts=self._roots.get(thread))
        self._roots.setdefault(thread, ts)

    async def answers(self) -> Mapping[int, list[Answer]]:
        messages = {thread: self._slack.bot_messages(root) for thread, root in self._roots.items()}
        return {
            thread: [Answer(one["text"], float(one["ts"])) for one in found]
            for thread, found in messages.items()
        }

    def limit(self) -> None:
        self._slack.faults.limits[POST] = Limit(most=50, seconds=1)

    @property
    def early_requests(self) -> Counter[str]:
        return self._slack.faults.impatient


@asynccontextmanager
async def slack_crowd() -> AsyncIterator[Crowd]:
    """Start a local Slack."""
    async with FakeSlack() as slack:
        yield SlackCrowd(slack)
