"""Growing answers in Slack: one message that is edited within the rate limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.channels.budget import EditBudget
from holdfast.channels.preview import growing_text
from holdfast.channels.slack import STYLE, SlackChannel
from holdfast.channels.slack.access import Access
from holdfast.errors import LeaseLost
from holdfast.message import Payload
from holdfast.queue.event import NewEvent
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.workspace import GENERAL, TEAM


@pytest.fixture
def engine() -> str:
    return "sqlite"


class Fence:
    """The fence of a turn: keeps notes until the lease is lost."""

    def __init__(self) -> None:
        self.notes: list[Payload] = []
        self.is_lost = False

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        if self.is_lost:
            raise LeaseLost("event 7 belongs to another worker now")
        yield

    async def keep(self, note: Payload) -> None:
        async with self.hold():
            self.notes.append(note)


@asynccontextmanager
async def signed_in(slack: FakeSlack, **further: Any) -> AsyncIterator[SlackChannel]:
    access = Access(
        name="SLACK_BOT_TOKEN",
        bot_token=slack.bot_token,
        app_token=slack.app_token,
        api_url=slack.api_url,
        **further,
    )
    channel = SlackChannel([access])

    async def put(_: NewEvent) -> int | None:
        return None

    running = asyncio.create_task(channel.run(put))
    await channel.wait_ready()
    yield channel
    running.cancel()
    await asyncio.wait([running])


def draft_of(ts: str) -> Payload:
    return {
        "channel": "slack",
        "conversation": f"slack:{TEAM}:{GENERAL}:{ts}",
        "message_id": f"slack_{TEAM}_{GENERAL}_{ts}",
    }


async def test_a_growing_answer_is_one_message_that_is_edited(slack: FakeSlack) -> None:
    async with signed_in(slack) as channel:
        ts, fence = await slack.mention("count"), Fence()
        preview = channel.open_preview(draft_of(ts), "preview.7", {}, fence)
        assert preview is not None
        preview.show("one")
        [message] = await slack.replies(ts)
        assert message["text"] == "one …"
        preview.show("one two")
        await slack.until(lambda: message["text"] == "one two …")
        note = await preview.close()
        assert note["ts"] == message["ts"]
        assert fence.notes[0] == {"key": "preview.7"}
        assert [kept.get("ts") for kept in fence.notes] == [None, message["ts"]]


async def test_an_answer_that_is_complete_at_once_has_no_preview(slack: FakeSlack) -> None:
    async with signed_in(slack) as channel:
        ts, fence = await slack.mention("count"), Fence()
        preview = channel.open_preview(draft_of(ts), "preview.7", {}, fence)
        assert preview is not None
        preview.show("one")
        assert await preview.close() == {}
        assert slack.faults.calls["chat.postMessage"] == 0


async def test_a_later_attempt_edits_the_message_that_a_crashed_worker_posted(
    slack: FakeSlack,
) -> None:
    async with signed_in(slack) as channel:
        ts, fence = await slack.mention("count"), Fence()
        first = channel.open_preview(draft_of(ts), "preview.7", {}, fence)
        assert first is not None
        first.show("one")
        [message] = await slack.replies(ts)
        await first.close()
        # The crash came after the post and before its ts was kept.
        second = channel.open_preview(draft_of(ts), "preview.7", {"key": "preview.7"}, fence)
        assert second is not None
        second.show("one two")
        await slack.until(lambda: message["text"] == "one two …")
        await second.close()
        assert len(slack.bot_messages(ts)) == 1


async def test_a_worker_that_lost_its_lease_neither_posts_nor_edits(slack: FakeSlack) -> None:
    async with signed_in(slack) as channel:
        ts, fence = await slack.mention("count"), Fence()
        preview = channel.open_preview(draft_of(ts), "preview.7", {}, fence)
        assert preview is not None
        preview.show("one")
        [message] = await slack.replies(ts)
        # Its id is noted, so that only the edit itself can notice the loss.
        await slack.until(lambda: len(fence.notes) == 2)
        fence.is_lost = True
        preview.show("one two")
        await asyncio.sleep(1.5)  # longer than the least time between two edits
        await preview.close()
        assert message["text"] == "one …"
        assert slack.faults.calls["chat.update"] == 0


async def test_a_rate_limit_of_slack_delays_an_edit_and_loses_no_text(slack: FakeSlack) -> None:
    async with signed_in(slack) as channel:
        slack.faults.plan("chat.update", "ratelimited", seconds=1)
        ts, fence = await slack.mention("count"), Fence()
        preview = channel.open_preview(draft_of(ts), "preview.7", {}, fence)
        assert preview is not None
        preview.show("one")
        [message] = await slack.replies(ts)
        preview.show("one two")
        await slack.until(lambda: message["text"] == "one two …")
        await preview.close()
        assert slack.faults.impatient["chat.update"] == 0


async def test_the_edits_of_all_previews_stay_within_the_limit_of_the_workspace() -> None:
    now = 0.0
    budget = EditBudget(per_minute=5, clock=lambda: now)
    assert [await budget.open() for _ in range(6)] == [True] * 5 + [False]
    # Each of the five keeps its last edit in reserve, so none is left for the others.
    assert not budget.take()
    for _ in range(5):
        budget.close()
    assert not await budget.open()
    now = 60.0
    assert await budget.open()
    assert [budget.take() for _ in range(5)] == [True] * 4 + [False]


class _Two:
    """A store with two processes."""

    async def processes(self) -> list[object]:
        return [object(), object()]


async def test_processes_share_the_limit_of_the_workspace() -> None:
    budget = EditBudget(_Two(), per_minute=10)  # type: ignore[arg-type]
    assert [await budget.open() for _ in range(6)] == [True] * 5 + [False]


@pytest.mark.parametrize("length", [0, 1, 3999, 4000, 4001, 100_000])
def test_a_growing_text_fits_into_one_message(length: int) -> None:
    assert len(growing_text("a " * length, STYLE)) <= 4000
