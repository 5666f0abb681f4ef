"""Progress of a turn in Slack: the status of its thread, set within the rate limits."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast.agents.turn import Turn
from holdfast.channels.slack.access import Limits
from holdfast.channels.slack.thread_status import METHOD, SET_EVERY
from holdfast.settings import Settings
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.workspace import DIRECT
from tests.channels.test_slack_previews import Fence, draft_of, signed_in
from tests.steps import finished, quick_harness, running


@pytest.fixture
def engine() -> str:
    return "sqlite"


async def test_progress_is_the_status_of_the_thread_until_the_agent_ends(
    slack: FakeSlack, settings: Settings
) -> None:
    go_on = asyncio.Event()

    async def answer(turn: Turn) -> None:
        turn.progress("reading 3 of 7 files")
        await go_on.wait()

    async with running(quick_harness(answer), settings):
        ts = await slack.mention("read")
        await slack.until(lambda: slack.workspace.statuses.get(ts) == "reading 3 of 7 files")
        go_on.set()
        await slack.until(lambda: not slack.workspace.statuses)
    assert slack.workspace.status_changes == [(ts, "reading 3 of 7 files"), (ts, "")]


async def test_a_status_changes_once_a_second_to_the_newest_text(slack: FakeSlack) -> None:
    async with signed_in(slack) as channel:
        ts, began_at = await slack.mention("read"), time.monotonic()
        progress = channel.open_progress(draft_of(ts), Fence())
        assert progress is not None
        for number in range(1, 8):
            progress.show(f"reading {number} of 7 files")
            await asyncio.sleep(0.02)
        await slack.until(lambda: slack.workspace.statuses.get(ts) == "reading 7 of 7 files")
        assert time.monotonic() - began_at >= 1
        assert slack.faults.calls[METHOD] == 2
        progress.close()
        await slack.until(lambda: not slack.workspace.statuses)


async def test_a_status_waits_as_long_as_slack_asks(slack: FakeSlack) -> None:
    async with signed_in(slack) as channel:
        slack.faults.plan(METHOD, "ratelimited", seconds=1)
        ts = await slack.mention("read")
        progress = channel.open_progress(draft_of(ts), Fence())
        assert progress is not None
        progress.show("reading")
        await slack.until(lambda: slack.workspace.statuses.get(ts) == "reading")
        assert slack.faults.calls[METHOD] == 2
        progress.close()
        await slack.until(lambda: not slack.workspace.statuses)


async def test_a_status_that_slack_would_remove_is_set_again(slack: FakeSlack) -> None:
    limits = Limits(refresh_status_after=SET_EVERY / 100)
    async with signed_in(slack, limits=limits) as channel:
        ts = await slack.mention("read")
        progress = channel.open_progress(draft_of(ts), Fence())
        assert progress is not None
        progress.show("reading")
        await slack.until(lambda: slack.workspace.status_changes == [(ts, "reading")] * 2)
        progress.close()
        await slack.until(lambda: not slack.workspace.statuses)


async def test_a_worker_that_lost_its_lease_sets_no_status(slack: FakeSlack) -> None:
    async with signed_in(slack) as channel:
        ts, fence = await slack.mention("read"), Fence()
        progress = channel.open_progress(draft_of(ts), fence)
        assert progress is not None
        progress.show("reading")
        await slack.until(lambda: slack.workspace.statuses)
        fence.is_lost = True
        progress.close()
        await asyncio.sleep(1.2)  # longer than the least time between two changes
        assert slack.workspace.status_changes == [(ts, "reading")]


async def test_without_the_scope_slack_is_asked_once_and_answers_come(
    slack: FakeSlack, settings: Settings
) -> None:
    slack.workspace.scopes -= {"chat:write", "assistant:write"}

    async def answer(turn: Turn) -> str:
        turn.progress("reading")
        await asyncio.sleep(0.1)
        return "read"

    app = quick_harness(answer)
    async with running(app, settings):
        for number in range(2):
            [reply] = await slack.replies(await slack.mention(f"read {number}"))
            assert reply["text"] == "read"
        await finished(app.store, queue="outbox", count=2)
    assert slack.faults.calls[METHOD] == 1


async def test_a_direct_message_outside_of_a_thread_has_no_status(slack: FakeSlack) -> None:
    async with signed_in(slack) as channel:
        ts = await slack.say_directly("read")
        team = slack.workspace.team
        draft = {
            "conversation": f"slack:{team}:{DIRECT}:{ts}",
            "message_id": f"slack_{team}_{DIRECT}_{ts}",
        }
        assert channel.open_progress(draft, Fence()) is None
