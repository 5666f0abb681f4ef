"""The events every measurement works with: mentions in Slack, each with a dedup key and, as wanted, a lane."""

from __future__ import annotations

import itertools
from datetime import timedelta
from enum import StrEnum

from holdfast.message import Payload
from holdfast.queue.event import INBOX, NewEvent
from holdfast.queue.outcome import Done, Settled
from holdfast.store import Store

BATCH = 500
COLLECT = 100
LEASE = timedelta(minutes=10)
TARGET = "coder"
# Threads of one channel are neighbours in the index, too. Set it to 2,000 to see what a workspace costs whose threads
# are scattered over as many channels: the disk then bounds SQLite at 1,000,000 waiting events.
CHANNELS = 1
ONE_LANE = "coder/C0001:1700000000"

TEXT = "could you look at the build that failed yesterday evening and tell us what to do?"
# As Slack sends it: the text once flat and once in blocks.
PAYLOAD: Payload = {
    "type": "app_mention",
    "user": "U0DNTVY1H",
    "ts": "1700000000.000100",
    "client_msg_id": "0f3c2a61-5a2c-4b5e-9d0b-5f6e8a7b9c0d",
    "text": f"<@U0LAN0Z89> {TEXT}",
    "team": "T024BE7LD",
    "blocks": [
        {
            "type": "rich_text",
            "block_id": "1rM9P",
            "elements": [
                {
                    "type": "rich_text_section",
                    "elements": [
                        {"type": "user", "user_id": "U0LAN0Z89"},
                        {"type": "text", "text": f" {TEXT}"},
                    ],
                }
            ],
        }
    ],
    "channel": "C0001",
    "event_ts": "1700000000.000100",
}


class Shape(StrEnum):
    """How a backlog lies in lanes."""

    MANY = "a lane each"
    ONE = "one lane"
    NONE = "no lanes"


class Feed:
    """Events without end, numbered on from a backlog of so many; no two have the same key."""

    def __init__(self, shape: Shape, loaded: int = 0) -> None:
        self._shape = shape
        self._numbers = itertools.count(loaded + 1)

    def take(self, count: int) -> list[NewEvent]:
        return [self._event(number) for number in itertools.islice(self._numbers, count)]

    def _event(self, number: int) -> NewEvent:
        # The twin of what the engines load.
        conversation = f"C{number % CHANNELS:04}:{1_700_000_000 + number}"
        lanes = {Shape.MANY: f"coder/{conversation}", Shape.ONE: ONE_LANE, Shape.NONE: None}
        return NewEvent(
            event=PAYLOAD,
            target=TARGET,
            lane=lanes[self._shape],
            message_id=f"slack_{conversation}",
        )


async def drain(store: Store, *, limit: int, collect: int = 1) -> int:
    """Claim and settle once; says how many events that were."""
    turns = await store.claim(
        INBOX, [TARGET], limit=limit, lease=LEASE, holder="bench", collect_limit=collect
    )
    settled = await store.settle([(turn, Done()) for turn in turns])
    assert all(isinstance(end, Settled) for end in settled), (
        "a turn was lost: nobody else works here"
    )
    return sum(len(turn.events) for turn in turns)
