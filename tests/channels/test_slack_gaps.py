"""Messages to the bot that came while nobody listened are answered after a start or reconnect."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.agents.echo import echo
from holdfast.channels.slack import SlackChannel
from holdfast.channels.slack.access import Limits, access_of
from holdfast.channels.watermark import Watermarks
from holdfast.queue.store import Filter
from holdfast.settings import Settings, Slack
from holdfast.store import open_store
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.workspace import ADA, DIRECT, GENERAL, TEAM, Room
from tests.steps import finished, quick_harness, running, until

BOB = "U0BOB"
GROUP = "G0GROUP"


def missed(slack: FakeSlack, text: str, *, channel: str = GENERAL, **further: Any) -> str:
    """Write a message that Slack never sends to the app."""
    user = further.pop("user", ADA)
    room = slack.workspace.rooms[channel]
    mention = "" if channel == DIRECT else f"{slack.mention_of_bot} "
    return str(slack.workspace.post(room, user, f"{mention}{text}", **further)["ts"])


async def was_here(settings: Settings, ago: timedelta = timedelta(minutes=5)) -> None:
    """Leave the watermark of a process that was connected some time ago."""
    async with open_store(settings.database) as store:
        position = (datetime.now(UTC) - ago).timestamp()
        await Watermarks(store, "slack").write(TEAM, f"{position:.6f}")


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Change limits and permissions of the Slack channel that the settings turn on."""

    def change(*, skip_answered: bool = False, **limits: Any) -> None:
        from holdfast.channels.slack import factory

        def build(setup: Any, workspaces: Any) -> SlackChannel:
            access = replace(
                access_of(Slack()), limits=Limits(**limits), skip_answered=skip_answered
            )
            return SlackChannel([access], files=setup.settings.files, store=setup.store)

        monkeypatch.setattr(factory, "slack_channel", build)

    return change


async def test_missed_mentions_direct_messages_and_replies_are_answered_in_order(
    slack: FakeSlack, settings: Settings
) -> None:
    async with running(quick_harness(echo), settings):
        root = await slack.mention("first")
        await slack.replies(root)
    mention = missed(slack, "one")
    for text in ("two", "three"):
        missed(slack, text, thread_ts=root)
    direct = missed(slack, "four", channel=DIRECT)
    missed(slack, "not for the bot", thread_ts=root, user=slack.workspace.bot_user)
    async with running(quick_harness(echo), settings) as app:
        await finished(app.store, 5, queue="outbox")
        gap = await Watermarks(app.store, "slack").last_gap()
        stored = await app.store.finished(Filter(queue="inbox"), limit=100)
    texts = [message["text"] for message in slack.bot_messages(root)]
    assert [text.split()[-1] for text in texts] == ["first", "two", "three"]
    assert len(slack.bot_messages(mention)) == 1
    assert gap is not None
    assert gap.messages == 4
    assert stored[0].message_id is not None
    assert f"slack_{TEAM}_{DIRECT}_{direct}" in {one.message_id for one in stored}


async def test_a_gap_is_closed_once_over_restarts_and_processes(
    slack: FakeSlack, settings: Settings
) -> None:
    await was_here(settings)
    ts = missed(slack, "hello")
    async with running(quick_harness(echo), settings), running(quick_harness(echo), settings):
        await slack.replies(ts)
    before = slack.faults.calls["conversations.history"]
    async with running(quick_harness(echo), settings):
        # It reads both rooms again, whose messages are known.
        await until(lambda: slack.faults.calls["conversations.history"] >= before + 2)
    assert len(slack.bot_messages(ts)) == 1


async def test_a_first_start_answers_nothing_of_the_past(
    slack: FakeSlack, settings: Settings
) -> None:
    missed(slack, "long ago")
    async with running(quick_harness(echo), settings) as app:
        await until(lambda: Watermarks(app.store, "slack").read(TEAM))
        assert await app.store.counts() == []
    assert slack.faults.calls["users.conversations"] == 0


async def test_a_lost_connection_is_followed_by_a_look_for_missed_messages(
    slack: FakeSlack, settings: Settings, limited: Any
) -> None:
    limited(ping_seconds=0.2)
    async with running(quick_harness(echo), settings) as app:
        await until(lambda: Watermarks(app.store, "slack").read(TEAM))
        ts = missed(slack, "hello")
        slack.sockets.drop()
        await slack.replies(ts)


