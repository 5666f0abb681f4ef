"""Mentions and direct messages through the real slack-bolt and the fake Slack, on every store."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict

from holdfast.agents.echo import echo
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.settings import Settings
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.workspace import ADA, BOT_USER, DIRECT, GENERAL, TEAM
from tests.channels.platforms import slack_channel
from tests.steps import finished, running

THREADS = 50


async def test_a_mention_is_answered_in_its_thread(slack: FakeSlack, settings: Settings) -> None:
    async with running(AgentHarness(echo), settings):
        ts = await slack.mention("hello")
        [reply] = await slack.replies(ts)
    assert (reply["text"], reply["thread_ts"]) == ("you said hello", ts)


async def test_bolt_leaves_our_own_log_lines_alone(slack: FakeSlack, settings: Settings) -> None:
    before = logging.getLogger("holdfast").level
    async with running(AgentHarness(echo), settings):
        await slack.replies(await slack.mention("hello"))
    assert logging.getLogger("holdfast").level == before


async def test_the_event_is_stored_as_insert_event_stores_it(
    slack: FakeSlack, settings: Settings
) -> None:
    app = AgentHarness(echo)
    async with running(app, settings):
        ts = await slack.mention("hello")
        [event] = await finished(app.store, queue="inbox")
    assert event.event == slack.last_event
    assert event.message_id == f"slack_{TEAM}_{GENERAL}_{ts}"
    assert event.lane == f"agent/slack:{TEAM}:{GENERAL}:{ts}"
    assert (event.target, event.max_attempts) == ("", None)
    seconds, micros = ts.split(".")
    assert (int(event.event_ts.timestamp()), event.event_ts.microsecond) == (
        int(seconds),
        int(micros),
    )


async def test_a_direct_message_is_answered_outside_a_thread_and_in_a_thread_inside(
    slack: FakeSlack, settings: Settings
) -> None:
    room = slack.workspace.rooms[DIRECT]
    async with running(AgentHarness(echo), settings):
        first = await slack.say_directly("hi")
        await slack.until(lambda: len(room.messages) == 2)
        await slack.say_directly("more", thread_ts=first)
        await slack.until(lambda: len(room.messages) == 4)
    assert [message.get("thread_ts") for message in room.messages] == [None, None, first, first]
    assert [message["text"] for message in room.messages] == [
        "hi",
        "you said hi",
        "more",
        "you said more",
    ]


async def test_a_message_that_comes_again_is_answered_once(
    slack: FakeSlack, settings: Settings
) -> None:
    slack.sockets.ack_within, slack.faults.lose_acks = 0.1, 3
    app = AgentHarness(echo)
    async with running(app, settings):
        ts = await slack.mention("hello")
        await slack.until(lambda: slack.sockets.acked)
        await slack.replies(ts)
        [_] = await finished(app.store, queue="outbox")
    assert sum(slack.sockets.sent.values()) >= 4
    assert len(slack.bot_messages(ts)) == 1


async def test_a_thread_is_answered_in_its_order_and_threads_in_parallel(
    slack: FakeSlack, settings: Settings
) -> None:
    running_now: dict[str, int] = defaultdict(int)
    most = 0

    async def answer(turn: Turn) -> str:
        nonlocal most
        running_now[turn.conversation] += 1
        most = max(most, len([one for one in running_now.values() if one]))
        assert running_now[turn.conversation] == 1
        await asyncio.sleep(0.01)
        running_now[turn.conversation] -= 1
        return turn.text

    async with running(AgentHarness(answer), settings, workers=20):
        roots = [await slack.mention("0") for _ in range(THREADS)]
        for number in (1, 2, 3):
            for root in roots:
                await slack.mention(str(number), thread_ts=root)
        for root in roots:
            replies = await slack.replies(root, count=4)
            assert [reply["text"] for reply in replies] == ["0", "1", "2", "3"]
    assert most > 5


async def test_the_agent_gets_the_text_without_the_name_of_the_bot(
    slack: FakeSlack, settings: Settings
) -> None:
    received_texts: list[str] = []

    async def answer(turn: Turn) -> str:
        received_texts.append(turn.text)
        return "ok"

    async with running(AgentHarness(answer), settings):
        for text in (
            f"<@{BOT_USER}> one",
            f"hey <@{BOT_USER}|bot>, two",
            f"<@{BOT_USER}> <@{ADA}> &lt;3",
            f"<@{BOT_USER}>",
        ):
            await slack.replies(await slack.say(text))
    assert received_texts == ["one", "hey two", "@ada <3", ""]


async def test_the_agent_reads_names_for_people_and_channels_and_the_event_stays_as_it_came(
    slack: FakeSlack, settings: Settings
) -> None:
    received_texts: list[str] = []
    app = AgentHarness(default="coder")

    @app.agent("coder")
    async def answer(turn: Turn) -> str:
        received_texts.append(turn.text)
        return "ok"

    texts = [
        f"ask <@{ADA}> in <#{GENERAL}> or <#C0OTHER|other> and <@U0STRANGER> &lt;3",
        f"@coder ask <@{ADA}>, see <https://example.com|this>",
    ]
    async with running(app, settings):
        for text in texts:
            await slack.replies(await slack.mention(text))
        first, _ = await finished(app.store, 2, queue="inbox")
    assert received_texts == [
        "ask @ada in #general or #other and <@U0STRANGER> <3",
        "ask @ada, see [this](https://example.com)",
    ]
    assert first.event["text"] == f"<@{BOT_USER}> {texts[0]}"
    # Known and unknown names are both cached.
    assert slack.faults.calls["users.info"] == 2


async def test_a_name_that_slack_does_not_tell_costs_no_turn_and_no_acknowledgement(
    slack: FakeSlack, settings: Settings
) -> None:
    slack.faults.plan("users.info", "slow", seconds=20)
    slack.faults.plan("conversations.info", "status")
    app = AgentHarness(echo)
    app.add_channel(slack_channel(settings, name_seconds=0.2))
    async with running(app, settings):
        ts = await slack.mention(f"<@{ADA}> <#{GENERAL}>")
        [reply] = await slack.replies(ts)
        [ended] = await finished(app.store, queue="inbox")
    assert reply["text"] == f"you said <@{ADA}> <#{GENERAL}>"
    assert ended.attempts == 1
