"""The heartbeat channel: prompts an agent at every interval, once over all processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from holdfast.channels.base import Channel, Put
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.event import INBOX, Event, NewEvent
from holdfast.queue.store import Store
from holdfast.telemetry import HEARTBEAT_ANSWERED, HEARTBEAT_FAILED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

NAME = "heartbeat"
SENDER = "Heartbeat"
NOTHING = "HEARTBEAT_OK"
"""An answer with only this word counts as silence, for agents that always answer something."""
PROMPT = (
    "Is there anything that needs your attention now?"
    f" Do it, or answer {NOTHING} if there is nothing."
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_PAUSE = timedelta(minutes=1)
"""Longest time between two looks at the store's clock, which may be set or run at another pace than
ours."""
RETRY_AFTER = timedelta(seconds=5)
"""Pause after a failed look or put."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """How often one agent is prompted, and with which text."""

    agent: str
    every: timedelta
    prompt: str = PROMPT
    targets: Sequence[str]
    """Targets under which messages of this agent are stored."""

    def slot(self, now: datetime) -> datetime:
        """Return the start of the interval that contains `now`; it is the same in every process."""
        return EPOCH + (now - EPOCH) // self.every * self.every

    def event(self, slot: datetime, max_attempts: int) -> NewEvent:
        """Build the prompt of an interval.

        The slot is part of its id, so the store keeps one prompt per slot."""
        return NewEvent(
            event=self._payload,
            target=self.agent,
            message_id=f"{NAME}_{self.agent}_{slot.isoformat()}",
            max_attempts=max_attempts,
        )

    @property
    def _payload(self) -> Payload:
        return {
            "kind": "message",
            "channel": NAME,
            "sender": SENDER,
            "sender_id": self.agent,
            "message": self.prompt,
            "conversation": f"{NAME}:{self.agent}",
        }


class HeartbeatChannel(Channel):
    """Runs all heartbeats of this process. Answers are logged, since nobody reads this channel."""

    name = NAME

    def __init__(
        self,
        store: Store,
        heartbeats: Sequence[Heartbeat],
        max_attempts: int,
        *,
        longest_pause: timedelta = LONGEST_PAUSE,
        retry_after: timedelta = RETRY_AFTER,
    ) -> None:
        self._store = store
        self._longest_pause = longest_pause
        self._retry_after = retry_after
        self._heartbeats = heartbeats
        self._max_attempts = max_attempts

    async def run(self, put: Put) -> None:
        async with asyncio.TaskGroup() as group:
            for heartbeat in self._heartbeats:
                group.create_task(self._prompt_regularly(heartbeat, put))

    async def send(self, response: Event) -> None:
        if response.event["message"].strip() != NOTHING:
            # The answer itself is in the agent's history.
            log.info(Entry(HEARTBEAT_ANSWERED, agent=response.event["agent"], event_id=response.id))

    async def _prompt_regularly(self, heartbeat: Heartbeat, put: Put) -> None:
        seen: datetime | None = None
        failing = False
        while True:
            try:
                now = await self._store.now()
                slot = heartbeat.slot(now)
                if slot != seen and not await self._is_busy(heartbeat):
                    await put(heartbeat.event(slot, self._max_attempts))
                seen, failing = slot, False
                pause = min(slot + heartbeat.every - now, self._longest_pause)
            except HoldfastError as error:
                if not failing:
                    log.warning(Entry(HEARTBEAT_FAILED, agent=heartbeat.agent, error=error))
                failing, pause = True, self._retry_after
            await asyncio.sleep(pause.total_seconds())

    async def _is_busy(self, heartbeat: Heartbeat) -> bool:
        """Return whether the agent has a message to work on, so that it needs no prompt."""
        for target in heartbeat.targets:
            if await self._store.waiting(INBOX, target, limit=1):
                return True
        return False
