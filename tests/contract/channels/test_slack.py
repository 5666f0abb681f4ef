"""The contract of channels for Slack, against the local Slack."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from holdfast.channels.slack import factory
from holdfast.channels.slack.access import Access, access_of
from holdfast.channels.slack.upload import LARGEST_FILE
from holdfast.settings import Slack
from holdfast.testing.channels import ChannelContract, Platform
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.workspace import ADA, GENERAL

CHANGE = {"type": "message", "channel": GENERAL, "ts": "9.9", "event_ts": "9.9"}
"""An edit or a deletion, as Slack reports it to apps that read all messages of a channel."""


def _quick_access(workspace: Slack, app_token: str | None = None) -> Access:
    """Return an access whose lost connection is noticed soon."""
    access = access_of(workspace, app_token)
    return replace(access, limits=replace(access.limits, ping_seconds=1.0))


class SlackPlatform(Platform):
    """One thread of a channel."""

    name = "slack"
    limit = 4000
    largest_file = 20 * 1024 * 1024
    largest_upload = LARGEST_FILE
    can_go_away = True
    # Members of a workspace need no pairing.
    has_strangers = False

    def __init__(self, slack: FakeSlack) -> None:
        self._slack = slack
        self._root: str | None = None
        self._events: dict[str, tuple[str, dict[str, Any]]] = {}

    async def say(self, text: str) -> str:
        return await self._mention(text)

    async def _mention(self, text: str, **further: Any) -> str:
        ts = await self._slack.mention(text, thread_ts=self._root, **further)
        self._root = self._root or ts
        self._events[ts] = self._slack.last_event_id, self._slack.last_event
        return ts

    async def answers(self) -> list[str]:
        if self._root is None:
            return []
        messages = self._slack.bot_messages(self._root, GENERAL)
        return [message["text"] for message in messages if message["text"]]

    async def say_again(self, message: str) -> None:
        acked = len(self._slack.sockets.acked)
        self._slack.deliver(self._events[message][1])
        await self._slack.until(lambda: len(self._slack.sockets.acked) > acked)

    async def is_acknowledged(self, message: str) -> bool:
        return self._events[message][0] in self._slack.sockets.acked

    async def edit(self, message: str, text: str) -> None:
        written = f"{self._slack.mention_of_bot} {text}"
        changed = self._events[message][1] | {"text": written, "edited": {"user": ADA}}
        self._slack.deliver(CHANGE | {"subtype": "message_changed", "message": changed})

    async def delete(self, message: str) -> None:
        self._slack.deliver(CHANGE | {"subtype": "message_deleted", "deleted_ts": message})

    async def send_file(self, text: str, name: str, content: bytes) -> str:
        return await self._mention(text, files=[self._slack.file(name, content)])

    async def files(self) -> Mapping[str, bytes]:
        uploads = self._slack.workspace.uploads.values()
        return {upload.name: upload.content for upload in uploads if upload.shares}

    async def was_typing(self) -> bool:
        return bool(self._slack.faults.calls["reactions.add"])

    async def say_unaddressed(self, text: str) -> None:
        ts = await self._slack.say(text)
        event = {"type": "message", "channel": GENERAL, "user": ADA, "text": text}
        self._slack.deliver(event | {"ts": ts, "event_ts": ts})

    async def say_as_bot(self, text: str) -> None:
        await self._mention(text, bot_id="B0OTHER", subtype="bot_message")

    async def limit_next(self, seconds: int) -> None:
        self._slack.faults.plan("chat.postMessage", "ratelimited", seconds=seconds)

    async def refuse_next(self) -> str:
        self._slack.faults.plan("chat.postMessage", "error", code="not_in_channel")
        return "not_in_channel"

    async def lose_next_answer(self) -> None:
        self._slack.faults.plan("chat.postMessage", "drop_after")

    async def disconnect(self) -> None:
        self._slack.sockets.drop()

    async def go_away(self) -> None:
        for method in ("auth.test", "apps.connections.open"):
            self._slack.faults.plan(method, "drop_before", times=1_000_000)
        self._slack.sockets.drop()

    async def come_back(self) -> None:
        self._slack.faults.planned.clear()

    async def revoke_token(self) -> None:
        self._slack.bot_token = "xoxb-another"


class TestSlack(ChannelContract):
    """The Slack channel."""

    @pytest_asyncio.fixture
    async def platform(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Platform]:
        async with FakeSlack() as slack:
            slack.sockets.ack_within = 0.2
            monkeypatch.setenv("SLACK_BOT_TOKEN", slack.bot_token)
            monkeypatch.setenv("SLACK_APP_TOKEN", slack.app_token)
            monkeypatch.setenv("SLACK_API_URL", slack.api_url)
            monkeypatch.setattr(factory, "access_of", _quick_access)
            yield SlackPlatform(slack)
