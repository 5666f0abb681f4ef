"""Frames as they are stored and read: what one call told, in one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from holdfast.message import Payload, channel_of, sender_of, subject_of, written_of
from holdfast.queue.event import INBOX, UNREADABLE, NewEvent
from holdfast.queue.store import Happened
from holdfast.store.payload import parse

FORGOTTEN = "forgotten"
"""The type of a frame that tells nothing any more and keeps its place, and of one that says that there are such."""
SENT_BY = "sentBy"
"""Key of a frame that names the token or person whose message it is about."""
SUBJECT = "subject"
"""Key of a stored frame that names the person it is about, for forgetting; readers do not get it."""
SHOWN = 2000
"""Characters of a message that its frame carries; the whole is in its event."""


def message_frame(
    kind: str,
    id: int,
    message_id: str | None,
    agent: str,
    event: Payload,
    sent_by: str | None = None,
) -> Payload:
    """Return the part that all frames about a message share; the agent '' is the default one."""
    shared = {
        "type": kind,
        "messageId": message_id or str(id),
        "agent": agent,
        "channel": channel_of(event),
        "sender": sender_of(event),
        SUBJECT: subject_of(event),
    }
    return shared if sent_by is None else shared | {SENT_BY: sent_by}


def received_frames(events: Sequence[NewEvent], ids: Sequence[int | None]) -> Iterator[Payload]:
    """Frames of what was stored in the inbox."""
    for new, id in zip(events, ids, strict=True):
        if id is not None and new.queue == INBOX:
            yield received_frame(id, new.message_id, new.target, new.event, new.sent_by)


def received_frame(
    id: int, message_id: str | None, target: str, event: Payload, sent_by: str | None = None
) -> Payload:
    return message_frame("message_received", id, message_id, target, event, sent_by) | {
        "message": written_of(event)[:SHOWN]
    }


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
        frame.pop(SUBJECT, None)
        told = {"type": frame["type"], "timestamp": milliseconds} | frame
        if told.get(SENT_BY, "") is None:
            del told[SENT_BY]
        yield told
        if told["type"] == "message_received":
            # A message is routed when it is stored, and never again: to store that too would tell nothing new.
            yield {key: value for key, value in told.items() if key != "message"} | {
                "type": "agent_routed"
            }
