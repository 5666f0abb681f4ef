"""Resume turns whose signal came while they were about to wait for it."""

from __future__ import annotations

import asyncio
import logging

from holdfast.errors import HoldfastError
from holdfast.queue.outcome import Lost, Outcome, Settled, Snooze
from holdfast.queue.settler import OnSettled
from holdfast.queue.store import Store
from holdfast.queue.turn import LeasedTurn
from holdfast.telemetry import RESUME_FAILED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)


class WaitingTurns:
    """Looks for a turn's signal again once its wait is stored: an earlier one wakes nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._settled: asyncio.Queue[int] = asyncio.Queue()

    def after(self, on_settled: OnSettled | None) -> OnSettled:
        """Return a callback for settled turns, which calls the given one first."""

        def note_settled(turn: LeasedTurn, outcome: Outcome, result: Settled | Lost) -> None:
            if on_settled is not None:
                on_settled(turn, outcome, result)
            if isinstance(outcome, Snooze) and isinstance(result, Settled):
                for event_id in turn.ids:
                    self._settled.put_nowait(event_id)

        return note_settled

    async def run(self) -> None:
        """Resume turns until cancelled. The next sweep resumes those that fail."""
        while True:
            event_id = await self._settled.get()
            try:
                await self._store.resume_signalled(event_id)
            except HoldfastError as error:
                log.warning(Entry(RESUME_FAILED, event_id=event_id, error=error))

    async def sweep(self) -> None:
        """Resume turns of processes that died after storing the wait and before looking again."""
        await self._store.resume_signalled()