async def test_a_new_message_waits_for_the_missed_ones_of_its_thread(
    slack: FakeSlack, settings: Settings
) -> None:
    await was_here(settings)
    root = missed(slack, "first")
    slack.faults.plan("users.conversations", "ratelimited", seconds=1)
    async with running(quick_harness(echo), settings):
        await slack.mention("second", thread_ts=root)
        answers = await slack.replies(root, count=2)
    assert [answer["text"].split()[-1] for answer in answers] == ["first", "second"]


async def test_what_is_older_than_the_limit_or_beyond_the_number_is_left(
    slack: FakeSlack, settings: Settings, limited: Any
) -> None:
    limited(gap_age=timedelta(minutes=10), gap_messages=2)
    await was_here(settings, timedelta(days=3))
    room = slack.workspace.rooms[GENERAL]
    old = missed(slack, "old")
    message = room.find(old)
    assert message is not None
    message["ts"] = f"{(datetime.now(UTC) - timedelta(hours=1)).timestamp():.6f}"
    newest = [missed(slack, str(number)) for number in range(4)][2:]
    async with running(quick_harness(echo), settings) as app:
        await finished(app.store, 2, queue="outbox")
        stored = await app.store.finished(Filter(queue="inbox"))
    assert sorted(str(one.message_id).rpartition("_")[2] for one in stored) == newest


@pytest.mark.parametrize(("skips", "answers"), [(True, 0), (False, 1)])
async def test_what_a_person_has_answered_is_left_if_the_setting_says_so(
    slack: FakeSlack, settings: Settings, limited: Any, skips: bool, answers: int
) -> None:
    limited(skip_answered=skips)
    await was_here(settings)
    answered, open_ = missed(slack, "who knows?"), missed(slack, "and this?")
    room = slack.workspace.rooms[GENERAL]
    slack.workspace.post(room, BOB, "I do", answered)
    slack.workspace.post(room, ADA, "thank you", answered)
    slack.workspace.post(room, ADA, "nobody?", open_)
    slack.workspace.post(room, slack.workspace.bot_user, "working", open_, bot_id="B0OTHER")
    async with running(quick_harness(echo), settings) as app:
        await slack.replies(open_)
        await until(lambda: Watermarks(app.store, "slack").last_gap())
        if answers:
            await slack.replies(answered)
    assert len(slack.bot_messages(answered)) == answers


async def test_rate_limits_are_obeyed_and_an_unreadable_room_stops_no_other(
    slack: FakeSlack, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    await was_here(settings)
    missed(slack, "hello", channel=DIRECT)
    slack.faults.plan("conversations.history", "error", code="not_in_channel")
    slack.faults.plan("users.conversations", "ratelimited", seconds=1)
    async with running(quick_harness(echo), settings) as app:
        await finished(app.store, queue="outbox")
    assert slack.faults.calls["users.conversations"] == 2
    assert "could not ask a room for missed messages" in caplog.text


async def test_without_the_scope_new_messages_are_answered_at_once(
    slack: FakeSlack, settings: Settings
) -> None:
    await was_here(settings)
    slack.faults.plan("users.conversations", "error", code="missing_scope")
    async with running(quick_harness(echo), settings):
        await slack.replies(await slack.mention("hello"))


@pytest.mark.parametrize("is_listed", [True, False])
async def test_group_direct_messages_are_asked_if_the_app_may_list_them(
    slack: FakeSlack, settings: Settings, is_listed: bool
) -> None:
    slack.workspace.rooms[GROUP] = Room(GROUP, "mpdm-ada--bob--holdfast-1", is_group=True)
    if not is_listed:
        # An app of an earlier manifest.
        slack.workspace.scopes.remove("mpim:read")
    await was_here(settings)
    in_group, in_channel = missed(slack, "hello", channel=GROUP), missed(slack, "and here")
    slack.workspace.post(slack.workspace.rooms[GROUP], ADA, "not for the bot")
    async with running(quick_harness(echo), settings) as app:
        await slack.replies(in_channel)
        gap = await until(lambda: Watermarks(app.store, "slack").last_gap())
        await finished(app.store, 1 + is_listed, queue="outbox")
    assert gap.messages == 1 + is_listed
    assert len(slack.bot_messages(in_group, GROUP)) == is_listed
