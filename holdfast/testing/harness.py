"""Run a harness inside a test, wait for conditions, and read its finished messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from holdfast.agents.base import Agent
from holdfast.agents.function import Function
from holdfast.app import AgentHarness
from holdfast.chat import ChatStore
from holdfast.consumers.limits import Limits
from holdfast.queue.event import FinishedEvent
from holdfast.queue.policy import Backoff
from holdfast.queue.store import Filter
from holdfast.settings import Settings

TIMEOUT_SECONDS = 30.0
CHECK_INTERVAL = 0.005
QUICK = Backoff(first=timedelta(milliseconds=5), most=timedelta(milliseconds=20))
QUICK_LIMITS = Limits(outbox_backoff=QUICK, notice_every=timedelta(milliseconds=20))


async def until(
    holds: Callable[[], object | Awaitable[object]], within: float = TIMEOUT_SECONDS
) -> Any:
    """Wait until a condition is true. Returns its value."""
    give_up_at = time.monotonic() + within
    while True:
        found = holds()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        assert time.monotonic() < give_up_at, "the condition did not become true in time"
        await asyncio.sleep(CHECK_INTERVAL)


def quick_harness(agent: Agent | Function, **options: Any) -> AgentHarness:
    """Return a harness that soon tries failed deliveries again."""
    return AgentHarness(agent, limits=QUICK_LIMITS, **options)


@asynccontextmanager
async def running(
    app: AgentHarness, settings: Settings, workers: int | None = None, **changed: Any
) -> AsyncIterator[AgentHarness]:
    """Run a harness in its own task group; stop it at the end of the block."""
    app.settings = settings.model_copy(update=changed)
    async with asyncio.TaskGroup() as group:
        await app.run(task_group=group, num_workers=workers)
        try:
            yield app
        finally:
            app.stop()


async def finished(store: ChatStore, count: int = 1, **which: Any) -> list[FinishedEvent]:
    """Wait for `count` finished events. Returns them, oldest first."""

    async def enough() -> list[FinishedEvent]:
        found: list[FinishedEvent] = await store.finished(Filter(**which), limit=1000)
        return found if len(found) >= count else []

    found: list[FinishedEvent] = await until(enough)
    assert len(found) == count
    return found[::-1]
