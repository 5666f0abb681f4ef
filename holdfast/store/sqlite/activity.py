"""Frames of the activity stream, stored in the transaction they describe: one row per commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from sqlite3 import Connection

from holdfast.message import Payload
from holdfast.queue.pages import Measure, Page
from holdfast.queue.store import ActivityRow
from holdfast.store.activity import message_frame, read_activity_row, received_frame
from holdfast.store.payload import dump
from holdfast.store.readable import shown_payload
from holdfast.store.sqlite.connection import load

SQL = load()


def put_activity(connection: Connection, parts: Sequence[Iterable[Payload]], now: int) -> None:
    """Store the frames of a commit as one row, unless the activity stream is off."""
    default, is_on = connection.execute(SQL["activity_agent"]).fetchone()
    if is_on:
        frames = [
            frame if frame.get("agent") != "" else frame | {"agent": default}
            for part in parts
            for frame in part
        ]
        # The table gives the id: ids drawn ahead would leave holes, which readers report as gaps.
        if frames:
            connection.execute(SQL["put_activity"], {"frames": dump(frames), "now": now})


def failed_frames(connection: Connection, ids: Sequence[int], *, dead: bool) -> Iterator[Payload]:
    """Yield a frame for each event whose turn failed: dead letters, or events that come back."""
    rows = connection.execute(SQL["buried" if dead else "failed"], {"ids": dump(ids)})
    for id, message_id, target, event, sent_by, attempts, error, error_class in rows:
        yield message_frame(
            "message_failed", id, message_id, target, shown_payload(event), sent_by
        ) | {
            "eventId": id,
            "error": error,
            "errorClass": error_class,
            "attempts": attempts,
            "dead": dead,
        }


def revived_frames(connection: Connection, ids: Sequence[int]) -> Iterator[Payload]:
    """Yield a message_received frame for each event that is live again."""
    rows = connection.execute(SQL["revived"], {"ids": dump(ids)})
    for id, message_id, target, event, sent_by in rows:
        yield received_frame(id, message_id, target, shown_payload(event), sent_by)


def read_activity(
    connection: Connection, position: int, limit: int, most_bytes: int | None
) -> Page[ActivityRow]:
    rows = connection.execute(SQL["activity"], {"position": position, "limit": limit})
    return (
        Measure(limit, most_bytes)
        .page(rows)
        .map(lambda row: read_activity_row(row[0], row[1], row[2] // 1000))
    )


def read_activity_span(connection: Connection) -> tuple[int, int]:
    first, following = connection.execute(SQL["activity_span"]).fetchone()
    return following if first is None else first, following
