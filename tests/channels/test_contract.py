"""The channel contract, for every channel. A new channel is a line in PLATFORMS."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from holdfast.agents.base import Reply
from holdfast.agents.echo import echo
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.settings import Settings
from holdfast.testing.slack import FakeSlack
from tests.channels.platforms import ApiPlatform, Platform, SlackPlatform, undelivered
from tests.steps import both_engines, finished, quick_harness, running

PLATFORMS: dict[str, Callable[[FakeSlack, AgentHarness], Platform]] = {
    "slack": SlackPlatform,
    "api": ApiPlatform,
}
Make = Callable[[AgentHarness], Platform]

pytestmark = both_engines
pushed_to = pytest.mark.parametrize("platform", ["slack"], indirect=True)
"""For platforms that are handed their responses; the others fetch them."""


@pytest.fixture(params=PLATFORMS)
def platform(request: pytest.FixtureRequest, slack: FakeSlack) -> Make:
    return lambda app: PLATFORMS[request.param](slack, app)


async def test_messages_are_answered_in_order(settings: Settings, platform: Make) -> None:
    app = quick_harness(echo)
    async with running(app, settings):
        there = platform(app)
        for number in range(5):
            await there.say(str(number))
        assert await there.visible(5) == [f"you said {number}" for number in range(5)]


async def test_a_message_that_comes_again_is_the_same_message(
    settings: Settings, platform: Make
) -> None:
    app = quick_harness(echo)
    async with running(app, settings):
        there = platform(app)
        first = await there.say("one")
        await there.visible(1)
        await there.say_again(first)
        await there.say("two")
        assert await there.visible(2) == ["you said one", "you said two"]


async def test_a_long_answer_is_delivered_whole(settings: Settings, platform: Make) -> None:
    paragraphs = [sign * 3000 for sign in "abc"]

    async def answer(turn: Turn) -> str:
        return "\n\n".join(paragraphs)

    app = quick_harness(answer)
    async with running(app, settings):
        there = platform(app)
        await there.say("go on")
        texts = await there.visible(1)
        while sum(len(text) for text in texts) < 9000:
            texts = await there.visible(len(texts) + 1)
    assert "\n\n".join(texts).split("\n\n") == paragraphs


async def test_files_go_with_the_answer(
    settings: Settings, platform: Make, slack: FakeSlack
) -> None:
    (settings.home / "files").mkdir()
    (settings.home / "files" / "a.txt").write_text("a")

    async def answer(turn: Turn) -> Reply:
        return Reply("here", files=("a.txt",))

    app = quick_harness(answer)
    async with running(app, settings):
        there = platform(app)
        await there.say("file")
        assert (await there.visible(1))[0] == "here"
        if isinstance(there, ApiPlatform):
            [response] = await app.responses("api")
            assert response.event["files"] == ["a.txt"]
        else:
            await slack.until(
                lambda: [upload for upload in slack.workspace.uploads.values() if upload.shares]
            )


async def test_a_stop_loses_nothing_and_ends_soon(settings: Settings, platform: Make) -> None:
    working = asyncio.Event()

    async def answer(turn: Turn) -> str:
        working.set()
        await asyncio.sleep(0.05)
        return f"you said {turn.text}"

    first = quick_harness(answer)
    async with running(first, settings):
        there = platform(first)
        for number in range(3):
            await there.say(str(number))
        await working.wait()
        stopped_at = time.monotonic()
    assert time.monotonic() - stopped_at < 10
    second = quick_harness(answer)
    async with running(second, settings):
        if isinstance(there, ApiPlatform):
            there = platform(second)
        assert await there.visible(3) == [f"you said {number}" for number in range(3)]


@pushed_to
async def test_a_platform_that_asks_for_patience_gets_it(
    settings: Settings, platform: Make, slack: FakeSlack
) -> None:
    slack.faults.plan("chat.postMessage", "ratelimited", seconds=1)
    app = quick_harness(echo)
    async with running(app, settings):
        there = platform(app)
        asked_at = time.monotonic()
        await there.say("hello")
        assert await there.visible(1) == ["you said hello"]
        assert time.monotonic() - asked_at > 1
        [ended] = await finished(app.store, queue="outbox")
    assert ended.attempts == 1


@pushed_to
async def test_a_permanent_refusal_is_a_dead_letter_with_a_class(
    settings: Settings, platform: Make, slack: FakeSlack
) -> None:
    slack.faults.plan("chat.postMessage", "error", code="not_in_channel")
    app = quick_harness(echo)
    async with running(app, settings):
        await platform(app).say("hello")
        await finished(app.store, queue="outbox")
        assert await undelivered(app) == [("dead", "not_in_channel")]


@pushed_to
async def test_a_send_of_unknown_end_is_looked_up(
    settings: Settings, platform: Make, slack: FakeSlack
) -> None:
    slack.faults.plan("chat.postMessage", "drop_after")
    app = quick_harness(echo)
    async with running(app, settings):
        there = platform(app)
        await there.say("hello")
        await finished(app.store, queue="outbox")
        assert await there.visible(1) == ["you said hello"]
