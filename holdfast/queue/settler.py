"""The settler: stores outcomes of turns together, through outages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

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
"""Called for every turn whose end was stored or refused; must not raise."""

OUTAGE = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=1))
"""Delays between tries during a database outage."""

Result = TypeVar("Result")


async def retry_through_outage(
    call: Callable[[], Awaitable[Result]],
    until: Callable[[], float],
    on_outage: Callable[[StoreUnavailable], None],
) -> Result:
    """Repeat a call during a database outage; raise after the monotonic time that `until` returns.

    `on_outage` is called once, with the first error."""
    failures = 0
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            failures += 1
            if failures == 1:
                on_outage(error)
            if time.monotonic() > until():
                raise
            await asyncio.sleep(OUTAGE.delay(failures).total_seconds())


@dataclass(slots=True, eq=False)
class HeldTurn:
    """A turn that this process holds: its lease, its task, and its outcome once there is one."""

    turn: LeasedTurn
    group: TargetGroup
    since: float = field(default_factory=time.monotonic)
    task: asyncio.Task[None] | None = None
    outcome: Outcome | None = None
    span: TurnSpan | None = None
    slot: str = ""
    """The name whose slot the turn takes."""


class Settler:
    """Stores the outcomes of turns, and forgets each turn once its end is stored."""

    def __init__(
        self,
        store: EventQueue,
        policy: Policy,
        metrics: TurnMetrics,
        forget: Callable[[HeldTurn], None],
        on_settled: OnSettled | None = None,
    ) -> None:
        self._store = store
        self._policy = policy
        self._metrics = metrics
        self._forget = forget
        self._on_settled = on_settled
        self._ended: list[HeldTurn] = []
        self._has_ended = asyncio.Event()

    def add(self, held: HeldTurn) -> None:
        """Queue a turn whose handler has ended, so that its outcome is stored."""
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
        """Settle turns together. If that fails, settle each alone, so that one fails no other."""
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
            self._report(held, result)
            self._forget(held)

    async def _settle_refused(self, group: TargetGroup, held: HeldTurn, error: Exception) -> None:
        queue, event = self._policy.queue, held.turn.primary.id
        log.warning(Entry(SETTLE_REFUSED, queue=queue, event_id=event, error=error))
        held.outcome = self._policy.with_backoff(
            held.turn, Retry(f"its end was refused: {error}", error_class="refused")
        )
        try:
            [result] = await self._settle_in_time(group, [held])
            self._report(held, result)
        except Exception:
            log.exception(Entry(SETTLE_GIVEN_UP, queue=queue, event_id=event))
        self._forget(held)

    def _report(self, held: HeldTurn, result: Settled | Lost) -> None:
        self._metrics.record_settle(held.turn, held.outcome, result, held.since, held.span)
        if self._on_settled is not None and held.outcome is not None:
            self._on_settled(held.turn, held.outcome, result)

    async def _settle_in_time(
        self, group: TargetGroup, ended: list[HeldTurn]
    ) -> list[Settled | Lost]:
        """Settle, trying again through an outage until the leases end."""
        ends = [(held.turn, held.outcome) for held in ended if held.outcome is not None]
        try:
            return await retry_through_outage(
                lambda: self._store.settle(ends, max_attempts=group.max_attempts),
                lambda: max(held.turn.until for held in ended),
                lambda error: log.warning(
                    Entry(SETTLE_FAILED, queue=self._policy.queue, error=error)
                ),
            )
        except StoreUnavailable:
            return [Lost(held.turn) for held in ended]
