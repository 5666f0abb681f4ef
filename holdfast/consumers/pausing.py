"""Keeps the consumers of a process up to date with the pauses in the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from holdfast.errors import HoldfastError
from holdfast.queue.consumer import Consumer
from holdfast.queue.store import Store
from holdfast.store.pauses import ActivePauses, Pauses

FOLLOW_EVERY = timedelta(seconds=5)
"""Interval between looks at the pauses, beside those on a signal."""
FOLLOW_AT_MOST = timedelta(milliseconds=200)
"""Least time between two looks: on SQLite every commit of another process is a signal."""


class PausedConsumers:
    """Tells consumers which targets to leave out of their claims.

    A paused target is not named in a claim, so it costs nothing; running turns go on."""

    def __init__(self, store: Store, consumers: Callable[[], Sequence[Consumer]]) -> None:
        self._pauses = Pauses(store)
        self._consumers = consumers
        self.changed = asyncio.Event()
        """Set by a caller who knows that a pause came or went."""

    async def read(self) -> None:
        """Read the pauses, and apply them to all consumers."""
        paused = await self._pauses.all()
        for consumer in self._consumers():
            apply_pauses(consumer, paused)

    async def follow(self) -> None:
        """Read the pauses again whenever they may have changed, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_EVERY.total_seconds()):
                    await self.changed.wait()
            self.changed.clear()
            # During an outage of the database, the known pauses stay in force.
            with suppress(HoldfastError):
                await self.read()
            await asyncio.sleep(FOLLOW_AT_MOST.total_seconds())


def apply_pauses(consumer: Consumer, paused: ActivePauses) -> None:
    """Let a consumer claim nothing that is paused."""
    queue = consumer.policy.queue
    consumer.pause(None if paused.has_queue(queue) else paused.targets(queue))
