"""Faults between Slack and us, made by the fake Slack: one answer, nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import pytest

from holdfast import process
from holdfast.agents.echo import echo
from holdfast.app import AgentHarness
from holdfast.channels.base import response_event
from holdfast.consumers.limits import Limits
from holdfast.queue.policy import Backoff
from holdfast.queue.store import Filter
from holdfast.settings import Settings
from holdfast.store import Store, open_store
from holdfast.testing.faults import Limit
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.workspace import GENERAL
from tests.channels.platforms import slack_channel
from tests.steps import Proxy, finished, quick_harness, running, until


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> dict[str, Proxy]:
    """The store of the harness, with faults to order, once it is open."""
    opened: dict[str, Proxy] = {}

    @asynccontextmanager
    async def open_proxied(url: str, **options: Any) -> AsyncIterator[Store]:
        async with open_store(url, **options) as store:
            opened["store"] = Proxy(store)
            yield cast(Store, opened["store"])

    monkeypatch.setattr(process, "open_store", open_proxied)
    return opened


async def test_slack_is_not_acknowledged_before_the_message_is_stored(
    slack: FakeSlack, settings: Settings, proxy: dict[str, Proxy]
) -> None:
    slack.sockets.ack_within = 0.1
    async with running(quick_harness(echo), settings):
        proxy["store"].down = True
        ts = await slack.mention("hello")
        await slack.until(lambda: sum(slack.sockets.sent.values()) >= 3)
        assert slack.sockets.acked == []
        proxy["store"].down = False
        await slack.replies(ts)
        await slack.until(lambda: slack.sockets.acked)
        await finished(proxy["store"], queue="outbox")
    assert len(slack.bot_messages(ts)) == 1


async def test_the_acknowledgement_waits_for_the_commit(
    slack: FakeSlack, settings: Settings, proxy: dict[str, Proxy]
) -> None:
    committing, commit = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        committing.set()
        await commit.wait()

    async with running(quick_harness(echo), settings):
        proxy["store"].before["put"] = hold
        ts = await slack.mention("hello")
        await committing.wait()
        assert slack.sockets.acked == []
        commit.set()
        await slack.until(lambda: slack.sockets.acked)
        await slack.replies(ts)


async def test_a_connection_that_breaks_is_made_again(slack: FakeSlack, settings: Settings) -> None:
    app = quick_harness(echo)
    app.add_channel(slack_channel(settings, ping_seconds=0.1))
    async with running(app, settings):
        for number in range(3):
            await slack.until(lambda: slack.sockets.connections)
            slack.sockets.drop()
            ts = await slack.mention(str(number))
            assert [reply["text"] for reply in await slack.replies(ts)] == [f"you said {number}"]


async def test_a_process_that_is_ready_listens_already(
    slack: FakeSlack, settings: Settings
) -> None:
    async with running(quick_harness(echo), settings):
        assert slack.sockets.connections == 1


async def test_a_slack_that_is_away_keeps_nobody_from_being_ready(
    slack: FakeSlack, settings: Settings
) -> None:
    app = AgentHarness(echo, limits=Limits(open_within=timedelta(milliseconds=50)))
    soon = Backoff(first=timedelta(milliseconds=200), most=timedelta(milliseconds=200))
    app.add_channel(slack_channel(settings, sign_in_backoff=soon))
    slack.faults.plan("auth.test", "status", times=2)
    async with running(app, settings):
        assert slack.sockets.connections == 0
        await slack.replies(await slack.mention("hello"))


async def test_slack_may_ask_for_a_new_connection(slack: FakeSlack, settings: Settings) -> None:
    async with running(quick_harness(echo), settings):
        await slack.until(lambda: slack.sockets.connections)
        tss = [await slack.mention(str(number)) for number in range(5)]
        await slack.sockets.ask_to_disconnect()
        tss += [await slack.mention(str(number)) for number in range(5)]
        for ts in tss:
            assert len(await slack.replies(ts)) == 1


async def test_an_app_token_that_is_revoked_meanwhile_is_named_and_answers_still_go_out(
    slack: FakeSlack, settings: Settings
) -> None:
    app = quick_harness(echo)
    channel = slack_channel(settings, ping_seconds=0.5)
    app.add_channel(channel)
    async with running(app, settings):
        slack.faults.plan("apps.connections.open", "error", code="token_revoked", times=1_000_000)
        slack.sockets.drop()
        await until(lambda: any("token_revoked" in one for one in channel.problems))
        response = {"kind": "response", "channel": "slack", "conversation": f"slack:{GENERAL}"}
        await app.store.put([response_event(response | {"message": "still here"})])
        [ended] = await finished(app.store, queue="outbox")
        assert ended.outcome == "completed"
        slack.faults.planned.clear()
        await slack.replies(await slack.mention("hello"))
        assert channel.problems == []


async def test_in_a_storm_of_429_every_wait_is_kept_and_no_attempt_used(
    slack: FakeSlack, settings: Settings
) -> None:
    slack.faults.limits["chat.postMessage"] = Limit(most=3, seconds=1, by="channel")
    app = quick_harness(echo)
    async with running(app, settings):
        roots = [await slack.mention("0") for _ in range(4)]
        for root in roots:
            await slack.mention("1", thread_ts=root)
        for root in roots:
            assert [reply["text"] for reply in await slack.replies(root, count=2)] == [
                "you said 0",
                "you said 1",
            ]
        ended = await finished(app.store, 8, queue="outbox")
    assert slack.faults.refused["chat.postMessage"] >= 1
    assert slack.faults.impatient["chat.postMessage"] == 0
    assert {one.attempts for one in ended} == {1}
    assert slack.faults.calls["conversations.replies"] == 0


async def test_one_process_obeys_the_retry_after_of_another(
    slack: FakeSlack, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    slack.faults.plan("chat.postMessage", "ratelimited", seconds=2)
    first, second = quick_harness(echo), quick_harness(echo)
    async with running(first, settings):
        await slack.mention("told to wait")
        await slack.until(lambda: slack.faults.calls["chat.postMessage"] == 1)
        refused_at = asyncio.get_running_loop().time()
    async with running(second, settings):
        ts = await slack.mention("hello")
        await slack.replies(ts)
    assert asyncio.get_running_loop().time() - refused_at > 1.5


@pytest.mark.parametrize("how", ["status", "drop_before", "drop_after"])
async def test_a_post_of_unknown_end_is_looked_up_and_not_repeated(
    slack: FakeSlack, settings: Settings, how: Any
) -> None:
    slack.faults.plan("chat.postMessage", how)
    app = quick_harness(echo)
    async with running(app, settings):
        ts = await slack.mention("hello")
        [ended] = await finished(app.store, queue="outbox")
    assert [reply["text"] for reply in slack.bot_messages(ts)] == ["you said hello"]
    assert slack.faults.calls["conversations.replies"] == 1
    [part] = (ended.state or {})["parts"].values()
    assert (part["state"], part["receipt"]["ts"]) == ("sent", slack.bot_messages(ts)[0]["ts"])


async def test_a_look_up_reads_every_page(slack: FakeSlack, settings: Settings) -> None:
    room = slack.workspace.rooms[GENERAL]
    app = quick_harness(echo)
    app.add_channel(slack_channel(settings, page=2))
    slack.faults.plan("conversations.replies", "status", times=2)
    slack.faults.plan("chat.postMessage", "drop_after")
    async with running(app, settings):
        ts = await slack.mention("hello")
        await slack.until(lambda: slack.bot_messages(ts))
        # Written between: its reply is on the last page.
        reply = room.messages.pop()
        for number in range(9):
            slack.workspace.post(room, "U0ADA", str(number), ts)
        room.messages.append(reply)
        await finished(app.store, queue="outbox")
    assert len(slack.bot_messages(ts)) == 1
    assert slack.faults.calls["conversations.replies"] > 4


async def test_a_permanent_error_is_a_dead_letter_with_slacks_code(
    slack: FakeSlack, settings: Settings
) -> None:
    app = quick_harness(echo)
    async with running(app, settings):
        ts = await slack.mention("hello")
        slack.workspace.rooms[GENERAL].archived = True
        [letter] = await finished(app.store, queue="outbox")
        assert (letter.outcome, letter.attempts, letter.error_class) == ("dead", 1, "is_archived")
        assert (letter.last_error or "").startswith("is_archived ")
        slack.workspace.rooms[GENERAL].archived = False
        await app.store.retry(Filter(ids=[letter.id]))
        await slack.replies(ts)
    assert len(slack.bot_messages(ts)) == 1


async def test_a_channel_that_is_slow_answers_late_and_once(
    slack: FakeSlack, settings: Settings
) -> None:
    slack.faults.plan("chat.postMessage", "slow", seconds=0.5)
    async with running(quick_harness(echo), settings):
        ts = await slack.mention("hello")
        assert len(await slack.replies(ts)) == 1


async def test_while_slack_is_out_of_reach_no_attempt_is_used(
    slack: FakeSlack, settings: Settings
) -> None:
    app = quick_harness(echo)
    channel = slack_channel(settings, unreachable_delay=timedelta(milliseconds=20))
    app.add_channel(channel)
    async with running(app, settings):
        await slack.replies(await slack.mention("before"))
        await finished(app.store, queue="outbox")
        client = channel.workspaces[0].client
        client.base_url = "http://127.0.0.1:1/"
        ts = await slack.mention("meanwhile")
        await finished(app.store, 2, queue="inbox")
        for _ in range(12):
            await asyncio.sleep(0.03)
        assert slack.bot_messages(ts) == []
        client.base_url = slack.api_url
        await slack.replies(ts)
        ended = await finished(app.store, 2, queue="outbox")
    assert [one.attempts for one in ended] == [1, 1]
    assert len(slack.bot_messages(ts)) == 1
