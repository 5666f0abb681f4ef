"""Dead letters and history in SQLite: listed, made live again, emptied, played once more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from sqlite3 import Connection
from typing import Any

from holdfast.errors import Unreadable
from holdfast.queue.audit import AuditEntry, event_subject
from holdfast.queue.event import UNREADABLE, FinishedEvent, payload_of
from holdfast.queue.pages import Measure, Page
from holdfast.queue.store import Filter
from holdfast.store.payload import dump, parse
from holdfast.store.sqlite import audit
from holdfast.store.sqlite.activity import revived
from holdfast.store.sqlite.put import put
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.rows import FIRST, LAST, filter_params, finished_of, micros
from holdfast.store.sqlite.writer import Writing

SQL = load()


def finished(
    connection: Connection, which: Filter, page: dict[str, int], most_bytes: int | None
) -> Page[FinishedEvent]:
    name = "finished" if which.ids is None else "finished_of"
    rows = connection.execute(SQL[name], filter_params(which) | page)
    return Measure(page["limit"], most_bytes).page(rows).made(finished_of)


def dead(
    connection: Connection, which: Filter, page: dict[str, int], most_bytes: int | None
) -> Page[FinishedEvent]:
    name = "dead" if which.ids is None else "dead_of"
    rows = connection.execute(SQL[name], filter_params(which) | page)
    return Measure(page["limit"], most_bytes).page(rows).made(finished_of)


def died(
    connection: Connection, queue: str, after: tuple[datetime, int], limit: int
) -> list[FinishedEvent]:
    params = {"queue": queue, "after": micros(after[0]), "after_id": after[1], "limit": limit}
    return [finished_of(row) for row in connection.execute(SQL["dead_since"], params).fetchall()]


def dead_ids(connection: Connection, which: Filter) -> list[int]:
    """The dead letters that are meant, to be worked on in batches of their own transactions."""
    name = "dead_ids" if which.ids is None else "dead_ids_of"
    [text] = connection.execute(SQL[name], filter_params(which)).fetchone()
    return sorted(parse(text))


def retry(db: Writing, ids: Sequence[int]) -> list[int]:
    """Make dead letters live again; the ids of those that were still dead."""
    found = db.connection.execute(SQL["still_dead"], {"ids": dump(ids)}).fetchall()
    params = {"ids": dump([id for id, _ in found]), "now": db.now, "first": FIRST, "last": LAST - 1}
    for name in ("revive", "revive_keys", "leave_history"):
        db.connection.execute(SQL[name], params)
    db.ready.update(queue for _, queue in found)
    db.frames.append(list(revived(db.connection, [id for id, _ in found])))
    return [id for id, _ in found]


def discard(db: Writing, ids: Sequence[int]) -> list[int]:
    found = [id for id, _ in db.connection.execute(SQL["still_dead"], {"ids": dump(ids)})]
    db.connection.execute(SQL["discard"], {"ids": dump(found), "now": db.now})
    return found


def replay(db: Writing, ids: Sequence[int], actor: str | None = None) -> list[int]:
    """Put finished events once more and return the new ids; an actor is recorded."""
    found = db.connection.execute(SQL["replayable"], {"ids": dump(ids)}).fetchall()
    last_id = db.ids.draw(db.connection, len(found))
    rows = [_replayed(row, new_id) for new_id, row in enumerate(found, last_id + 1)]
    stored = put(db, dump(rows), len(rows), keyed=True, last_id=last_id)
    db.ready.update(row[0] for row in found)
    ids = [id for id in stored if id is not None]
    db.frames.append(list(revived(db.connection, ids)))
    if actor is not None:
        for row, new_id in zip(found, stored, strict=True):
            details = {"newId": new_id}
            entry = AuditEntry(
                actor=actor, action="replayed", subject=event_subject(row[-1]), details=details
            )
            audit.add(db, entry)
    return ids


def _payload(text: str) -> Any:
    """The payload to store once more; one that cannot be read is kept as text, and cannot be read again."""
    payload = payload_of(text)
    return {"kind": UNREADABLE, "message": text} if isinstance(payload, Unreadable) else payload


def _replayed(row: Sequence[Any], new_id: int) -> list[Any]:
    (
        queue,
        target,
        lane,
        event_ts,
        event,
        message_id,
        max_attempts,
        sent_by,
        routed_text,
        routed_team,
        _,
    ) = row
    name = None if message_id is None else f"{message_id}~{new_id}"
    return [
        queue,
        target,
        lane,
        min(max(event_ts, FIRST), LAST - 1),
        None,
        _payload(event),
        name,
        max_attempts,
        None,
        None,
        0,
        sent_by,
        routed_text,
        routed_team,
    ]
