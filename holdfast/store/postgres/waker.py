"""Wake-ups for other processes: sent after the commit, and together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta

from holdfast.errors import HoldfastError
from holdfast.store.postgres.connections import Connections
from holdfast.store.postgres.session import Session

COALESCE_FOR = timedelta(milliseconds=20)
"""Least time between two wake-ups. The first one is sent at once."""
FLUSH_WITHIN = timedelta(seconds=1)

WAKE_WAITING = "select agent.wake_waiting(%s)"


class Waker:
    """Collects the queues in which commits made events ready, and wakes processes that expect them.

    A wake-up may be lost: the looker of the fleet wakes queues with events that nobody took."""

    def __init__(self, session: Session, connections: Connections) -> None:
        self._session = session
        self._connections = connections
        self._queues: set[str] = set()
        self._added = asyncio.Event()
        self._sending = asyncio.Lock()

    def add(self, queues: Iterable[str]) -> None:
        """Wake these queues soon."""
        self._queues.update(queues)
        if self._queues:
            self._added.set()

    async def run(self) -> None:
        while True:
            await self._added.wait()
            self._added.clear()
            await self._send()
            await asyncio.sleep(COALESCE_FOR.total_seconds())

    async def flush(self) -> None:
        """Send what is left, before the connections are closed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_WITHIN.total_seconds()):
                await self._send()

    async def _send(self) -> None:
        async with self._sending:
            queues, self._queues = sorted(self._queues), set()
            with suppress(HoldfastError):
                if not queues or await self._session.fetch(WAKE_WAITING, (queues,)) is not None:
                    return
                # A program that only puts has no session of its own.
                await self._connections.value(WAKE_WAITING, (queues,))
