"""Messages of a channel are routed when they are stored, also after a mention of the bot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import pytest_asyncio

from holdfast import AgentHarness, Turn
from holdfast.channels.base import Channel, Put
from holdfast.message import Payload
from holdfast.queue.event import OUTBOX, Event, NewEvent
from holdfast.settings import Settings
from tests.steps import finished, running

MENTION = {"type": "app_mention", "team": "T1", "channel": "C1", "user": "U1"}


class Mentioning(Channel):
    """A channel like Slack, whose texts begin with a mention of the bot."""

    name = "slack"

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.shown: list[str] = []

    async def run(self, put: Put) -> None:
        for ts, text in enumerate(("<@B> @coder hi", "<@B> @nobody hi", "<@B> hello")):
            event = MENTION | {"ts": f"{ts}.5", "text": text}
            await put(NewEvent(event=event, message_id=f"slack_T1_C1_{ts}.5"))

    async def send(self, response: Event) -> None:
        self.sent.append(response.event["message"])

    def routing_text(self, payload: Payload) -> str:
        return str(payload["text"]).removeprefix("<@B> ")

    async def readable_text(self, event: Event) -> str:
        return event.routed_text or self.routing_text(event.event)

    def show_typing(self, payload: Payload, *, again: bool) -> AbstractAsyncContextManager[object]:
        self.shown.append(str(payload["ts"]))
        return nullcontext()


@pytest_asyncio.fixture
async def app(tmp_path: Path) -> AsyncIterator[AgentHarness]:
    app = AgentHarness(default="host")

    @app.agent("host")
    @app.agent("coder")
    async def answer(turn: Turn) -> str:
        mate = "[@host: help] " if turn.agent == "coder" else ""
        return f"{mate}{turn.agent} heard {turn.text.splitlines()[-1]}"

    app.team("dev", agents=["host", "coder"], leader="host")
    app.add_channel(Mentioning())
    settings = Settings(home=tmp_path, database=f"sqlite:///{tmp_path / 'holdfast.db'}")
    async with running(app, settings):
        yield app


async def test_a_mention_may_be_followed_by_an_agent(app: AgentHarness) -> None:
    ended = await finished(app.store, 4, queue="inbox")
    by_id = {str(event.message_id): event for event in ended}
    routed = by_id["slack_T1_C1_0.5"]
    assert (routed.target, routed.lane) == ("coder", "coder/slack:T1:C1:0.5")
    assert routed.event == MENTION | {"ts": "0.5", "text": "<@B> @coder hi"}
    assert routed.routed_text == "hi"
    assert by_id["slack_T1_C1_1.5"].event == MENTION | {"ts": "1.5", "text": "<@B> @nobody hi"}
    await finished(app.store, 4, queue=OUTBOX)
    channel = app.channels["slack"]
    assert isinstance(channel, Mentioning)
    assert sorted(channel.sent) == [
        "coder heard hi",
        "host heard @nobody hi",
        "host heard hello",
        "host heard help",
    ]
    # The platform does not know messages that a teammate handed on.
    assert sorted(channel.shown) == ["0.5", "1.5", "2.5"]
    lines = await app.store.agent_messages("coder")
    assert [line.content for line in lines if line.role == "user"] == ["<@B> @coder hi"]
