"""Dead letters and history: list, retry, discard and replay; bury events that are unreadable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import HoldfastError, StoreUnavailable, Unreadable
from holdfast.queue.audit import Action, AuditEntry, event_subject
from holdfast.queue.event import UNREADABLE, FinishedEvent, payload_of
from holdfast.queue.journal import EFFECT_UNKNOWN, Assume
from holdfast.queue.pages import Page
from holdfast.queue.store import Filter
from holdfast.store.payload import dump, parse
from holdfast.store.sqlite.access import add_audit, audit_events
from holdfast.store.sqlite.activity import failed_frames, revived_frames
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.journal import assume_effects, blank_journals
from holdfast.store.sqlite.put import keep_lines, put_rows
from holdfast.store.sqlite.rows import (
    FIRST,
    LAST,
    Row,
    event_of,
    filter_params,
    finished_event_of,
    micros,
    read_page,
)
from holdfast.store.sqlite.sweep import BATCH
from holdfast.store.sqlite.writer import Writing

if TYPE_CHECKING:
    from holdfast.store.sqlite.store import SqliteStore

T = TypeVar("T")

SQL = load()

Change = Callable[[Writing, Sequence[int]], list[int]]
"""A change of dead letters; returns the ids of those changed."""

MOST_HOPS = 1_000_000
MOST_ATTEMPTS = 2**31 - 1
TIMES = ("event_ts", "vt", "created_at", "updated_at")


def read_finished(
    connection: Connection, which: Filter, page: dict[str, Any]
) -> Page[FinishedEvent]:
    name = "finished" if which.ids is None else "finished_by_id"
    rows = connection.execute(SQL[name], filter_params(which) | page)
    return read_page(rows, page).map(finished_event_of)


def read_dead(connection: Connection, which: Filter, page: dict[str, Any]) -> Page[FinishedEvent]:
    name = "dead" if which.ids is None else "dead_by_id"
    rows = connection.execute(SQL[name], filter_params(which) | page)
    return read_page(rows, page).map(finished_event_of)


def read_dead_since(
    connection: Connection, queue: str, after: tuple[datetime, int], limit: int
) -> list[FinishedEvent]:
    params = {"queue": queue, "after": micros(after[0]), "after_id": after[1], "limit": limit}
    rows = connection.execute(SQL["dead_since"], params).fetchall()
    return [finished_event_of(row) for row in rows]


def find_dead(connection: Connection, which: Filter) -> list[int]:
    """Find the dead letters of a filter, to be changed in batches."""
    name = "dead_ids" if which.ids is None else "existing_dead_ids"
    [text] = connection.execute(SQL[name], filter_params(which)).fetchone()
    return sorted(parse(text))


async def change_all(
    store: SqliteStore, step: Change, which: Filter, actor: str | None, action: Action
) -> list[int]:
    """Retry or discard the dead letters of a filter, in batches. Returns their ids."""
    ids = await store.read(partial(find_dead, which=which))
    work = partial(change, step=step, actor=actor, action=action)
    batches = [ids[start : start + BATCH] for start in range(0, len(ids), BATCH)]
    return [id for batch in batches for id in await store.write(partial(work, ids=batch))]


def change(
    db: Writing, ids: Sequence[int], step: Change, actor: str | None, action: Action
) -> list[int]:
    """Retry or discard dead letters and record the actor, if any. Returns their ids."""
    changed = step(db, ids)
    audit_events(db, actor, action, changed)
    return changed


def retry(db: Writing, ids: Sequence[int], assume: Assume | None = None) -> list[int]:
    """Make dead letters live again. Returns the ids of those that were still dead.

    Without `assume`, those of the class EFFECT_UNKNOWN stay dead."""
    rows = [
        (id, queue)
        for id, queue, error_class in db.connection.execute(SQL["still_dead"], {"ids": dump(ids)})
        if assume is not None or error_class != EFFECT_UNKNOWN
    ]
    dead = [id for id, _ in rows]
    if assume is not None:
        assume_effects(db, dead, assume)
    params = {"ids": dump(dead), "now": db.now, "first": FIRST, "last": LAST - 1}
    for name in ("revive", "revive_keys", "leave_history", "erase_lines"):
        db.connection.execute(SQL[name], params)
    db.ready.update(queue for _, queue in rows)
    db.frames.append(list(revived_frames(db.connection, dead)))
    return dead


def discard(db: Writing, ids: Sequence[int]) -> list[int]:
    """Empty dead letters. Returns the ids of those that were still dead."""
    dead = [id for id, *_ in db.connection.execute(SQL["still_dead"], {"ids": dump(ids)})]
    for name in ("discard", "erase_lines"):
        db.connection.execute(SQL[name], {"ids": dump(dead), "now": db.now})
    blank_journals(db, dead)
    return dead


def replay(db: Writing, ids: Sequence[int], actor: str | None = None) -> list[int]:
    """Put copies of finished events and record the actor, if any. Returns the new ids."""
    finished = db.connection.execute(SQL["replayable"], {"ids": dump(ids)}).fetchall()
    last_id = db.ids.draw(db.connection, len(finished))
    rows = [_replay_row(row, new_id) for new_id, row in enumerate(finished, last_id + 1)]
    stored = put_rows(db, dump(rows), len(rows), keyed=True, last_id=last_id)
    db.ready.update(row[0] for row in finished)
    new_ids = [id for id in stored if id is not None]
    db.frames.append(list(revived_frames(db.connection, new_ids)))
    if actor is not None:
        for row, new_id in zip(finished, stored, strict=True):
            subject, details = event_subject(row[-1]), {"newId": new_id}
            entry = AuditEntry(actor=actor, action="replayed", subject=subject, details=details)
            add_audit(db, entry)
    return new_ids


def _replay_row(row: Sequence[Any], new_id: int) -> list[Any]:
    queue, target, lane, event_ts, event, message_id, max_attempts, *routing, _ = row
    name = None if message_id is None else f"{message_id}~{new_id}"
    event_ts = min(max(event_ts, FIRST), LAST - 1)
    new = [queue, target, lane, event_ts, None, _payload_to_replay(event), name, max_attempts]
    return [*new, None, None, 0, *routing]


def _payload_to_replay(text: str) -> Any:
    """Return the payload to store again; an unreadable one keeps its text and stays unreadable."""
    payload = payload_of(text)
    return {"kind": UNREADABLE, "message": text} if isinstance(payload, Unreadable) else payload


async def without_unreadable(store: SqliteStore, queue: str, work: Callable[[], Awaitable[T]]) -> T:
    """Do the work. If it fails, bury the unreadable events of the queue and try again.

    More may arrive meanwhile, and another task may bury the one that failed this work. So give up
    only after two searches in a row that found nothing."""
    found_nothing = False
    while True:
        try:
            return await work()
        except StoreUnavailable:
            raise
        except (HoldfastError, TypeError, ValueError):
            finds_nothing = not await bury_all_unreadable(store, queue)
            if finds_nothing and found_nothing:
                raise
            found_nothing = finds_nothing


async def bury_all_unreadable(store: SqliteStore, queue: str) -> bool:
    """Bury the unreadable events of a queue. Returns whether there were any."""
    rows = await store.read(partial(find_unreadable, queue=queue))
    if rows:
        await store.write(partial(bury_unreadable, rows=rows))
    return bool(rows)


def find_unreadable(connection: Connection, queue: str) -> list[dict[str, Any]]:
    """Find the unreadable live events of a queue, as rows of history. Reads the whole queue."""
    connection.text_factory = bytes
    try:
        return list(_unreadable_rows(connection, queue))
    finally:
        connection.text_factory = str


def _unreadable_rows(connection: Connection, queue: str) -> Iterator[dict[str, Any]]:
    rows = connection.execute(SQL["live_of"], {"queue": queue})
    names = [column[0] for column in rows.description]
    for raw in rows:
        if fault := _find_fault(raw):
            yield _readable_row(dict(zip(names, raw, strict=True)), fault)


def _find_fault(raw: Row) -> str | None:
    """Return why a row cannot be read, None if it can."""
    try:
        event = event_of([cell.decode() if isinstance(cell, bytes) else cell for cell in raw])
        _ = event.event
    except (TypeError, ValueError, Unreadable) as error:
        return str(error)
    moments = (raw[5], raw[7], raw[20], raw[21])
    if not all(FIRST <= at < LAST for at in moments):
        return "a moment is out of range"
    if not (0 <= event.attempts <= MOST_ATTEMPTS and 0 <= event.hops <= MOST_HOPS):
        return "a number is out of range"
    return None


def _readable_row(row: dict[str, Any], fault: str) -> dict[str, Any]:
    """Return a row that can be read, with as much as possible of the one that cannot."""
    texts = {
        name: cell.decode(errors="replace") for name, cell in row.items() if isinstance(cell, bytes)
    }
    times = {name: min(max(row[name], FIRST), LAST - 1) for name in TIMES}
    event, state = texts["event"], texts.get("state")
    is_readable_state = not isinstance(payload_of(state or ""), Unreadable)
    values = {
        "attempts": min(max(row["attempts"], 0), MOST_ATTEMPTS),
        "hops": min(max(row["hops"], 0), MOST_HOPS),
        "claimed": dump(_readable_claims(texts["claimed"])),
        "event": event if _is_json(event) else dump({"kind": UNREADABLE, "message": event}),
        "state": state if is_readable_state else None,
    }
    return row | texts | times | values | {"error": f"unreadable row: {fault}"}


def _readable_claims(text: str) -> list[int]:
    try:
        claims = parse(text)
    except ValueError:
        return []
    if not isinstance(claims, list):
        return []
    return [at for at in claims if isinstance(at, int) and FIRST <= at < LAST]


def _is_json(text: str) -> bool:
    try:
        parse(text)
    except ValueError as error:
        # Our parser limits the depth of nesting, but deeper texts are JSON nevertheless.
        return "recursion" in str(error)
    return True


def bury_unreadable(db: Writing, rows: Sequence[dict[str, Any]]) -> None:
    """Move unreadable events to history as dead letters."""
    for row in rows:
        db.connection.execute(SQL["put_unreadable"], row | {"now": db.now})
        db.connection.execute(SQL["delete_live"], row)
        db.ready.add(row["queue"])
    ids = [row["id"] for row in rows]
    keep_lines(db, ids)
    db.frames.append(list(failed_frames(db.connection, ids, dead=True)))
