"""Rows that somebody wrote by hand: events, times and documents that do not fit our types."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from holdfast.errors import Unreadable
from holdfast.memory.observation import Observation, ObservationType
from holdfast.message import Payload
from holdfast.queue.event import UNREADABLE, Event, FinishedEvent, payload_of, payload_to_show
from holdfast.store.payload import parse

# A day inside of the range of Python: a time zone may move a moment by up to a day.
EARLIEST = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
LATEST = datetime.max.replace(tzinfo=UTC, hour=0, minute=0, second=0, microsecond=0)

LONGEST_DELAY = timedelta(days=365_000)
"""A turn can be put off by a thousand years; the moment of a longer delay could not be read."""

OBSERVATION = (
    "workspace_id", "id", "subject_type", "subject_id", "observer", "type", "content",
    "source_message_ids", "version", "created_at", "updated_at", "deleted_at",
)  # fmt: skip
"""Columns of an observation, in the order in which both engines select them."""

AnyEvent = TypeVar("AnyEvent", Event, FinishedEvent)


def limit_delay(delay: timedelta) -> timedelta:
    """Limit a delay, so that the moment it leads to can be read."""
    return max(min(delay, LONGEST_DELAY), -LONGEST_DELAY)


def state_of(text: str) -> Payload | Unreadable:
    """Parse the stored progress of an event; anything but a JSON object is returned as an error."""
    state = payload_of(text)
    return Unreadable("the state cannot be read") if isinstance(state, Unreadable) else state


def setting_of(text: str) -> Any:
    """Parse a shared value; one that cannot be read counts as never written."""
    try:
        return parse(text)
    except ValueError:
        return None


def shown_payload(text: str) -> Payload:
    """Parse a stored payload for frames; an unreadable one becomes a message that says so."""
    payload = payload_of(text)
    return (
        {"kind": UNREADABLE, "message": f"({payload})"}
        if isinstance(payload, Unreadable)
        else payload
    )


def make_readable(event: AnyEvent) -> AnyEvent:
    """Make an event safe to list: what cannot be read is replaced or left out."""
    event.__dict__["event"] = payload_to_show(event)
    claimed: tuple[object, ...] = event.claimed
    event.claimed = tuple([at for at in claimed if isinstance(at, datetime)])
    return event


def observation_of(values: dict[str, Any]) -> Observation:
    """Return a stored observation; an unknown type counts as explicit."""
    type_ = values["type"] if values["type"] in set(ObservationType) else ObservationType.EXPLICIT
    sources = texts_of(values["source_message_ids"])
    return Observation(**values | {"type": type_, "source_message_ids": sources})


def texts_of(values: object) -> tuple[str, ...]:
    """Return the texts among stored values; anything else is left out."""
    return (
        tuple([value for value in values if isinstance(value, str)])
        if isinstance(values, list)
        else ()
    )
