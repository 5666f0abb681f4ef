"""Storing events and records in SQLite, within a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from sqlite3 import Connection
from typing import Any, assert_never

from holdfast.memory.observation import Observation
from holdfast.queue.event import INBOX, Event, NewEvent
from holdfast.queue.record import Activity, AgentMessage, ChatMessage, Record
from holdfast.store.activity import received_frame
from holdfast.store.payload import dump, parse, storable_name
from holdfast.store.sqlite.observed import keep
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.rows import line_row, new_row
from holdfast.store.sqlite.writer import Writing

SQL = load()

Key = tuple[str, str]


def put(
    db: Writing, rows: str, count: int, *, keyed: bool, last_id: int | None = None
) -> list[int | None]:
    """Store the rows; the id of each, or None where its message is known. Ids may be drawn before: those after one."""
    if count == 0:
        return []
    connection = db.connection
    if last_id is None:
        last_id = db.ids.draw(connection, count)
    params = {"rows": rows, "now": db.now, "last_id": last_id, "count": count}
    if keyed:
        connection.execute(SQL["put_keys"], params)
    stored = connection.execute(SQL["put_events"], params).rowcount
    ids = range(last_id + 1, last_id + 1 + count)
    if stored == count:
        return list(ids)
    [text] = connection.execute(SQL["ids_after"], params).fetchone()
    there = set(parse(text))
    return [id if id in there else None for id in ids]


def put_one(db: Writing, new: NewEvent, event: str) -> int | None:
    """Store one event, its payload given as text: the commonest put, twice as fast without JSON around it."""
    connection, now = db.connection, db.now
    id = db.ids.draw(connection, 1) + 1
    queue, target, lane, event_ts, vt, _, message_id, *others = new_row(new)
    # A delayed event carries no lane: it would hold up what comes after it.
    lane = storable_name(lane) if vt is None or vt <= now else None
    queue, target, message_id = (
        storable_name(queue),
        storable_name(target),
        storable_name(message_id),
    )
    row = (queue, target, lane, event_ts, vt, event, message_id, *others, id, now)
    if message_id is not None and connection.execute(SQL["put_key"], row).rowcount == 0:
        return None
    connection.execute(SQL["put_event"], row)
    return id


def put_records(db: Writing, records: Iterable[Record]) -> None:
    said: list[AgentMessage] = []
    posted: list[ChatMessage] = []
    for record in records:
        match record:
            case AgentMessage():
                said.append(record)
            case ChatMessage():
                posted.append(record)
            case Activity(frames):
                db.frames.append(frames)
            case Observation():
                keep(db, record)
            case _:
                assert_never(record)
    put_lines(db, said)
    put_lines(db, posted)


def put_lines(db: Writing, lines: Sequence[AgentMessage] | Sequence[ChatMessage]) -> int:
    """Lines of one history, in their order; the id of the last."""
    if not lines:
        return 0
    name = "put_chat_messages" if isinstance(lines[0], ChatMessage) else "put_agent_messages"
    rows = [line_row(line, db.now) for line in lines]
    return db.connection.execute(SQL[name], {"lines": dump(rows)}).lastrowid or 0


def put_emits(db: Writing, emits: Sequence[tuple[Event, int, NewEvent]]) -> None:
    """Store what turns emit; each comes with its parent and its position, and not twice from the same parent."""
    named = [(parent, _named(parent, position, emit)) for parent, position, emit in emits]
    known = _known_keys(db.connection, [(emit.queue, str(emit.message_id)) for _, emit in named])
    rows = [
        row
        for parent, emit in named
        if (row := _emit_row(db.connection, parent, emit, known)) is not None
    ]
    ids = put(db, dump(rows), len(rows), keyed=True)
    db.frames.append(
        [
            received_frame(id, row[6], row[1], row[5], row[11])
            for id, row in zip(ids, rows, strict=True)
            if id is not None and row[0] == INBOX
        ]
    )


def _named(parent: Event, position: int, emit: NewEvent) -> NewEvent:
    if emit.message_id is not None:
        return emit
    return replace(emit, message_id=f"{parent.message_id or parent.id}/{position}")


def _known_keys(connection: Connection, keys: Sequence[Key]) -> dict[Key, int | None]:
    found = connection.execute(SQL["known_keys"], {"keys": dump(keys)}).fetchall()
    return {(queue, message_id): parent_id for queue, message_id, parent_id in found}


def _emit_row(
    connection: Connection, parent: Event, emit: NewEvent, known: dict[Key, int | None]
) -> list[Any] | None:
    """The row to store, under a name that nobody else has; None if this parent has emitted it before."""
    key = (emit.queue, str(emit.message_id))
    while key in known:
        if known[key] == parent.id:
            return None
        key = (emit.queue, f"{key[1]}~{parent.id}")
        known |= _known_keys(connection, [key])
    known[key] = parent.id
    hops = parent.hops + 1 if emit.queue == INBOX else parent.hops
    emit = replace(emit, message_id=key[1], sent_by=parent.sent_by)
    return new_row(emit, parent.id, parent.root_id or parent.id, hops)
