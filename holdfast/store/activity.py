"""Frames as they are stored and read: what one call told, in one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from holdfast.event import INBOX, UNREADABLE, NewEvent, Payload, channel_of, sender_of, written_of
from holdfast.store.base import Happened
from holdfast.store.payload import parse

FORGOTTEN = "forgotten"
"""The type of a frame that tells nothing any more and keeps its place, and of one that says that there are such."""
SHOWN = 2000
"""Characters of a message that its frame carries; the whole is in its event."""


def about(kind: str, id: int, message_id: str | None, agent: str, event: Payload) -> Payload:
    """The part that all frames about a message share; the agent '' is the default one."""
    return {
        "type": kind,
        "messageId": message_id or str(id),
        "agent": agent,
        "channel": channel_of(event),
        "sender": sender_of(event),
    }


def received(events: Sequence[NewEvent], ids: Sequence[int | None]) -> Iterator[Payload]:
    """Frames of what was stored in the inbox."""
    for new, id in zip(events, ids, strict=True):
        if id is not None and new.queue == INBOX:
            yield received_frame(id, new.message_id, new.target, new.event)


def received_frame(id: int, message_id: str | None, target: str, event: Payload) -> Payload:
    return about("message_received", id, message_id, target, event) | {"message": written_of(event)[:SHOWN]}


def happened(position: int, frames: str, milliseconds: int) -> Happened:
    """Read a row of frames, each with a time; one that cannot be read keeps its position and tells nothing."""
    return Happened(position, list(_told(_frames(frames), milliseconds)))


def _frames(text: str) -> Iterator[Payload]:
    try:
        frames = parse(text)
    except ValueError:
        frames = None
    for frame in frames if isinstance(frames, list) else [None]:
        if isinstance(frame, dict) and isinstance(frame.get("type"), str):
            yield frame
        else:
            yield {"type": UNREADABLE}


def _told(frames: Iterable[Payload], milliseconds: int) -> Iterator[Payload]:
    for frame in frames:
        told = {"type": frame["type"], "timestamp": milliseconds} | frame
        yield told
        if told["type"] == "message_received":
            # A message is routed when it is stored, and never again: to store that too would tell nothing new.
            yield {key: value for key, value in told.items() if key != "message"} | {"type": "agent_routed"}
