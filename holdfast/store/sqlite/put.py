"""Storing events and records, within a transaction of the caller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from itertools import count
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, assert_never

from holdfast.chat import (
    AgentMessage,
    AnswerFile,
    ChatMessage,
    NewConversation,
    NewVersion,
    SentFiles,
)
from holdfast.memory.observation import Observation
from holdfast.queue.event import INBOX, Event, NewEvent
from holdfast.queue.record import Activity, Record
from holdfast.store.activity import received_frame, received_frames
from holdfast.store.payload import dump, parse, storable, storable_name
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.rows import agent_message_row, chat_message_row, new_row
from holdfast.telemetry.redaction import redact_prose

if TYPE_CHECKING:
    from holdfast.store.sqlite.writer import Writing

SQL = load()

Key = tuple[str, str]
"""The queue and the message id of an event."""
MOST_AHEAD = 256
"""Maximum number of ids to reserve ahead."""


class Ids:
    """Draws event ids that are unique and follow the order of commits, over all processes.

    `sqlite_sequence` records the last id in use; updating it for each event would write one more
    page per commit. So ids are reserved ahead, twice as many each time, and kept for the next
    transactions of this connection, unless another connection has written since.
    """

    def __init__(self) -> None:
        self._version = -1
        self._last = self._reserved = 0
        self._ahead = 1

    def begin(self, connection: Connection) -> None:
        """Drop the reserve if others have written. Call it first in every transaction."""
        [version] = connection.execute("pragma data_version").fetchone()
        if version != self._version:
            self._version = version
            self.forget()

    def forget(self) -> None:
        """Drop the reserve: its record may have been rolled back."""
        self._last = self._reserved = 0
        self._ahead = 1

    def draw(self, connection: Connection, count: int) -> int:
        """Take `count` ids. Returns the id before the first of them."""
        if self._last + count > self._reserved:
            more = max(count, self._ahead)
            self._reserved = _reserve_ids(connection, more)
            self._last, self._ahead = self._reserved - more, min(2 * self._ahead, MOST_AHEAD)
        before, self._last = self._last, self._last + count
        return before


def _reserve_ids(connection: Connection, count: int) -> int:
    params = {"count": count}
    row = connection.execute(SQL["draw_ids"], params).fetchone()
    if row is None:
        row = connection.execute(SQL["first_ids"], params).fetchone()
    return int(row[0])


def dump_events(events: Sequence[NewEvent]) -> str:
    """Return the JSON text that `put_events` takes: a lone payload, or the rows of several."""
    if len(events) == 1:
        return dump(events[0].event)
    return dump([new_row(event) for event in events])


def put_events(
    db: Writing, events: Sequence[NewEvent], text: str, records: Sequence[Record]
) -> list[int | None]:
    """Store events and records. Returns the id of each event, None for a known message."""
    if len(events) == 1:
        ids = [put_one(db, events[0], text)]
    else:
        keyed = any(event.message_id is not None for event in events)
        ids = put_rows(db, text, len(events), keyed=keyed)
    if records:
        put_records(db, records)
    db.frames.append(received_frames(events, ids))
    db.ready.update(event.queue for event in events)
    return ids


def put_rows(
    db: Writing, rows: str, count: int, *, keyed: bool, last_id: int | None = None
) -> list[int | None]:
    """Store rows, given as a JSON array. Returns the id of each, None for a known message.

    If the caller has drawn the ids already, they follow `last_id`."""
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
    stored_ids = set(parse(text))
    return [id if id in stored_ids else None for id in ids]


def put_one(db: Writing, new: NewEvent, event: str) -> int | None:
    """Store one event, its payload given as text. Returns its id, None for a known message.

    This is the most common put, and twice as fast without JSON around the row."""
    connection, now = db.connection, db.now
    id = db.ids.draw(connection, 1) + 1
    queue, target, lane, event_ts, vt, _, message_id, *others = new_row(new)
    # A delayed event carries no lane: it would hold up its successors.
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
    agent_messages: list[AgentMessage] = []
    chat_messages: list[ChatMessage] = []
    for record in records:
        match record:
            case AgentMessage():
                agent_messages.append(record)
            case ChatMessage():
                chat_messages.append(record)
            case NewConversation() | NewVersion() | SentFiles() | AnswerFile():
                put_chat_record(db, record)
            case Activity(frames):
                db.frames.append(frames)
            case Observation():
                put_observation(db, record)
            case _:
                raise TypeError(f"the store keeps no records such as {record!r}")
    if agent_messages:
        put_agent_messages(db, agent_messages)
    if chat_messages:
        put_chat_messages(db, chat_messages)


def put_chat_record(
    db: Writing, record: NewConversation | NewVersion | SentFiles | AnswerFile
) -> None:
    match record:
        case NewConversation():
            put_conversation(db, record)
        case NewVersion():
            put_version(db, record)
        case SentFiles():
            send_files(db, record)
        case AnswerFile():
            params = asdict(record) | {"owner": record.owner or "", "now": db.now}
            db.connection.execute(SQL["add_answer_file"], storable(params))
        case _:
            assert_never(record)


def put_agent_messages(db: Writing, lines: Sequence[AgentMessage]) -> None:
    """Append lines to agents' histories. An answer draws its id from those of events."""
    answers = sum(line.event_id is None for line in lines)
    new_ids = count(db.ids.draw(db.connection, answers) + 1 if answers else 0)
    rows = [[*agent_message_row(line, db.now), line.event_id or next(new_ids)] for line in lines]
    db.connection.execute(SQL["put_agent_messages"], {"lines": dump(rows)})


