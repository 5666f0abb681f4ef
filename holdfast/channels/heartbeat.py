"""Heartbeats: schedules that prompt an agent at every interval, unless it is busy."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from holdfast.channels.base import Channel, Put
from holdfast.queue.event import Event
from holdfast.settings.duration import duration_text
from holdfast.settings.timing import EVERY, Interval
from holdfast.store.schedules import HEARTBEAT, Schedule
from holdfast.telemetry import HEARTBEAT_ANSWERED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

SENDER = "Heartbeat"
NOTHING = "HEARTBEAT_OK"
"""An answer with only this word counts as silence, for agents that always answer something."""
PROMPT = (
    "Is there anything that needs your attention now?"
    f" Do it, or answer {NOTHING} if there is nothing."
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def heartbeat(agent: str, every: timedelta, now: datetime, prompt: str = PROMPT) -> Schedule:
    """Return the schedule that prompts an agent.

    Intervals count from 1970, so that they are the same in every process. The prompt of the
    interval that contains `now` is due at once, unless a process has put it already."""
    return Schedule(
        id=f"{HEARTBEAT}-{agent}",
        source="file",
        agent=agent,
        timing=f"{EVERY}{duration_text(every)}",
        event={
            "kind": "message",
            "channel": HEARTBEAT,
            "sender": SENDER,
            "sender_id": agent,
            "message": prompt,
            "conversation": f"{HEARTBEAT}:{agent}",
        },
        starts_at=EPOCH,
        next_at=next(Interval(every, EPOCH).latest(now)),
        created_at=now,
    )


class HeartbeatChannel(Channel):
    """Takes the answers to heartbeats and logs them, since nobody reads this channel."""

    name = HEARTBEAT
    is_internal = True

    async def run(self, put: Put) -> None:
        """Return at once: the schedule channel puts the prompts."""

    async def send(self, response: Event) -> None:
        if response.event["message"].strip() != NOTHING:
            # The answer itself is in the agent's history.
            log.info(Entry(HEARTBEAT_ANSWERED, agent=response.event["agent"], event_id=response.id))
