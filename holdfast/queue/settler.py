"""The end of turns: settled together, through outages, without one failing the others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.errors import StoreUnavailable
from holdfast.queue.metrics import TurnMetrics
from holdfast.queue.outcome import Lost, Outcome, Retry, Settled
from holdfast.queue.policy import Backoff, Policy, TargetGroup
from holdfast.queue.store import EventQueue
from holdfast.queue.turn import LeasedTurn
from holdfast.telemetry import SETTLE_FAILED, SETTLE_GIVEN_UP, SETTLE_REFUSED, TURNS_LOST
from holdfast.telemetry.logs import Entry
from holdfast.telemetry.spans import TurnSpan

log = logging.getLogger(__name__)

OnSettled = Callable[[LeasedTurn, Outcome, Settled | Lost], None]
"""Told of every turn whose end was stored, or refused; must not fail."""

OUTAGE = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=5))
"""Between tries while the database is away."""


@dataclass(slots=True, eq=False)
class HeldTurn:
    """A turn of ours: its lease as far as we know, the task that works it, and its outcome once there is one."""

    turn: LeasedTurn
    group: TargetGroup
    until: float
    since: float = field(default_factory=time.monotonic)
    task: asyncio.Task[None] | None = None
    outcome: Outcome | None = None
    span: TurnSpan | None = None
    slot: str = ""
    """The name whose slot it takes."""


class Settler:
    """Takes turns that have an outcome and says of each when it is over."""

    def __init__(
        self,
        store: EventQueue,
        policy: Policy,
        metrics: TurnMetrics,
        forget: Callable[[HeldTurn], None],
        ended: OnSettled | None = None,
    ) -> None:
        self._store = store
        self._policy = policy
        self._metrics = metrics
        self._forget = forget
        self._told = ended
        self._ended: list[HeldTurn] = []
        self._has_ended = asyncio.Event()

    def add(self, held: HeldTurn) -> None:
        self._ended.append(held)
        self._has_ended.set()

    async def run(self) -> None:
        while True:
            await self._has_ended.wait()
            self._has_ended.clear()
            ended, self._ended = self._ended, []
            for group in {held.group for held in ended}:
                await self._settle_group(group, [held for held in ended if held.group is group])

    async def _settle_group(self, group: TargetGroup, ended: list[HeldTurn]) -> None:
        """Settles together; where one end is refused, each alone, so that it fails nobody else."""
        try:
            results = await self._settle_in_time(group, ended)
        except Exception as error:  # noqa: BLE001 - a handler's answer may be anything
            if len(ended) == 1:
                await self._settle_refused(group, ended[0], error)
                return
            for held in ended:
                await self._settle_group(group, [held])
            return
        lost = [result.turn.primary.id for result in results if isinstance(result, Lost)]
        if lost:
            log.warning(Entry(TURNS_LOST, queue=self._policy.queue, events=lost))
        for held, result in zip(ended, results, strict=True):
            self._tell(held, result)
            self._forget(held)

    async def _settle_refused(self, group: TargetGroup, held: HeldTurn, error: Exception) -> None:
        queue, event = self._policy.queue, held.turn.primary.id
        log.warning(Entry(SETTLE_REFUSED, queue=queue, event_id=event, error=error))
        held.outcome = self._policy.timed(
            held.turn, Retry(f"its end was refused: {error}", error_class="refused")
        )
        try:
            [result] = await self._settle_in_time(group, [held])
            self._tell(held, result)
        except Exception:
            log.exception(Entry(SETTLE_GIVEN_UP, queue=queue, event_id=event))
        self._forget(held)

    def _tell(self, held: HeldTurn, result: Settled | Lost) -> None:
        self._metrics.settled(held.turn, held.outcome, result, held.since, held.span)
        if self._told is not None and held.outcome is not None:
            self._told(held.turn, held.outcome, result)

    async def _settle_in_time(
        self, group: TargetGroup, ended: list[HeldTurn]
    ) -> list[Settled | Lost]:
        """Keeps trying through an outage until the leases are over; then the turns are others'."""
        ends = [(held.turn, held.outcome) for held in ended if held.outcome is not None]
        failures = 0
        while True:
            try:
                return await self._store.settle(ends, max_attempts=group.max_attempts)
            except StoreUnavailable as error:
                failures += 1
                if failures == 1:
                    log.warning(Entry(SETTLE_FAILED, queue=self._policy.queue, error=error))
                if time.monotonic() > max(held.until for held in ended):
                    return [Lost(held.turn) for held in ended]
                await asyncio.sleep(OUTAGE.delay(failures).total_seconds())
