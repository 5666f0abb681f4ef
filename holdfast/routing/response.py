"""Responses: what goes out to a channel, in the order of its conversation."""

from __future__ import annotations

from holdfast.message import Payload
from holdfast.queue.event import OUTBOX, NewEvent

RESPONSE_ATTEMPTS = 10


def response_event(payload: Payload) -> NewEvent:
    """A response for its channel, in order per conversation."""
    channel, conversation = payload["channel"], payload.get("conversation")
    lane = f"{channel}/{conversation}" if conversation else None
    return NewEvent(
        event=payload, queue=OUTBOX, target=channel, lane=lane, max_attempts=RESPONSE_ATTEMPTS
    )
