"""Background tasks of a channel, such as typing signs and growing answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

CLEAN_UP_WITHIN = 2.0
"""Seconds that tasks have at a stop, to remove typing signs and the like."""

Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None] | None]


class BackgroundTasks:
    """Runs coroutines beside a channel, as long as it is open."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        return self._group is not None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[asyncio.TaskGroup]:
        """Take tasks during the block. At its end they have a moment to finish."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                yield group
            finally:
                if self._tasks:
                    await asyncio.wait(self._tasks, timeout=CLEAN_UP_WITHIN)
                self._group = None

    @asynccontextmanager
    async def during(self, work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        """Run a coroutine beside the block, and cancel it when the block ends."""
        task = self.start(work)
        try:
            yield
        finally:
            if task is not None:
                task.cancel()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Run a coroutine in the background. Returns None, and drops it, once a stop has begun."""
        try:
            if self._group is None:
                raise RuntimeError("the channel is closed")
            task = self._group.create_task(work)
        except RuntimeError:
            # A group that is being cancelled takes no new task. Close the coroutine ourselves.
            work.close()
            return None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
