"""Channels: in before acknowledged, out in order, again until taken, or a dead letter."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast.agents.echo import echo
from holdfast.app import AgentHarness
from holdfast.channels.base import Put, Undeliverable
from holdfast.consumers.limits import Limits
from holdfast.queue.event import Event, NewEvent
from holdfast.settings import Settings
from tests.steps import QUICK, both_engines, finished, quick_harness, running


class Post:
    """A channel that receives what it is told and keeps what it is given."""

    name = "post"

    def __init__(self) -> None:
        self.received: asyncio.Queue[NewEvent] = asyncio.Queue()
        self.acknowledged: list[int | None] = []
        self.sent: list[str] = []
        self.failures: list[Exception] = []

    async def run(self, put: Put) -> None:
        while True:
            self.acknowledged.append(await put(await self.received.get()))

    async def send(self, response: Event) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.sent.append(response.event["message"])


def mail(text: str, message_id: str | None = None) -> NewEvent:
    payload = {
        "kind": "message",
        "channel": "post",
        "conversation": "post:ada",
        "sender": "ada",
        "message": text,
    }
    return NewEvent(event=payload, lane="agent/post:ada", message_id=message_id)


@both_engines
async def test_a_message_is_stored_answered_delivered_and_kept(settings: Settings) -> None:
    post, app = Post(), AgentHarness(echo)
    app.add_channel(post)
    async with running(app, settings):
        post.received.put_nowait(mail("one", message_id="post_1"))
        post.received.put_nowait(mail("one", message_id="post_1"))
        post.received.put_nowait(mail("two", message_id="post_2"))
        ended = await finished(app.store, 4)
    assert post.sent == ["you said one", "you said two"]
    assert [id is None for id in post.acknowledged] == [False, True, False]
    assert {one.outcome for one in ended} == {"completed"}


async def test_a_response_is_tried_again_until_the_channel_takes_it(
    settings: Settings,
) -> None:
    post, app = Post(), quick_harness(echo)
    post.failures = [ConnectionError("reset"), ConnectionError("reset")]
    app.add_channel(post)
    async with running(app, settings):
        post.received.put_nowait(mail("one"))
        post.received.put_nowait(mail("two"))
        ended = await finished(app.store, 2, queue="outbox")
    assert post.sent == ["you said one", "you said two"]
    assert [one.attempts for one in ended] == [3, 1]


async def test_what_can_never_be_delivered_is_a_dead_letter_with_a_class(
    settings: Settings,
) -> None:
    post, app = Post(), AgentHarness(echo)
    post.failures = [Undeliverable("channel_gone", "the channel was deleted")]
    app.add_channel(post)
    async with running(app, settings):
        post.received.put_nowait(mail("one"))
        [letter] = await finished(app.store, queue="outbox")
    assert (letter.outcome, letter.attempts, letter.error_class) == ("dead", 1, "channel_gone")
    assert letter.last_error == "channel_gone the channel was deleted"


async def test_a_response_to_a_channel_that_nobody_serves_waits_and_is_acked(
    settings: Settings,
) -> None:
    app = AgentHarness(echo)
    app.add_channel(Post())
    async with running(app, settings):
        await app.put("hi")
        await finished(app.store, queue="inbox")
        [response] = await app.responses("api")
        assert (response.attempts, response.fence) == (0, 0)
        assert await app.ack(response.id) == "acked"
        assert await app.ack(response.id) == "acked"
        assert await app.ack(response.id + 1000) == "unknown"
        assert await app.responses("api") == []


async def test_a_channel_that_hangs_is_given_up_and_tried_again(
    settings: Settings,
) -> None:
    limits = Limits(outbox_backoff=QUICK, send_within=timedelta(milliseconds=50))

    class Stuck(Post):
        tries = 0

        async def send(self, response: Event) -> None:
            self.tries += 1
            if self.tries == 1:
                await asyncio.Event().wait()
            await super().send(response)

    post, app = Stuck(), AgentHarness(echo, limits=limits)
    app.add_channel(post)
    async with running(app, settings):
        post.received.put_nowait(mail("one"))
        [ended] = await finished(app.store, queue="outbox")
    assert (ended.outcome, ended.attempts, ended.error_class) == ("completed", 2, "timeout")
    assert post.sent == ["you said one"]


async def test_a_harness_without_agents_and_channels_runs_and_stops(settings: Settings) -> None:
    app = AgentHarness()
    async with running(app, settings):
        assert await app.store.processes() != []