def put_chat_messages(db: Writing, lines: Sequence[ChatMessage]) -> int:
    """Append lines to rooms, in their order. Returns the id of the last."""
    rows = [chat_message_row(line, db.now) for line in lines]
    return db.connection.execute(SQL["put_chat_messages"], {"lines": dump(rows)}).lastrowid or 0


def keep_lines(db: Writing, ids: Sequence[int]) -> None:
    """Store the lines of dead messages in the histories; other events among the ids have none."""
    db.connection.execute(SQL["keep_lines"], {"ids": dump(ids)})


def put_conversation(db: Writing, new: NewConversation) -> None:
    params = {
        "conversation": new.conversation,
        "owner": new.owner or "",
        "channel": new.channel,
        "sender": new.sender,
        "title": new.title,
        "subject": new.subject,
        "now": db.now,
    }
    db.connection.execute(SQL["list_conversation"], storable(params))


def send_files(db: Writing, sent: SentFiles) -> None:
    """Give uploaded files to the message that carries them."""
    params = asdict(sent) | {"ids": dump(list(sent.ids)), "owner": sent.owner or ""}
    db.connection.execute(SQL["send_files"], storable(params))


def put_version(db: Writing, new: NewVersion) -> None:
    """Store that a message replaces an earlier one and all versions of that."""
    params = {
        "message_id": new.message_id,
        "original": new.original,
        "conversation": new.conversation,
        "now": db.now,
    }
    for query in ("keep_original", "supersede_versions", "keep_version"):
        db.connection.execute(SQL[query], storable(params))


def put_observation(db: Writing, observation: Observation) -> dict[str, Any]:
    """Insert or replace an observation; the caller has to put its memory event.

    Returns the values written."""
    params = {
        "workspace_id": observation.workspace_id,
        "id": observation.id,
        "subject_type": observation.subject_type,
        "subject_id": observation.subject_id,
        "observer": observation.observer,
        "type": observation.type.value,
        "content": storable(redact_prose(observation.content)),
        "source_message_ids": dump(list(observation.source_message_ids)),
        "confidence": observation.confidence,
        "now": db.now,
        "version": draw_version(db),
    }
    db.connection.execute(SQL["save_observation"], params)
    return params


def draw_version(db: Writing) -> int:
    """Draw the next version of the memory: of an observation, or of a forgotten scope."""
    version: int
    [version] = db.connection.execute(SQL["next_observation_version"]).fetchone()
    return version


def put_emits(db: Writing, emits: Sequence[tuple[Event, int, NewEvent]]) -> None:
    """Store the events that turns emit, each given with its parent and position.

    A parent that emits the same message again stores it once."""
    named = [(parent, _with_name(parent, position, emit)) for parent, position, emit in emits]
    known = _find_keys(db.connection, [(emit.queue, str(emit.message_id)) for _, emit in named])
    rows = [
        row
        for parent, emit in named
        if (row := _emit_row(db.connection, parent, emit, known)) is not None
    ]
    ids = put_rows(db, dump(rows), len(rows), keyed=True)
    db.frames.append(
        [
            received_frame(id, row[6], row[1], row[5], row[11])
            for id, row in zip(ids, rows, strict=True)
            if id is not None and row[0] == INBOX
        ]
    )


def _with_name(parent: Event, position: int, emit: NewEvent) -> NewEvent:
    if emit.message_id is not None:
        return emit
    return replace(emit, message_id=f"{parent.message_id or parent.id}/{position}")


def _find_keys(connection: Connection, keys: Sequence[Key]) -> dict[Key, int | None]:
    """Find which keys exist. Returns the parent of each that does."""
    rows = connection.execute(SQL["known_keys"], {"keys": dump(keys)}).fetchall()
    return {(queue, message_id): parent_id for queue, message_id, parent_id in rows}


def _emit_row(
    connection: Connection, parent: Event, emit: NewEvent, known: dict[Key, int | None]
) -> list[Any] | None:
    """Return the row to store under a free message id, None if this parent emitted it before."""
    key = (emit.queue, str(emit.message_id))
    while key in known:
        if known[key] == parent.id:
            return None
        key = (emit.queue, f"{key[1]}~{parent.id}")
        known |= _find_keys(connection, [key])
    known[key] = parent.id
    hops = parent.hops + 1 if emit.queue == INBOX else parent.hops
    emit = replace(emit, message_id=key[1], sent_by=parent.sent_by)
    return new_row(emit, parent.id, parent.root_id or parent.id, hops)
