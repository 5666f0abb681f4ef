"""What happened, noted in the transaction in which it did: one row per commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from sqlite3 import Connection

from holdfast.message import Payload
from holdfast.queue.pages import Measure, Page
from holdfast.queue.store import Happened
from holdfast.store.activity import about, happened, received_frame
from holdfast.store.payload import dump
from holdfast.store.readable import shown_payload
from holdfast.store.sqlite.queries import load

SQL = load()


def note(connection: Connection, told: Sequence[Iterable[Payload]], now: int) -> None:
    default, is_on = connection.execute(SQL["activity_agent"]).fetchone()
    if is_on:
        frames = [frame for some in told for frame in some]
        named = [
            frame if frame.get("agent") != "" else frame | {"agent": default} for frame in frames
        ]
        # The table itself gives the id, none is drawn ahead: a hole would be told as a gap to whoever watches.
        if named:
            connection.execute(SQL["put_activity"], {"frames": dump(named), "now": now})


def failed(connection: Connection, ids: Sequence[int], *, dead: bool) -> Iterator[Payload]:
    """Frames of events whose turn failed: they come back, or are dead letters now."""
    rows = connection.execute(SQL["died" if dead else "failed"], {"ids": dump(ids)})
    for id, message_id, target, event, sent_by, attempts, error, error_class in rows:
        yield about("message_failed", id, message_id, target, shown_payload(event), sent_by) | {
            "eventId": id,
            "error": error,
            "errorClass": error_class,
            "attempts": attempts,
            "dead": dead,
        }


def revived(connection: Connection, ids: Sequence[int]) -> Iterator[Payload]:
    rows = connection.execute(SQL["revived"], {"ids": dump(ids)})
    for id, message_id, target, event, sent_by in rows:
        yield received_frame(id, message_id, target, shown_payload(event), sent_by)


def read_activity(
    connection: Connection, position: int, limit: int, most_bytes: int | None
) -> Page[Happened]:
    rows = connection.execute(SQL["activity"], {"position": position, "limit": limit})
    return (
        Measure(limit, most_bytes)
        .page(rows)
        .made(lambda row: happened(row[0], row[1], row[2] // 1000))
    )


def read_activity_span(connection: Connection) -> tuple[int, int]:
    first, following = connection.execute(SQL["activity_span"]).fetchone()
    return following if first is None else first, following
