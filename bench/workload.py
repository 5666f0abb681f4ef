"""Events of all measurements: Slack mentions with a dedup key and, optionally, a lane."""

from __future__ import annotations

import itertools
from datetime import timedelta
from enum import StrEnum

from bench.mention import PAYLOAD, conversation_of
from holdfast.queue.event import INBOX, NewEvent
from holdfast.queue.outcome import Done, Settled
from holdfast.store import Store

BATCH = 500
COLLECT = 100
LEASE = timedelta(minutes=10)
TARGET = "coder"
# Threads of one channel are neighbours in the index. Set it to 2,000 to measure a workspace whose
# threads are scattered over as many channels: then the disk limits SQLite at 1,000,000 events.
CHANNELS = 1
ONE_LANE = "coder/C0001:1700000000"


class Shape(StrEnum):
    """Distribution of a backlog over lanes."""

    MANY = "a lane each"
    ONE = "one lane"
    NONE = "no lanes"


class Feed:
    """Yield events forever, numbered after a backlog; no two have the same key."""

    def __init__(self, shape: Shape, loaded: int = 0) -> None:
        self._shape = shape
        self._numbers = itertools.count(loaded + 1)

    def take(self, count: int) -> list[NewEvent]:
        return [self._event(number) for number in itertools.islice(self._numbers, count)]

    def _event(self, number: int) -> NewEvent:
        # The same lane as in the SQL with which engines load a backlog.
        conversation = conversation_of(number, CHANNELS)
        lanes = {Shape.MANY: f"coder/{conversation}", Shape.ONE: ONE_LANE, Shape.NONE: None}
        return NewEvent(
            event=PAYLOAD,
            target=TARGET,
            lane=lanes[self._shape],
            message_id=f"slack_{conversation}",
        )


async def drain(store: Store, *, limit: int, collect: int = 1) -> int:
    """Claim and settle once. Returns the number of events."""
    turns = await store.claim(
        INBOX, [TARGET], limit=limit, lease=LEASE, holder="bench", collect_limit=collect
    )
    settled = await store.settle([(turn, Done()) for turn in turns])
    assert all(isinstance(end, Settled) for end in settled), (
        "a turn was lost: nobody else works here"
    )
    return sum(len(turn.events) for turn in turns)
