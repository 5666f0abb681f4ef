"""Pitfalls of other chat runtimes; each test is named after its line of the list."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.agents.echo import echo
from holdfast.agents.turn import Turn
from holdfast.queue.store import SweepPolicy
from holdfast.settings import Settings
from holdfast.testing.slack import FakeSlack
from tests.steps import both_engines, finished, quick_harness, running

pytestmark = both_engines


async def test_one_message_under_several_platform_event_ids_is_answered_once(
    slack: FakeSlack, settings: Settings
) -> None:
    app = quick_harness(echo)
    async with running(app, settings):
        ts = await slack.mention("hello")
        slack.deliver(slack.last_event)
        slack.deliver(slack.last_event | {"type": "message", "channel_type": "channel"})
        await slack.until(lambda: len(slack.sockets.acked) == 3)
        await finished(app.store, queue="outbox")
    assert len(slack.bot_messages(ts)) == 1


async def test_dedup_is_not_forgotten_after_pruning(slack: FakeSlack, settings: Settings) -> None:
    app = quick_harness(echo)
    async with running(app, settings):
        ts = await slack.mention("hello")
        await finished(app.store, queue="outbox")
        for queue in ("inbox", "outbox"):
            await app.store.sweep(SweepPolicy(queue=queue, keep_history=timedelta(0)))
        slack.deliver(slack.last_event)
        await slack.until(lambda: len(slack.sockets.acked) == 2)
        again = await slack.mention("again")
        await slack.replies(again)
    assert len(slack.bot_messages(ts)) == 1


async def test_the_slack_client_does_not_post_again_by_itself_when_the_connection_is_lost(
    slack: FakeSlack, settings: Settings
) -> None:
    slack.faults.plan("chat.postMessage", "drop_after")
    app = quick_harness(echo)
    async with running(app, settings):
        ts = await slack.mention("hello")
        await finished(app.store, queue="outbox")
    assert slack.faults.calls["chat.postMessage"] == 1
    assert len(slack.bot_messages(ts)) == 1


async def test_an_event_that_nobody_handles_is_acknowledged(
    slack: FakeSlack, settings: Settings
) -> None:
    strange: list[dict[str, Any]] = [
        {"type": "reaction_added", "user": "U0ADA", "reaction": "eyes"},
        {"type": "message", "subtype": "message_changed", "channel": "C0GENERAL", "ts": "1.2"},
        {
            "type": "message",
            "channel": "C0GENERAL",
            "ts": "1.3",
            "user": "U0ADA",
            "text": "not for the bot",
        },
        {
            "type": "message",
            "channel": "D0ADA",
            "channel_type": "im",
            "ts": "1.4",
            "bot_id": "B2",
            "text": "a bot",
        },
        {
            "type": "message",
            "channel": "D0ADA",
            "channel_type": "im",
            "ts": "1.5",
            "user": "U0BOT",
            "text": "itself",
        },
    ]
    app = quick_harness(echo)
    async with running(app, settings):
        for event in strange:
            slack.deliver(event)
        await slack.until(lambda: len(slack.sockets.acked) == len(strange))
        assert await app.store.counts() == []
    assert set(slack.sockets.sent.values()) == {1}


async def test_a_mention_without_text_is_answered(slack: FakeSlack, settings: Settings) -> None:
    async with running(quick_harness(echo), settings):
        assert len(await slack.replies(await slack.mention(""))) == 1


async def test_an_empty_agent_result_is_said(slack: FakeSlack, settings: Settings) -> None:
    async def answer(turn: Turn) -> str:
        return ""

    async with running(quick_harness(answer), settings):
        [reply] = await slack.replies(await slack.mention("hello"))
    assert reply["text"] == "(no answer)"


async def test_sent_then_crashed_only_the_missing_parts_are_sent(
    slack: FakeSlack, settings: Settings
) -> None:
    slack.faults.plan("chat.postMessage", "slow", seconds=0)
    slack.faults.plan("chat.postMessage", "drop_before")
    parts = ["a" * 3000, "b" * 3000, "c" * 3000]

    async def answer(turn: Turn) -> str:
        return "\n\n".join(parts)

    app = quick_harness(answer)
    async with running(app, settings):
        ts = await slack.mention("hello")
        [ended] = await finished(app.store, queue="outbox")
    assert [reply["text"] for reply in slack.bot_messages(ts)] == parts
    assert slack.faults.calls["chat.postMessage"] == 4
    assert [part["state"] for part in (ended.state or {})["parts"].values()] == ["sent"] * 3
