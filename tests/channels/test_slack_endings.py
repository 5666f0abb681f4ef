"""Every end of a streamed answer in Slack: one message in the thread, and no preview left over."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.queue.outcome import Dead
from holdfast.queue.store import Store
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.chain import find_message
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.workspace import GENERAL, TEAM
from tests.channels.crashes import without_grace
from tests.crash.streamer import AFTER_POST
from tests.crash.test_streaming import worker
from tests.steps import both_engines, quick_harness, running, until

PARTIAL = "One thing is sure."
STOPPED = f"{PARTIAL}\n\n_(stopped)_"
pytestmark = both_engines


def texts(slack: FakeSlack, ts: str) -> list[str]:
    return [message["text"] for message in slack.bot_messages(ts)]


def id_of(ts: str) -> str:
    return f"slack_{TEAM}_{GENERAL}_{ts}"


async def stop(store: Store, ts: str) -> None:
    """Stop a message as its sender would."""
    event = await find_message(store, id_of(ts))
    assert event is not None
    assert await store.cancel(event.id, "by a person", leased_only=False)


async def write_and_hang(turn: Turn) -> AsyncIterator[str]:
    yield PARTIAL
    await asyncio.Event().wait()


async def test_a_stopped_answer_stays_as_one_message_that_says_so(
    slack: FakeSlack, settings: Settings
) -> None:
    app = quick_harness(write_and_hang)
    async with running(app, settings):
        ts = await slack.mention("talk")
        await slack.until(lambda: texts(slack, ts) == [f"{PARTIAL} …"])
        await stop(app.store, ts)
        await slack.until(lambda: texts(slack, ts) == [STOPPED])


async def test_an_answer_that_waits_keeps_its_preview_until_it_is_stopped(
    slack: FakeSlack, settings: Settings
) -> None:
    async def answer(turn: Turn) -> None:
        await turn.write(PARTIAL)
        if turn.attempt == 1:
            await slack.until(lambda: texts(slack, ts) == [f"{PARTIAL} …"])
        await turn.sleep(timedelta(days=1))

    app = quick_harness(answer)
    async with running(app, settings):
        ts = await slack.mention("talk")
        await until(lambda: is_waiting(app, ts))
        assert texts(slack, ts) == [f"{PARTIAL} …"]
        await stop(app.store, ts)
        await slack.until(lambda: texts(slack, ts) == [STOPPED])


async def is_waiting(app: AgentHarness, ts: str) -> bool:
    event = await find_message(app.store, id_of(ts))
    return event is not None and bool(event.claimed) and event.fence == 0


async def test_the_notice_of_a_dead_letter_replaces_the_preview(
    slack: FakeSlack, settings: Settings
) -> None:
    async def answer(turn: Turn) -> Dead:
        await turn.write(PARTIAL)
        await slack.until(lambda: texts(slack, ts) == [f"{PARTIAL} …"])
        return Dead("no more")

    async with running(quick_harness(answer), settings):
        ts = await slack.mention("talk")
        [notice] = await slack.until(lambda: is_notice(texts(slack, ts)) and texts(slack, ts))
    assert PARTIAL not in notice


def is_notice(found: list[str]) -> bool:
    return len(found) == 1 and "could not answer" in found[0]


async def test_an_agent_that_falls_silent_takes_its_preview_away(
    slack: FakeSlack, settings: Settings
) -> None:
    async def answer(turn: Turn) -> Dead | None:
        if turn.attempt > 1:
            return None
        await turn.write(PARTIAL)
        await slack.until(lambda: texts(slack, ts) == [f"{PARTIAL} …"])
        raise RuntimeError("the first attempt fails")

    async with running(
        quick_harness(answer), settings, retry_first=timedelta(0), retry_most=timedelta(0)
    ):
        ts = await slack.mention("talk")
        await slack.until(lambda: slack.faults.calls["chat.delete"])
        assert texts(slack, ts) == []


async def crash_after_the_first_post(slack: FakeSlack, database_url: str, folder: Path) -> str:
    """Kill a worker right after it posted the preview. Returns the ts of the mention."""
    without_grace(database_url)
    async with worker(database_url, folder, AFTER_POST) as doomed:
        ts = await slack.mention("report")
        assert await asyncio.to_thread(doomed.wait, 60) == -signal.SIGKILL
    [preview] = texts(slack, ts)
    assert preview.endswith(" …")
    return ts


async def test_a_message_that_is_stopped_after_a_crash_leaves_no_preview(
    slack: FakeSlack, database_url: str, tmp_path: Path
) -> None:
    ts = await crash_after_the_first_post(slack, database_url, tmp_path)
    async with open_store(database_url) as store:
        await stop(store, ts)
    async with worker(database_url, tmp_path):
        await slack.until(lambda: is_stopped(texts(slack, ts)))


def is_stopped(found: list[str]) -> bool:
    return len(found) == 1 and found[0].endswith("_(stopped)_")


async def test_a_message_that_kills_its_last_worker_leaves_no_preview(
    slack: FakeSlack, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SLACK_MAX_ATTEMPTS", "1")
    ts = await crash_after_the_first_post(slack, database_url, tmp_path)
    async with worker(database_url, tmp_path):
        await slack.until(lambda: is_notice(texts(slack, ts)))
