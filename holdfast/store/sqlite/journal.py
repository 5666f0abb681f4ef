"""The journal of events: steps, texts and signals, within a transaction of the writer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from sqlite3 import Connection
from typing import Any

from holdfast.queue.journal import Assume, Journal, JournalEntry, Step, Write
from holdfast.queue.outcome import Lost
from holdfast.queue.turn import LeasedTurn
from holdfast.store.failure import stored_error
from holdfast.store.journal import check_position, stored_text, text_from
from holdfast.store.payload import dump, parse, storable_name
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.rows import micros, moment
from holdfast.store.sqlite.writer import Writing

SQL = load()


def record(db: Writing, entry: JournalEntry) -> bool:
    """Store an entry. Returns False if the turn is lost, which must not fail other requests."""
    if not _holds(db, entry.turn):
        return False
    event_id = entry.turn.primary.id
    for step in entry.steps:
        _put_step(db, event_id, step)
    if entry.write or entry.progress is not None or entry.preview is not None:
        _put_journal(db, event_id, entry)
    if entry.frames:
        db.frames.append(entry.frames)
    return True


def _holds(db: Writing, turn: LeasedTurn) -> bool:
    params = {"id": turn.primary.id, "fence": turn.fence}
    return db.connection.execute(SQL["holds_primary"], params).fetchone() is not None


def _put_step(db: Writing, event_id: int, step: Step) -> None:
    params = {
        "event_id": event_id,
        "key": stored_text(step.key),
        "kind": step.kind,
        "state": step.state,
        "attempt": step.attempt,
        "events": step.events,
        "arguments": storable_name(step.arguments),
        "digest": step.digest,
        "result": storable_name(step.result),
        "error": stored_error(step.error),
        "signal": storable_name(step.signal),
        "due_at": _micros(step.due_at),
        "tokens": step.tokens,
        "cost": step.cost,
        "started_at": _micros(step.started_at),
        "ended_at": _micros(step.ended_at),
        "now": db.now,
    }
    db.connection.execute(SQL["put_step"], params)


def _put_journal(db: Writing, event_id: int, entry: JournalEntry) -> None:
    write = entry.write
    params = {
        "event_id": event_id,
        "generation": write and write.generation,
        "length": write and _put_text(db, event_id, write),
        "progress": None if entry.progress is None else stored_text(entry.progress),
        "preview": None if entry.preview is None else dump(entry.preview),
        "now": db.now,
    }
    db.connection.execute(SQL["put_journal"], params)


def _put_text(db: Writing, event_id: int, write: Write) -> int:
    """Store a text in place of all text from its offset on. Returns the length of the whole."""
    params = {"event_id": event_id, "offset": write.offset, "text": stored_text(write.text)}
    row = db.connection.execute(SQL["journal_position"], params).fetchone()
    generation, length = row or (0, 0)
    check_position(event_id, write, generation, length)
    if write.offset < length:
        db.connection.execute(SQL["drop_text"], params)
        db.connection.execute(SQL["cut_text"], params)
    if write.text:
        db.connection.execute(SQL["put_text"], params)
    return write.offset + len(write.text)


def put_signal(db: Writing, event_id: int, name: str, value: str) -> bool:
    """Keep a signal for an event, and resume the event's turn if that waits for the signal.

    Returns False if the event is not live."""
    params = {"event_id": event_id, "name": stored_text(name), "value": value, "now": db.now}
    if db.connection.execute(SQL["is_live"], params).fetchone() is None:
        return False
    db.connection.execute(SQL["put_signal"], params)
    resume_signalled(db, event_id)
    return True


def take_signal(db: Writing, turn: LeasedTurn, step: Step) -> Step | Lost | None:
    """Take a signal as the result of a step. Returns the step, None if there is no signal.

    Returns Lost if the turn is lost, which must not fail other requests."""
    if not _holds(db, turn):
        return Lost(turn)
    name = stored_text(step.signal or "")
    params = {"ids": dump(turn.ids), "name": name, "key": stored_text(step.key)}
    row = db.connection.execute(SQL["next_signal"], params).fetchone()
    if row is None:
        return None
    signal_id, value = row
    db.connection.execute(SQL["take_signal"], params | {"id": signal_id})
    done = replace(step, state="done", result=value)
    _put_step(db, turn.primary.id, done)
    return done


def resume_signalled(db: Writing, event_id: int | None) -> int:
    """Make turns due whose awaited signal has arrived. Returns the number of turns."""
    params = {"event_id": event_id, "now": db.now}
    rows = db.connection.execute(SQL["signalled_waits"], params).fetchall()
    db.connection.execute(SQL["resume"], {"ids": dump([id for id, _ in rows]), "now": db.now})
    db.ready.update(queue for _, queue in rows)
    return len(rows)


def assume_effects(db: Writing, ids: Sequence[int], assume: Assume) -> None:
    """Store a person's decision about once-steps that may have happened."""
    name = "assume_done" if assume == "done" else "assume_not_done"
    db.connection.execute(SQL[name], {"ids": dump(ids), "now": db.now})


def blank_journals(db: Writing, ids: Sequence[int]) -> None:
    """Erase everything that anybody wrote in the journals of events; keys and states stay."""
    for name in ("blank_steps", "blank_journals", "blank_attempts", "erase_texts", "erase_signals"):
        db.connection.execute(SQL[name], {"ids": dump(ids)})


def erase_journals(db: Writing, ids: Sequence[int]) -> None:
    """Delete the journals of events."""
    for name in ("erase_steps", "erase_journals", "erase_attempts", "erase_texts", "erase_signals"):
        db.connection.execute(SQL[name], {"ids": dump(ids)})


def read_journal(connection: Connection, event_id: int, offset: int, *, results: bool) -> Journal:
    params = {"event_id": event_id, "offset": offset, "results": results}
    row = connection.execute(SQL["journal"], params).fetchone()
    generation, length, progress, preview = row or (0, 0, None, None)
    steps = [_step_of(each) for each in connection.execute(SQL["journal_steps"], params)]
    texts = connection.execute(SQL["journal_text"], params).fetchall() if length else []
    return Journal(
        steps={step.key: step for step in steps},
        generation=generation,
        text=text_from(texts, offset),
        length=length,
        progress=progress,
        preview=None if preview is None else parse(preview),
    )


def _step_of(row: Sequence[Any]) -> Step:
    key, state, attempt, kind, events, digest, error, signal, due_at, tokens, cost, *rest = row
    started_at, ended_at, arguments, result = rest
    return Step(
        key=key,
        state=state,
        attempt=attempt,
        kind=kind,
        events=events,
        arguments=arguments,
        digest=digest,
        result=result,
        error=error,
        signal=signal,
        due_at=_moment(due_at),
        tokens=tokens,
        cost=cost,
        started_at=_moment(started_at),
        ended_at=_moment(ended_at),
    )


def _micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def _moment(value: int | None) -> datetime | None:
    return None if value is None else moment(value)
