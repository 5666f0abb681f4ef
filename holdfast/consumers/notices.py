"""Whoever asked is told, once, when a message has become a dead letter; before that, failures are nobody's business."""

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

LOOK_EVERY = timedelta(seconds=5)
LOOK_BACK = timedelta(minutes=10)
"""A letter that was older at our start was another's to tell of, or of a time when nobody was told."""
UNSEEN_FOR = timedelta(minutes=1)
"""A letter may be seen so much later than it died: what is written is dated before it is committed."""
AT_ONCE = 100


class DeadLetterNotices:
    """Looks for new dead letters of the channels that people read, however they died and in whatever process.

    The id of an apology comes from its letter: the store keeps it from being said twice."""

    def __init__(self, store: Store, channels: Mapping[str, Channel]) -> None:
        self._store = store
        self._channels = {name for name, channel in channels.items() if channel.notifies_senders}
        self._known: dict[int, datetime] = {}
        self._seen_until: datetime | None = None

    async def run(self) -> None:
        while self._channels:
            try:
                await self.look()
            except HoldfastError as error:
                log.warning(Entry(NOTICE_FAILED, error=error))
            await asyncio.sleep(LOOK_EVERY.total_seconds())

    async def look(self) -> None:
        """All that died since the last look, and before it unseen; a page at a time, however many there are."""
        if self._seen_until is None:
            self._seen_until = await self._store.now() - LOOK_BACK
        since = self._seen_until - UNSEEN_FOR
        after = (since, 0)
        while letters := await self._store.died(INBOX, after, limit=AT_ONCE):
            new = [letter for letter in letters if self._known.get(letter.id) != letter.finished_at]
            if apologies := [
                apology for letter in new if (apology := self._apology(letter)) is not None
            ]:
                await self._store.put(apologies)
            self._known |= {letter.id: letter.finished_at for letter in new}
            after = (letters[-1].finished_at, letters[-1].id)
            self._seen_until = max(self._seen_until, letters[-1].finished_at)
        self._known = {id: died_at for id, died_at in self._known.items() if died_at >= since}

    def _apology(self, letter: FinishedEvent) -> NewEvent | None:
        turn = Turn(LeasedTurn(INBOX, 0, (letter,)), letter.target)
        # What a teammate could not do, its user hears from who asked it.
        if turn.channel not in self._channels or letter.hops:
            return None
        text = f"I could not answer this. It is kept as dead letter {letter.id} and can be tried again."
        said = response(turn, Reply(text))
        # A letter that is tried again and dies again is another one.
        return replace(
            said,
            message_id=f"{letter.message_id or letter.id}/dead.{letter.finished_at.timestamp():.0f}",
        )
