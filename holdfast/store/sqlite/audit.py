"""The audit log on SQLite."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import timedelta
from sqlite3 import Connection
from typing import Any

from holdfast.queue.audit import Action, AuditEntry, AuditFilter, event_subject
from holdfast.queue.pages import Measure, Page
from holdfast.store.payload import dump, parse, storable
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.rows import MICROSECOND, micros, moment
from holdfast.store.sqlite.writer import Writing

SQL = load()
SALT = "audit/salt"
PRUNE_BEFORE = "audit/prune_before"


def add(db: Writing, entry: AuditEntry) -> int:
    """Append an entry and return its id."""
    params = {
        "at": db.now,
        "actor": storable(entry.actor),
        "action": entry.action,
        "subject": storable(entry.subject),
        "details": dump(entry.details),
    }
    id = db.connection.execute(SQL["add_audit"], params).lastrowid
    assert id is not None
    return id


def add_events(db: Writing, actor: str | None, action: Action, ids: Iterable[int]) -> None:
    """Append an entry per event that somebody acted on; without an actor there is none."""
    if actor is not None:
        for id in ids:
            add(db, AuditEntry(actor=actor, action=action, subject=event_subject(id)))


def read(
    connection: Connection, which: AuditFilter, page: dict[str, int], most_bytes: int | None = None
) -> Page[AuditEntry]:
    """List entries, newest first."""
    wanted: dict[str, Any] = {
        "action": which.action,
        "actor": which.actor,
        "subject": which.subject,
        "since": None if which.since is None else micros(which.since),
    }
    rows = connection.execute(SQL["audit_log"], wanted | page)
    return Measure(page["limit"], most_bytes).page(rows).made(_entry)


def _entry(row: tuple[Any, ...]) -> AuditEntry:
    id, at, actor, action, subject, details = row
    return AuditEntry(
        id=id, at=moment(at), actor=actor, action=action, subject=subject, details=parse(details)
    )


def pseudonym(connection: Connection, name: str) -> str:
    """Return the opaque name of a person, as agent.pseudonym does on PostgreSQL."""
    [salt] = connection.execute(SQL["setting"], {"key": SALT}).fetchone()
    digest = hashlib.sha256(f"{parse(salt)}\n{storable(name)}".encode()).hexdigest()
    return f"person:{digest[:24]}"


def prune(db: Writing, keep: timedelta) -> int:
    """Delete entries older than `keep` and return how many; the setting lets the trigger agree."""
    before = db.now - keep // MICROSECOND
    db.connection.execute(SQL["set_setting"], {"key": PRUNE_BEFORE, "value": dump(before)})
    pruned = db.connection.execute(SQL["prune_audit"], {"before": before}).rowcount
    db.connection.execute(SQL["remove_setting"], {"key": PRUNE_BEFORE})
    return pruned
