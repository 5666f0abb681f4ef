"""Events of the comparison: mentions whose lanes are scattered over 2,000 channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.mention import PAYLOAD, conversation_of

CHANNELS = 2_000


@dataclass(frozen=True, slots=True)
class Event:
    """A payload to put, the key of its dedup and the lane that keeps its order."""

    key: str
    lane: str
    payload: dict[str, Any]
    strict: bool = False
    """Whether to ask the queue for its order and dedup where these are options."""


def numbered(number: int) -> Event:
    """Return the event of a number; no two have the same key."""
    conversation = conversation_of(number, CHANNELS)
    channel, _, second = conversation.partition(":")
    ts = f"{second}.000100"
    payload = PAYLOAD | {"channel": channel, "ts": ts, "event_ts": ts}
    return Event(f"slack_{conversation}", f"coder/{conversation}", payload)


def following(payload: dict[str, Any]) -> Event:
    """Return the event that a handler adds to the queue. It only notes that it was handled."""
    name = f"{payload['name']}-next"
    return Event(
        name, name, PAYLOAD | {"journal": payload["journal"], "name": name, "does": "notes"}, True
    )
