"""Live events in SQLite that cannot be read: found one by one, and buried with what of them can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from sqlite3 import Connection
from typing import Any

from holdfast.errors import Unreadable
from holdfast.queue.event import UNREADABLE, Turn, payload_of
from holdfast.store.payload import dump, parse
from holdfast.store.sqlite.activity import failed
from holdfast.store.sqlite.leases import events
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.rows import FIRST, LAST, Row, stored_of
from holdfast.store.sqlite.writer import Writing

SQL = load()

MOST_HOPS = 1_000_000
MOST_ATTEMPTS = 2**31 - 1
TIMES = ("event_ts", "vt", "created_at", "updated_at")


def find(connection: Connection, queue: str) -> list[dict[str, Any]]:
    """The live events of a queue that cannot be read, as rows of history. Reads all of them, so ask only if one is."""
    connection.text_factory = bytes
    try:
        return list(_found(connection, queue))
    finally:
        connection.text_factory = str


def _found(connection: Connection, queue: str) -> Iterator[dict[str, Any]]:
    rows = connection.execute(SQL["live_of"], {"queue": queue})
    names = [column[0] for column in rows.description]
    for raw in rows:
        if reason := _fault_of(raw):
            yield _letter(dict(zip(names, raw, strict=True)), reason)


def _fault_of(raw: Row) -> str | None:
    """Why a row cannot be read, None if it can."""
    try:
        event = stored_of([cell.decode() if isinstance(cell, bytes) else cell for cell in raw])
        _ = event.event
    except (TypeError, ValueError, Unreadable) as error:
        return str(error)
    moments = (raw[5], raw[7], raw[20], raw[21])
    if not all(FIRST <= at < LAST for at in moments):
        return "a moment is out of range"
    if not (0 <= event.attempts <= MOST_ATTEMPTS and 0 <= event.hops <= MOST_HOPS):
        return "a number is out of range"
    return None


def _letter(row: dict[str, Any], reason: str) -> dict[str, Any]:
    texts = {
        name: cell.decode(errors="replace") for name, cell in row.items() if isinstance(cell, bytes)
    }
    times = {name: min(max(row[name], FIRST), LAST - 1) for name in TIMES}
    bounds = {
        "attempts": min(max(row["attempts"], 0), MOST_ATTEMPTS),
        "hops": min(max(row["hops"], 0), MOST_HOPS),
        "claimed": dump(_claims(texts["claimed"])),
        "event": texts["event"]
        if _is_json(texts["event"])
        else dump({"kind": UNREADABLE, "message": texts["event"]}),
        "state": None
        if isinstance(payload_of(texts.get("state") or ""), Unreadable)
        else texts["state"],
    }
    return row | texts | times | bounds | {"error": f"unreadable row: {reason}"}


def _claims(text: str) -> list[int]:
    try:
        claims = parse(text)
    except ValueError:
        return []
    return (
        [at for at in claims if isinstance(at, int) and FIRST <= at < LAST]
        if isinstance(claims, list)
        else []
    )


def _is_json(text: str) -> bool:
    try:
        parse(text)
    except ValueError as error:
        return "recursion" in str(error)
    return True


def bury(db: Writing, letters: Sequence[dict[str, Any]]) -> None:
    """Move them to history as dead letters."""
    for letter in letters:
        db.connection.execute(SQL["put_unreadable"], letter | {"now": db.now})
        db.connection.execute(SQL["delete_live"], letter)
        db.ready.add(letter["queue"])
    ids = [letter["id"] for letter in letters]
    db.frames.append(list(failed(db.connection, ids, dead=True)))


def turns_of(connection: Connection, queue: str, ids: Sequence[int]) -> list[Turn]:
    """Turns of events that are leased already, in the order of their fences."""
    members: dict[int, list[Any]] = {}
    for event in events(connection, ids):
        members.setdefault(event.fence, []).append(event)
    return [Turn(queue, fence, tuple(turn)) for fence, turn in sorted(members.items())]
