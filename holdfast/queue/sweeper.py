"""The sweeper: sweeps queues, reaps dead processes, and reports that this one is alive."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import timedelta

from holdfast.errors import HoldfastError
from holdfast.queue.store import Process, Store, SweepPolicy
from holdfast.telemetry import (
    EVENTS_SWEPT,
    LANES_REPAIRED,
    PROCESS_GONE,
    REAPED,
    SPAN_REAP,
    SPAN_SWEEP,
    SWEEP_FAILED,
    SWEPT,
    spans,
)
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

SWEEP_EVERY = timedelta(seconds=60)
KEEP_ACTIVITY = timedelta(hours=24)
REAP_EVERY = timedelta(seconds=1)
"""A process is dead if it was silent in two checks 2 s apart. Checking twice as often as that
    avoids waiting for a third check."""
REPORT_ALIVE_EVERY = timedelta(seconds=10)


class Sweeper:
    """Runs three periodic tasks of one process. A database outage only postpones them."""

    def __init__(
        self,
        store: Store,
        policies: Sequence[SweepPolicy],
        process: Callable[[], Process],
        every: timedelta = SWEEP_EVERY,
        keep_activity: timedelta = KEEP_ACTIVITY,
        chores: Sequence[Callable[[], Awaitable[None]]] = (),
        on_reaped: Callable[[], None] = lambda: None,
        report_every: timedelta = REPORT_ALIVE_EVERY,
    ) -> None:
        self._store = store
        self._policies = policies
        self._process = process
        self._every = every
        self._keep_activity = keep_activity
        self._chores = chores
        self._on_reaped = on_reaped
        self._report_every = report_every

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self._sweep, self._every))
            group.create_task(self._repeat(self._reap, REAP_EVERY))
            group.create_task(self._repeat(self._report_alive, self._report_every))

    async def _repeat(self, work: Callable[[], Awaitable[None]], every: timedelta) -> None:
        failing = False
        while True:
            try:
                await work()
                failing = False
            except HoldfastError as error:
                if not failing:
                    log.warning(Entry(SWEEP_FAILED, error=error))
                failing = True
            await asyncio.sleep(every.total_seconds())

    async def _sweep(self) -> None:
        with spans.background_span(SPAN_SWEEP):
            await self.sweep()

    async def sweep(self) -> None:
        """Sweep every queue once, prune the activity log, and do the chores."""
        for policy in self._policies:
            swept = await self._store.sweep(policy)
            for kind, number in asdict(swept).items():
                SWEPT.add(policy.queue, kind, by=number)
            if swept.repaired_lanes:
                log.error(Entry(LANES_REPAIRED, queue=policy.queue, lanes=swept.repaired_lanes))
            if swept.dead or swept.expired:
                command = f"holdfast dead list --queue {policy.queue}"
                ended = {"dead": swept.dead, "expired": swept.expired}
                log.error(Entry(EVENTS_SWEPT, queue=policy.queue, **ended, list_with=command))
        await self._store.forget_activity(self._keep_activity)
        for chore in self._chores:
            await chore()

    async def _reap(self) -> None:
        most = {policy.queue: policy.max_attempts for policy in self._policies}
        began = time.monotonic()
        reaped = await self._store.reap(most)
        if reaped:
            # A check that finds nobody dead gets no span: there is one every second.
            spans.record_span(SPAN_REAP, began, {"holdfast.processes": ", ".join(reaped)})
        for process in reaped:
            REAPED.add()
            log.warning(Entry(PROCESS_GONE, process=process))
            self._on_reaped()

    async def _report_alive(self) -> None:
        await self._store.refresh_process(self._process())
