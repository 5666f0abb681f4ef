"""Heartbeats: one prompt per interval for all processes, and none while the agent is busy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.agents.base import Answer
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.channels.base import Put
from holdfast.channels.heartbeat import NOTHING, PROMPT, heartbeat
from holdfast.channels.schedule import ScheduleChannel
from holdfast.queue.event import NewEvent
from holdfast.queue.outcome import Done
from holdfast.queue.store import Filter, Store
from holdfast.routing.router import Routing, receive
from holdfast.settings import Settings
from tests.queue.test_consumer import Gate
from tests.steps import Proxy, both_engines, finished, put, running, until

HOUR = timedelta(hours=1)
QUICK = timedelta(milliseconds=100)


@asynccontextmanager
async def beating(
    *stores: Any, every: timedelta = HOUR, **pauses: timedelta
) -> AsyncIterator[None]:
    """Run the heartbeat of the agent "coder", with one process per store."""
    routing = Routing(lanes={"coder": "agent"})

    def putting(store: Store) -> Put:
        async def put_one(new: NewEvent) -> int | None:
            return await receive(store, routing, new, new.event["message"])

        return put_one

    async with asyncio.TaskGroup() as group:
        now = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
        files = [heartbeat("coder", every, now)]
        channels = [
            ScheduleChannel(store, 5, files=files, default="coder", **pauses) for store in stores
        ]
        tasks = [
            group.create_task(channel.run(putting(store)))
            for channel, store in zip(channels, stores, strict=True)
        ]
        yield
        for task in tasks:
            task.cancel()


@both_engines
async def test_many_processes_and_restarts_put_one_prompt_per_interval(store: Store) -> None:
    proxies = [Proxy(store) for _ in range(4)]
    for _ in range(2):
        for proxy in proxies:
            proxy.calls.clear()
        # A process looks again at once after it has run something: the second look is idle.
        async with beating(*proxies, longest_pause=timedelta(milliseconds=10)):
            await until(lambda: all(proxy.calls["now"] > 1 for proxy in proxies))
    [prompt] = await store.waiting("inbox", "coder")
    begins_at = prompt.created_at.replace(minute=0, second=0, microsecond=0)
    assert prompt.message_id == f"heartbeat_coder_{begins_at.isoformat()}"
    assert (prompt.target, prompt.lane, prompt.max_attempts) == ("coder", "coder", 5)
    assert prompt.event["message"] == PROMPT


@both_engines
async def test_every_interval_has_a_prompt_that_needs_no_answer(
    settings: Settings,
) -> None:
    def answer(turn: Turn) -> Answer:
        texts.append((turn.channel, turn.sender, turn.text))
        return None

    texts: list[tuple[str, str, str]] = []
    app = AgentHarness()
    app.add("coder", answer, heartbeat=QUICK, heartbeat_prompt="Look at the build.")
    app.add("writer", answer)
    async with running(app, settings), running(other_of(app), settings):
        await until(lambda: len(texts) >= 3)
        ended = await app.store.finished(Filter(queue="inbox"))
        assert await app.store.finished(Filter(queue="outbox")) == []
    assert set(texts) == {("heartbeat", "Heartbeat", "Look at the build.")}
    slots = [
        datetime.fromisoformat((one.message_id or "").removeprefix("heartbeat_coder_"))
        for one in ended
    ]
    assert len(set(slots)) == len(slots)


def other_of(app: AgentHarness) -> AgentHarness:
    other = AgentHarness(default=app.default)
    other.agents, other.policies = app.agents, app.policies
    return other


@pytest.mark.parametrize("target", ["coder", ""])
async def test_an_interval_is_skipped_while_the_agent_is_busy(store: Store, target: str) -> None:
    [id] = await put(store, target=target)
    [turn] = await store.claim("inbox", [target], limit=1, lease=HOUR)
    proxy = Proxy(store)
    async with beating(proxy):
        await until(lambda: proxy.calls["waiting"])
        await until(lambda: proxy.calls["waiting"] >= (1 if target == "coder" else 2))
    assert [one.id for one in await store.waiting("inbox", target)] == [id]
    assert proxy.calls["put"] == 0
    await store.release([turn])


async def test_a_skipped_prompt_is_not_put_later_in_its_interval(store: Store) -> None:
    await put(store, target="coder")
    [turn] = await store.claim("inbox", ["coder"], limit=1, lease=HOUR)
    proxy = Proxy(store)
    async with beating(proxy, longest_pause=timedelta(milliseconds=10)):
        # Once the second check begins, the first one is over.
        await until(lambda: proxy.calls["now"] > 1)
        await store.settle([(turn, Done())])
        looks = proxy.calls["now"]
        await until(lambda: proxy.calls["now"] > looks + 3)
    assert await store.waiting("inbox", "coder") == []


async def test_an_outage_only_postpones_the_prompt(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.down = True
    async with beating(proxy, retry_after=timedelta(milliseconds=10)):
        await until(lambda: proxy.calls["now"] > 3)
        proxy.down = False
        await until(lambda: proxy.waiting("inbox", "coder"))
    assert len(caplog.records) == 1


async def test_an_answer_is_recorded_and_heartbeat_ok_is_silence(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answers = [f"{NOTHING}\n", "I mended the build."]
    gate = Gate()

    async def answer(turn: Turn) -> Answer:
        if not answers:
            await gate(turn)
        return answers.pop(0) if answers else None

    app = AgentHarness()
    app.add("coder", answer)
    async with running(app, settings, heartbeat=QUICK):
        sent = await finished(app.store, 2, queue="outbox")
        gate.open.set()
    assert [one.outcome for one in sent] == ["completed", "completed"]
    assert sum("answered its heartbeat" in record.getMessage() for record in caplog.records) == 1


async def test_there_is_no_heartbeat_by_default(settings: Settings) -> None:
    app = AgentHarness()
    app.add("coder", lambda turn: None)
    app.add("still", lambda turn: None, heartbeat=timedelta(0))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert app.heartbeats(settings.heartbeat, now) == []
    assert [heartbeat.agent for heartbeat in app.heartbeats(HOUR, now)] == ["coder"]
