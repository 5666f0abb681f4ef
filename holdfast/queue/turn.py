"""A leased turn: the events that a consumer holds of a lane while it works them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from holdfast.errors import LeaseLost
from holdfast.queue.event import Event


@dataclass(slots=True, unsafe_hash=True)
class LeasedTurn:
    """One event, or several of one lane, under one lease.

    The fence tells this holder from all others: only a matching fence can renew or settle."""

    queue: str
    fence: int
    events: tuple[Event, ...] = field(compare=False)
    until: float = field(default=math.inf, compare=False)
    """Monotonic time at which the lease runs out by the clock of this process."""

    @property
    def primary(self) -> Event:
        """The first event: emits and attempts are counted on it."""
        return self.events[0]

    @property
    def ids(self) -> list[int]:
        """Ids of all events of the turn."""
        return [event.id for event in self.events]

    @property
    def attempt(self) -> int:
        """Number of the running attempt, 1 for the first."""
        return self.primary.attempts

    def check_lease(self) -> None:
        """Raise LeaseLost if the lease has run out by the clock of this process."""
        if time.monotonic() > self.until:
            raise LeaseLost(f"the lease on event {self.primary.id} has run out; drop the work")

    @asynccontextmanager
    async def under_lease(self) -> AsyncIterator[None]:
        """Cancel the block when the lease runs out, and raise LeaseLost.

        So a process that was suspended during a request sends nothing more of it on resuming."""
        self.check_lease()
        timeout = asyncio.timeout(None if math.isinf(self.until) else self.until - time.monotonic())
        try:
            async with timeout:
                yield
        except TimeoutError:
            if timeout.expired():
                self.check_lease()
            raise
