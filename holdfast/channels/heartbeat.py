"""The channel that nobody writes to: a prompt to an agent every interval, once over all processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from holdfast.channels.base import Put
from holdfast.errors import HoldfastError
from holdfast.queue.event import INBOX, Event, NewEvent
from holdfast.queue.store import Store
from holdfast.routing.router import Address, Route, Routing, message
from holdfast.telemetry import CANNOT_BEAT, HEARTBEAT_ANSWERED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

NAME = "heartbeat"
SENDER = "Heartbeat"
NOTHING = "HEARTBEAT_OK"
"""An answer that says no more than this is silence, for agents that cannot but answer."""
PROMPT = f"Is there anything that needs your attention now? Do it, or answer {NOTHING} if there is nothing."

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOOK_EVERY = timedelta(minutes=1)
"""The store's clock may be set, or run at another pace than ours."""
TRY_AGAIN = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What one agent is asked, and how often."""

    agent: str
    every: timedelta
    prompt: str = PROMPT
    targets: Sequence[str]

    def slot(self, now: datetime) -> datetime:
        """The beginning of the interval that `now` is in, the same for every process."""
        return EPOCH + (now - EPOCH) // self.every * self.every


class Heartbeat:
    """The slot is part of a prompt's id, so that the store takes one of all that are put."""

    name = NAME

    def __init__(
        self, store: Store, routing: Routing, beats: Sequence[Beat], max_attempts: int
    ) -> None:
        self._store = store
        self._routing = routing
        self._beats = beats
        self._max_attempts = max_attempts

    async def run(self, put: Put) -> None:
        async with asyncio.TaskGroup() as group:
            for beat in self._beats:
                group.create_task(self._keep(beat, put))

    async def send(self, response: Event) -> None:
        if response.event["message"].strip() != NOTHING:
            # What it said is in its history; nobody is there to be told.
            log.info(Entry(HEARTBEAT_ANSWERED, agent=response.event["agent"], event_id=response.id))

    async def _keep(self, beat: Beat, put: Put) -> None:
        seen: datetime | None = None
        failing = False
        while True:
            try:
                now = await self._store.now()
                slot = beat.slot(now)
                if slot != seen and not await self._is_busy(beat):
                    await put(self._prompt(beat, slot))
                seen, failing, pause = slot, False, min(slot + beat.every - now, LOOK_EVERY)
            except HoldfastError as error:
                if not failing:
                    log.warning(Entry(CANNOT_BEAT, agent=beat.agent, error=error))
                failing, pause = True, TRY_AGAIN
            await asyncio.sleep(pause.total_seconds())

    async def _is_busy(self, beat: Beat) -> bool:
        """Whether something is being worked on or waits: then the agent is awake anyway."""
        for target in beat.targets:
            if await self._store.waiting(INBOX, target, limit=1):
                return True
        return False

    def _prompt(self, beat: Beat, slot: datetime) -> NewEvent:
        address = Address(channel=NAME, sender=SENDER, sender_id=beat.agent)
        return self._routing.event(
            message(beat.prompt, address),
            Route(beat.agent),
            address.conversation,
            message_id=f"{NAME}_{beat.agent}_{slot.isoformat()}",
            max_attempts=self._max_attempts,
        )
