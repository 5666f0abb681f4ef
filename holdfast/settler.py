"""The end of turns: settled together, through outages, without one failing the others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from holdfast.errors import StoreUnavailable
from holdfast.event import Turn
from holdfast.outcome import Lost, Outcome, Retry, Settled
from holdfast.policy import Backoff, Policy, Share
from holdfast.store.base import Store

log = logging.getLogger(__name__)

OUTAGE = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=5))
"""Between tries while the database is away."""


@dataclass(slots=True, eq=False)
class Held:
    """A turn of ours: its lease as far as we know, the task that works it, and its outcome once there is one."""

    turn: Turn
    share: Share
    until: float
    task: asyncio.Task[None] | None = None
    outcome: Outcome | None = None


class Settler:
    """Takes turns that have an outcome and says of each when it is over."""

    def __init__(self, store: Store, policy: Policy, forget: Callable[[Held], None]) -> None:
        self._store = store
        self._policy = policy
        self._forget = forget
        self._ended: list[Held] = []
        self._has_ended = asyncio.Event()

    def add(self, held: Held) -> None:
        self._ended.append(held)
        self._has_ended.set()

    async def run(self) -> None:
        while True:
            await self._has_ended.wait()
            self._has_ended.clear()
            ended, self._ended = self._ended, []
            for share in {held.share for held in ended}:
                await self._settle_share(share, [held for held in ended if held.share is share])

    async def _settle_share(self, share: Share, ended: list[Held]) -> None:
        """Settles together; where one end is refused, each alone, so that it fails nobody else."""
        try:
            results = await self._settle_in_time(share, ended)
        except Exception as error:  # noqa: BLE001 - a handler's answer may be anything
            if len(ended) == 1:
                await self._settle_refused(share, ended[0], error)
                return
            for held in ended:
                await self._settle_share(share, [held])
            return
        lost = [result.turn.primary.id for result in results if isinstance(result, Lost)]
        if lost:
            log.warning("%s: lost before they settled: events %s", self._policy.queue, lost)
        for held in ended:
            self._forget(held)

    async def _settle_refused(self, share: Share, held: Held, error: Exception) -> None:
        queue, event = self._policy.queue, held.turn.primary.id
        log.warning("%s: the end of event %s was refused: %s", queue, event, error)
        held.outcome = self._policy.timed(held.turn, Retry(f"its end was refused: {error}", error_class="refused"))
        try:
            await self._settle_in_time(share, [held])
        except Exception:
            log.exception("%s: event %s has to wait for its lease to end", queue, event)
        self._forget(held)

    async def _settle_in_time(self, share: Share, ended: list[Held]) -> list[Settled | Lost]:
        """Keeps trying through an outage until the leases are over; then the turns are others'."""
        ends = [(held.turn, held.outcome) for held in ended if held.outcome is not None]
        failures = 0
        while True:
            try:
                return await self._store.settle(ends, max_attempts=share.max_attempts)
            except StoreUnavailable as error:
                failures += 1
                if failures == 1:
                    log.warning("%s: cannot settle, trying until the leases are over: %s", self._policy.queue, error)
                if time.monotonic() > max(held.until for held in ended):
                    return [Lost(held.turn) for held in ended]
                await asyncio.sleep(OUTAGE.delay(failures).total_seconds())
