"""The schedule channel: puts the messages of schedules when they are due, once over all processes.

Every process looks at all schedules. The id of a message contains the time of the run, so the store
keeps one message of each run. The schedule moves on only after its message is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.channels.base import Channel, Put
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.message import SCHEDULE
from holdfast.queue.event import INBOX, Event
from holdfast.queue.store import Store
from holdfast.queue.wake import Wake
from holdfast.store.schedules import Schedule, Schedules
from holdfast.telemetry import SCHEDULE_CONFLICT, SCHEDULE_INVALID, SCHEDULES_FAILED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

LONGEST_PAUSE = timedelta(seconds=10)
"""Longest time between two looks: wake-ups may be lost, and the store's clock may be set."""
SHORTEST_PAUSE = timedelta(seconds=1)
"""Minimum time between two looks for wake-ups that may have nothing to do with schedules."""
RETRY_AFTER = timedelta(seconds=5)
"""Pause after a failed look or put."""
NOW = timedelta(0)


class ScheduleChannel(Channel):
    """Runs schedules. Answers to its own conversations only stay in the agent's history."""

    name = SCHEDULE
    is_internal = True

    def __init__(
        self,
        store: Store,
        max_attempts: int,
        *,
        files: Sequence[Schedule] = (),
        default: str = "",
        longest_pause: timedelta = LONGEST_PAUSE,
        shortest_pause: timedelta = SHORTEST_PAUSE,
        retry_after: timedelta = RETRY_AFTER,
    ) -> None:
        """`files` are the schedules of this process's settings; `default` is its default agent."""
        self._store = store
        self._schedules = Schedules(store)
        self._max_attempts = max_attempts
        self._files = {schedule.id: schedule for schedule in files}
        self._default = default
        self._longest_pause = longest_pause
        self._shortest_pause = shortest_pause
        self._retry_after = retry_after
        self._is_configured = False
        self._wake = Wake()

    async def run(self, put: Put) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._run_regularly(put))

    async def send(self, response: Event) -> None:
        """Do nothing: nobody waits for this answer."""

    async def _listen(self) -> None:
        async for name in self._store.wakeups(SCHEDULE):
            if name != SCHEDULE:
                # This wake-up may be about any message: do not read the schedules for each of them.
                await asyncio.sleep(self._shortest_pause.total_seconds())
            self._wake.set()

    async def _run_regularly(self, put: Put) -> None:
        failing = False
        while True:
            try:
                due_in, failing = await self.run_due(put), False
            except HoldfastError as error:
                if not failing:
                    log.warning(Entry(SCHEDULES_FAILED, error=error))
                due_in, failing = self._retry_after, True
            await self._wake.wait(poll=self._longest_pause, due_in=due_in)

    async def run_due(self, put: Put) -> timedelta | None:
        """Put the messages that are due. Returns the time until the next ones, None if unknown."""
        now = await self._store.now()
        if not self._is_configured:
            await self._configure()
        upcoming = await self._schedules.upcoming([*self._files])
        due = [one for one in upcoming if one.next_at is not None and one.next_at <= now]
        await self._run_all(due, now, put)
        if due:
            return NOW
        next_at = upcoming[0].next_at if upcoming else None
        return None if next_at is None else next_at - now

    async def _run_all(self, due: Sequence[Schedule], now: datetime, put: Put) -> None:
        """Run schedules. One that fails holds up no other; then raise its error."""
        failure: HoldfastError | None = None
        for schedule in due:
            try:
                await self._run(schedule, now, put)
            except StoreUnavailable:
                raise
            except HoldfastError as error:
                failure = error
        if failure is not None:
            raise failure

    async def _configure(self) -> None:
        """Store the schedules of the settings, so that they can be listed and paused."""
        for schedule in self._files.values():
            if not await self._schedules.configure(schedule):
                log.warning(Entry(SCHEDULE_CONFLICT, schedule=schedule.id))
        self._is_configured = True

    async def _run(self, schedule: Schedule, now: datetime, put: Put) -> None:
        try:
            runs, next_at = schedule.due(now), schedule.times.after(now)
        except (ValueError, OverflowError) as error:
            # Somebody changed the row by hand, or this machine does not know its time zone.
            log.error(Entry(SCHEDULE_INVALID, schedule=schedule.id, error=error))
            await self._schedules.set_paused(schedule.id, now, schedule.next_at)
            return
        if schedule.is_heartbeat and await self._is_busy(schedule.agent):
            runs = []
        for run in runs:
            await put(schedule.message(run, self._max_attempts))
        await self._schedules.advance(schedule, next_at, runs[-1] if runs else schedule.last_at)

    async def _is_busy(self, agent: str) -> bool:
        """Return whether an agent has a message to work on, so that it needs no heartbeat."""
        targets = (agent, "") if agent == self._default else (agent,)
        for target in targets:
            if await self._store.waiting(INBOX, target, limit=1):
                return True
        return False
