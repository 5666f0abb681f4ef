"""Notices to senders: one for each message that became a dead letter."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.agents.base import Reply
from holdfast.agents.turn import Turn
from holdfast.channels.base import Channel
from holdfast.consumers.inbox import response
from holdfast.errors import HoldfastError
from holdfast.queue.event import INBOX, FinishedEvent, NewEvent
from holdfast.queue.store import Store
from holdfast.queue.turn import LeasedTurn
from holdfast.telemetry import NOTICE_FAILED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

CHECK_EVERY = timedelta(seconds=5)
LOOK_BACK = timedelta(minutes=10)
"""At start, older dead letters are ignored: another process has sent their notices."""
COMMIT_LAG = timedelta(minutes=1)
"""Longest time from the moment stored with a dead letter to its commit, which makes it visible."""
PAGE = 100


class DeadLetterNotices:
    """Finds new dead letters of chat channels, of all processes, and notifies their senders.

    The id of a notice derives from its dead letter, so that the store accepts it only once."""

    def __init__(
        self, store: Store, channels: Mapping[str, Channel], every: timedelta = CHECK_EVERY
    ) -> None:
        self._store = store
        self._every = every
        self._channels = {name for name, channel in channels.items() if channel.notifies_senders}
        self._known: dict[int, datetime] = {}
        self._seen_until: datetime | None = None

    async def run(self) -> None:
        while self._channels:
            try:
                await self.check()
            except HoldfastError as error:
                log.warning(Entry(NOTICE_FAILED, error=error))
            await asyncio.sleep(self._every.total_seconds())

    async def check(self) -> None:
        """Send notices for all dead letters since the last check, a page at a time."""
        if self._seen_until is None:
            self._seen_until = await self._store.now() - LOOK_BACK
        since = self._seen_until - COMMIT_LAG
        after = (since, 0)
        while dead_letters := await self._store.died(INBOX, after, limit=PAGE):
            new = [
                letter
                for letter in dead_letters
                if self._known.get(letter.id) != letter.finished_at
            ]
            notices = [notice for letter in new if (notice := await self._notice(letter))]
            if notices:
                await self._store.put(notices)
            self._known |= {letter.id: letter.finished_at for letter in new}
            after = (dead_letters[-1].finished_at, dead_letters[-1].id)
            self._seen_until = max(self._seen_until, dead_letters[-1].finished_at)
        self._known = {id: died_at for id, died_at in self._known.items() if died_at >= since}

    async def _notice(self, letter: FinishedEvent) -> NewEvent | None:
        turn = Turn(LeasedTurn(INBOX, 0, (letter,)), letter.target)
        # Failures of handed-off messages are reported by the agent that delegated them.
        if turn.channel not in self._channels or letter.hops:
            return None
        journal = await self._store.journal(letter.id)
        notice = response(turn, Reply(_text_of(letter, journal.text)), preview=journal.preview)
        # A dead letter that is retried and dies again gets another notice.
        died = f"dead.{letter.finished_at.timestamp():.0f}"
        return replace(notice, message_id=f"{letter.message_id or letter.id}/{died}")


def _text_of(letter: FinishedEvent, partial: str) -> str:
    """Return the text of a notice. A stopped answer keeps the text written so far."""
    if letter.outcome == "cancelled" and partial:
        return f"{partial}\n\n_(stopped)_"
    return f"I could not answer this. It is kept as dead letter {letter.id} and can be tried again."
