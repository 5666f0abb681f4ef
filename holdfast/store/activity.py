"""Frames as they are stored and read: one row of the activity log holds those of one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from holdfast.message import Payload, channel_of, sender_of, subject_of, written_of
from holdfast.queue.event import INBOX, UNREADABLE, NewEvent
from holdfast.queue.store import ActivityRow
from holdfast.store.payload import parse

FORGOTTEN = "forgotten"
"""Type of a frame whose content was forgotten; it keeps its position."""
SENT_BY = "sentBy"
"""Key of a frame that names the token or person whose message it is about."""
SUBJECT = "subject"
"""Key of a stored frame that names the person it is about, for forgetting. Not shown to readers."""
SHOWN = 2000
"""Characters of a message that its frame carries; the event has the full text."""


STREAMED = "streamed"
"""Key of a `response_ready` frame whose text earlier frames have shown."""


def message_frame(
    kind: str,
    id: int,
    message_id: str | None,
    agent: str,
    event: Payload,
    sent_by: str | None = None,
) -> Payload:
    """Build a frame about a message; the agent '' is the default one."""
    frame = {
        "type": kind,
        "messageId": message_id or str(id),
        "agent": agent,
        "channel": channel_of(event),
        "sender": sender_of(event),
        SUBJECT: subject_of(event),
    }
    return frame if sent_by is None else frame | {SENT_BY: sent_by}


def received_frames(events: Sequence[NewEvent], ids: Sequence[int | None]) -> Iterator[Payload]:
    """Yield the `message_received` frames of stored inbox events."""
    for new, id in zip(events, ids, strict=True):
        if id is not None and new.queue == INBOX:
            yield received_frame(id, new.message_id, new.target, new.event, new.sent_by)


def received_frame(
    id: int, message_id: str | None, target: str, event: Payload, sent_by: str | None = None
) -> Payload:
    """Build the `message_received` frame, the only place in Python that does."""
    return message_frame("message_received", id, message_id, target, event, sent_by) | {
        "message": written_of(event)[:SHOWN]
    }


def read_activity_row(position: int, frames: str, milliseconds: int) -> ActivityRow:
    """Read a row of frames and give each a time. An unreadable frame keeps its position."""
    return ActivityRow(position, list(with_deltas(_complete_frames(_frames(frames), milliseconds))))


def with_deltas(frames: Iterable[Payload]) -> Iterator[Payload]:
    """Add the `response_delta` of an answer that was not streamed, before its `response_ready`.

    The delta repeats the text of the `chain_step_done` frame, so the text is stored only once."""
    answer = ""
    for frame in frames:
        if frame["type"] == "chain_step_done":
            answer = str(frame.get("response") or "")
        elif frame["type"] == "response_delta":
            answer = ""
        elif frame["type"] == "response_ready":
            if answer and STREAMED not in frame:
                yield frame | {"type": "response_delta", "text": answer, "offset": 0}
            answer = ""
        yield frame


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


def _complete_frames(frames: Iterable[Payload], milliseconds: int) -> Iterator[Payload]:
    for frame in frames:
        frame.pop(SUBJECT, None)
        completed = {"type": frame["type"], "timestamp": milliseconds} | frame
        if completed.get(SENT_BY, "") is None:
            del completed[SENT_BY]
        yield completed
        if completed["type"] == "message_received":
            # A message is routed when it is stored, so this frame need not be stored.
            yield {key: value for key, value in completed.items() if key != "message"} | {
                "type": "agent_routed"
            }
