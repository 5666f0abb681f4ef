"""Claims whose answer was lost: the database says that we hold turns which we do not know."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import timedelta

from holdfast.errors import HoldfastError
from holdfast.queue.store import EventQueue
from holdfast.queue.turn import LeasedTurn
from holdfast.telemetry import CLAIMS_GIVEN_BACK
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

CLAIM_CHECK_INTERVAL = timedelta(milliseconds=500)
CLAIM_CHECK_PERIOD = timedelta(seconds=6)
"""A server may go on with a claim, and commit it, after its connection broke."""

MOST_FENCES = 1000
"""Number of recent turns to remember."""


class LostClaims:
    """Releases turns that the store leases to this process but that the process does not know.

    That uses no attempt. `busy` is held during claims, so that no claim is in flight during a
    check."""

    def __init__(
        self,
        store: EventQueue,
        queue: str,
        holder: str,
        known: Callable[[], Collection[LeasedTurn]],
        busy: asyncio.Lock,
    ) -> None:
        self._store = store
        self._queue = queue
        self._holder = holder
        self._known = known
        self._busy = busy
        self._fences: deque[int] = deque(maxlen=MOST_FENCES)
        self._lost_at = 0.0
        self._is_lost = asyncio.Event()
        self._seen: set[tuple[int, int]] = set()

    def note_claimed(self, turns: Iterable[LeasedTurn]) -> None:
        """Remember claimed turns, whose handlers may have begun.

        Once this process drops such a turn, its attempt counts as used: it is not released here."""
        self._fences.extend(turn.fence for turn in turns)

    def note_lost(self) -> None:
        """Note that a claim failed, and may have been committed nevertheless."""
        self._lost_at = time.monotonic()
        self._is_lost.set()

    async def run(self) -> None:
        while True:
            await self._is_lost.wait()
            if (
                await self._release_unknown()
                and time.monotonic() > self._lost_at + CLAIM_CHECK_PERIOD.total_seconds()
            ):
                self._is_lost.clear()
            await asyncio.sleep(CLAIM_CHECK_INTERVAL.total_seconds())

    async def _release_unknown(self) -> bool:
        """Release unknown turns once. Returns False if the database cannot be reached."""
        try:
            async with self._busy:
                unknown = self._unknown(await self._store.held(self._queue, self._holder))
                if unknown:
                    await self._store.release(unknown)
        except HoldfastError:
            # The check period begins when the database is back.
            self._lost_at = time.monotonic()
            return False
        if unknown:
            log.warning(Entry(CLAIMS_GIVEN_BACK, queue=self._queue, turns=len(unknown)))
        return True

    def _unknown(self, held: list[LeasedTurn]) -> list[LeasedTurn]:
        """Return the turns to give back.

        A running turn may be gathering events right now. So an event with its fence that it does
        not have counts as lost only if two checks in a row find it."""
        known = self._known()
        ids = {id for turn in known for id in turn.ids}
        fences = {turn.fence for turn in known}
        ended = set(self._fences) - fences
        rests = [
            replace(turn, events=tuple(event for event in turn.events if event.id not in ids))
            for turn in held
        ]
        unknown = [turn for turn in rests if turn.events and turn.fence not in ended]
        seen, self._seen = self._seen, {(turn.fence, id) for turn in unknown for id in turn.ids}
        return [
            turn
            for turn in unknown
            if turn.fence not in fences or all((turn.fence, id) in seen for id in turn.ids)
        ]
