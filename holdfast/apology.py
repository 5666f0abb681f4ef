"""Whoever asked is told, once, when a message has become a dead letter; before that, failures are nobody's business."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from holdfast.agent import Reply
from holdfast.channel import AnyChannel, attentive
from holdfast.errors import HoldfastError
from holdfast.event import INBOX, FinishedEvent, NewEvent, Turn
from holdfast.store.base import Filter, Store
from holdfast.telemetry import CANNOT_APOLOGISE
from holdfast.telemetry.logs import Entry
from holdfast.worker import response

log = logging.getLogger(__name__)

LOOK_EVERY = timedelta(seconds=5)
LOOK_BACK = timedelta(minutes=10)
"""A letter that is older was seen before, or belongs to a time when nobody would have been told."""
AT_ONCE = 100


class Apologies:
    """Looks for new dead letters of the channels that people read, however they died and in whatever process.

    The id of an apology comes from its letter: the store keeps it from being said twice."""

    def __init__(self, store: Store, channels: Mapping[str, AnyChannel]) -> None:
        self._store = store
        self._channels = {name for name, channel in channels.items() if attentive(channel) is not None}
        self._known: set[tuple[int, float]] = set()

    async def run(self) -> None:
        while self._channels:
            try:
                await self.look()
            except HoldfastError as error:
                log.warning(Entry(CANNOT_APOLOGISE, error=error))
            await asyncio.sleep(LOOK_EVERY.total_seconds())

    async def look(self) -> None:
        since = await self._store.now() - LOOK_BACK
        letters = await self._store.dead(Filter(queue=INBOX), limit=AT_ONCE)
        fresh = {_key(letter): letter for letter in letters if letter.finished_at >= since}
        new = [letter for key, letter in fresh.items() if key not in self._known]
        apologies = [apology for letter in new if (apology := self._apology(letter)) is not None]
        if apologies:
            await self._store.put(apologies)
        self._known = set(fresh)

    def _apology(self, letter: FinishedEvent) -> NewEvent | None:
        turn = Turn(INBOX, 0, (letter,), agent=letter.target)
        # What a teammate could not do, its user hears from who asked it.
        if turn.channel not in self._channels or letter.hops:
            return None
        text = f"I could not answer this. It is kept as dead letter {letter.id} and can be tried again."
        said = response(turn, Reply(text))
        return replace(said, message_id=f"{letter.message_id or letter.id}/dead.{_key(letter)[1]:.0f}")


def _key(letter: FinishedEvent) -> tuple[int, float]:
    """A letter that is tried again and dies again is another one."""
    return letter.id, letter.finished_at.timestamp()
