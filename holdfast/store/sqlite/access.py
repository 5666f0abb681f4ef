"""Access: credentials, pairings, people (links, forgetting them), and the audit log."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

from holdfast.memory.people import person_key, person_keys
from holdfast.queue.audit import Action, AuditEntry, AuditFilter, event_subject
from holdfast.queue.pages import Page
from holdfast.store.activity import FORGOTTEN
from holdfast.store.credentials import (
    CREDENTIAL,
    MOMENTS,
    USED_EVERY_SECONDS,
    Credential,
    Kind,
    Role,
    credential_of,
    credential_values,
)
from holdfast.store.pairing import (
    EXPIRES_AFTER,
    MOST_REQUESTS,
    PAIRING,
    Pairing,
    PairingRequest,
    pairing_of,
)
from holdfast.store.payload import dump, parse, storable
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.journal import erase_journals
from holdfast.store.sqlite.rows import MICROSECOND, Row, micros, moment, read_page
from holdfast.store.sqlite.writer import Writing

if TYPE_CHECKING:
    from holdfast.store.sqlite.store import SqliteStore

SQL = load()
SALT = "audit/salt"
PRUNE_BEFORE = "audit/prune_before"
PAIRING_MOMENTS = ("requested_at", "expires_at", "approved_at")


class SqliteCredentials:
    """The tokens, sessions and login codes of a SQLite store."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def add(self, credential: Credential, digest: str) -> bool:
        params = _credential_params(credential) | {"digest": digest}

        def work(db: Writing) -> bool:
            db.connection.execute(SQL["drop_expired_credentials"], {"now": db.now})
            return db.connection.execute(SQL["add_credential"], params).rowcount > 0

        return await self._store.write(work)

    async def find(self, kind: Kind, digest: str) -> Credential | None:
        now = micros(await self._store.now())
        params = {"kind": kind, "digest": digest, "now": now}
        row = await self._store.read(
            lambda connection: connection.execute(SQL["find_credential"], params).fetchone()
        )
        if row is None:
            return None
        credential = _credential_of(row)
        used_at = credential.used_at
        if used_at is None or now - micros(used_at) > USED_EVERY_SECONDS * 1_000_000:
            await self._execute("use_credential", {"id": credential.id, "now": now})
        return credential

    async def take(self, digest: str) -> Credential | None:
        now = micros(await self._store.now())
        rows = await self._execute("take_code", {"digest": digest, "now": now})
        return _credential_of(rows[0]) if rows else None

    async def tokens(self) -> list[Credential]:
        rows = await self._store.read(
            lambda connection: connection.execute(SQL["tokens"]).fetchall()
        )
        return [_credential_of(row) for row in rows]

    async def sessions(self) -> list[Credential]:
        params = {"now": micros(await self._store.now())}
        rows = await self._store.read(
            lambda connection: connection.execute(SQL["sessions"], params).fetchall()
        )
        return [_credential_of(row) for row in rows]

    async def revoke(self, name: str) -> Credential | None:
        rows = await self._execute("revoke_token", {"name": name})
        return next((_credential_of(row) for row in rows if row[1] == "token"), None)

    async def end(self, session_id: str) -> None:
        await self._execute("end_session", {"id": session_id})

    async def end_all(self, role: Role) -> int:
        rows = await self._execute("end_sessions", {"role": role})
        return sum(kind == "session" for (kind,) in rows)

    async def _execute(self, name: str, params: dict[str, Any]) -> list[Row]:
        return await self._store.write(
            lambda db: db.connection.execute(SQL[name], params).fetchall()
        )


def _credential_params(credential: Credential) -> dict[str, Any]:
    values = credential_values(credential)
    moments = {name: micros(values[name]) for name in MOMENTS if values[name] is not None}
    return values | moments


def _credential_of(row: Row) -> Credential:
    values = dict(zip(CREDENTIAL, row, strict=True))
    moments = {name: moment(values[name]) for name in MOMENTS if values[name] is not None}
    return credential_of((values | moments).values())


class SqlitePeople:
    """Links between the identities of people; see holdfast.memory.people.People."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def link(self, one: str, other: str, *, actor: str | None = None) -> bool:
        first, second = person_keys(one, other)
        return await self._store.write(
            lambda db: _link(db, first, second) and _audit_link(db, actor, "people_linked", first)
        )

    async def unlink(self, subject: str, *, actor: str | None = None) -> bool:
        key = person_key(subject)
        return await self._store.write(
            lambda db: _unlink(db, key) and _audit_link(db, actor, "people_unlinked", key)
        )

    async def identities(self, subject: str) -> list[str]:
        params = {"subject": subject}
        rows = await self._store.read(
            lambda connection: connection.execute(SQL["linked_subjects"], params).fetchall()
        )
        return [subject, *(other for (other,) in rows)]

    async def known_as(self, subject: str) -> list[str]:
        rows = await self._store.read(
            lambda connection: connection.execute(SQL["known_as"], {"key": subject}).fetchall()
        )
        return [str(known) for (known,) in rows]

    async def groups(self) -> list[list[str]]:
        rows = await self._store.read(
            lambda connection: connection.execute(SQL["person_links"]).fetchall()
        )
        return [[subject for _, subject in group] for _, group in groupby(rows, itemgetter(0))]


def _link(db: Writing, one: str, other: str) -> bool:
    first, second = _person_of(db, one), _person_of(db, other)
    if first is not None and first == second:
        return False
    person = first or str(uuid.uuid4())
    db.connection.execute(SQL["join_people"], {"person": person, "other": second})
    for subject in (one, other):
        db.connection.execute(
            SQL["link_subject"], {"subject": subject, "person": person, "now": db.now}
        )
    return True


def _unlink(db: Writing, subject: str) -> bool:
    people = db.connection.execute(SQL["unlink_subject"], {"subject": subject}).fetchall()
    for (person,) in people:
        db.connection.execute(SQL["unlink_last"], {"person": person})
    return bool(people)


def _person_of(db: Writing, subject: str) -> str | None:
    row = db.connection.execute(SQL["person_of_subject"], {"subject": subject}).fetchone()
    return None if row is None else str(row[0])


def _audit_link(db: Writing, actor: str | None, action: Action, subject: str) -> bool:
    if actor is not None:
        person = pseudonym(db.connection, subject)
        add_audit(db, AuditEntry(actor=actor, action=action, subject=person))
    return True


class SqlitePairings:
    """The pairings of a SQLite store."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def find(self, channel: str, sender_id: str) -> Pairing | None:
        now = micros(await self._store.now())
        return await self._store.read(
            lambda connection: _find_pairing(connection, channel, sender_id, now)
        )

    async def request(self, request: PairingRequest) -> Pairing | None:
        return await self._store.write(lambda db: _request_pairing(db, request))

    async def requests(self) -> list[Pairing]:
        return await self._list("open_pairings")

    async def list_approved(self) -> list[Pairing]:
        return await self._list("approved_pairings")

    async def approve(self, code: str, *, actor: str | None = None) -> Pairing | None:
        return await self._store.write(lambda db: _approve_pairing(db, code, actor))

    async def revoke(self, channel: str, sender_id: str, *, actor: str | None = None) -> bool:
        return await self._store.write(lambda db: _revoke_pairing(db, channel, sender_id, actor))

    async def _list(self, query: str) -> list[Pairing]:
        params = {"now": micros(await self._store.now())}
        rows = await self._store.read(
            lambda connection: connection.execute(SQL[query], params).fetchall()
        )
        return [_pairing_of(row) for row in rows]


def _find_pairing(connection: Connection, channel: str, sender_id: str, now: int) -> Pairing | None:
    params = {"channel": channel, "sender_id": sender_id, "now": now}
    row = connection.execute(SQL["find_pairing"], params).fetchone()
    return None if row is None else _pairing_of(row)


def _request_pairing(db: Writing, request: PairingRequest) -> Pairing | None:
    db.connection.execute(SQL["drop_expired_pairings"], {"now": db.now})
    params = {
        "channel": request.channel,
        "sender_id": request.sender_id,
        "sender": request.sender,
        "subject": request.subject,
        "code": request.code,
        "now": db.now,
        "expires_at": db.now + EXPIRES_AFTER // MICROSECOND,
        "most": MOST_REQUESTS,
    }
    db.connection.execute(SQL["add_pairing"], params)
    return _find_pairing(db.connection, request.channel, request.sender_id, db.now)


def _approve_pairing(db: Writing, code: str, actor: str | None) -> Pairing | None:
    params: dict[str, Any] = {"code": code, "actor": actor, "now": db.now}
    approved = db.connection.execute(SQL["approve_pairing"], params).fetchall()
    if not approved:
        return None
    [(channel, sender_id, subject)] = approved
    _audit_pairing(db, actor, "approved", subject, channel)
    return _find_pairing(db.connection, channel, sender_id, db.now)


def _revoke_pairing(db: Writing, channel: str, sender_id: str, actor: str | None) -> bool:
    params = {"channel": channel, "sender_id": sender_id}
    revoked = db.connection.execute(SQL["revoke_pairing"], params).fetchall()
    for (subject,) in revoked:
        _audit_pairing(db, actor, "revoked", subject, channel)
    return bool(revoked)


def _audit_pairing(
    db: Writing, actor: str | None, action: Action, subject: str, channel: str
) -> None:
    if actor is not None:
        person, details = pseudonym(db.connection, subject), {"channel": channel}
        add_audit(db, AuditEntry(actor=actor, action=action, subject=person, details=details))


def _pairing_of(row: Row) -> Pairing:
    values = dict(zip(PAIRING, row, strict=True))
    moments = {name: moment(values[name]) for name in PAIRING_MOMENTS if values[name] is not None}
    return pairing_of((values | moments).values())


def add_audit(db: Writing, entry: AuditEntry) -> int:
    """Append an entry to the audit log and return its id."""
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


def audit_events(db: Writing, actor: str | None, action: Action, ids: Iterable[int]) -> None:
    """Append an entry for each event that somebody acted on; without an actor, none."""
    if actor is not None:
        for id in ids:
            add_audit(db, AuditEntry(actor=actor, action=action, subject=event_subject(id)))


def read_audit(
    connection: Connection, which: AuditFilter, page: dict[str, Any]
) -> Page[AuditEntry]:
    """List entries, newest first."""
    params: dict[str, Any] = {
        "action": which.action,
        "actor": which.actor,
        "subject": which.subject,
        "since": None if which.since is None else micros(which.since),
    }
    rows = connection.execute(SQL["audit_log"], params | page)
    return read_page(rows, page).map(_audit_entry_of)


def _audit_entry_of(row: Row) -> AuditEntry:
    id, at, actor, action, subject, details = row
    return AuditEntry(
        id=id, at=moment(at), actor=actor, action=action, subject=subject, details=parse(details)
    )


def pseudonym(connection: Connection, name: str) -> str:
    """Return the opaque name of a person, as agent.pseudonym does on PostgreSQL."""
    [salt] = connection.execute(SQL["setting"], {"key": SALT}).fetchone()
    digest = hashlib.sha256(f"{parse(salt)}\n{storable(name)}".encode()).hexdigest()
    return f"person:{digest[:24]}"


def prune_audit(db: Writing, keep: timedelta) -> int:
    """Delete entries older than `keep` and return how many.

    A trigger refuses deletes, except of rows older than this setting."""
    before = db.now - keep // MICROSECOND
    db.connection.execute(SQL["set_setting"], {"key": PRUNE_BEFORE, "value": dump(before)})
    pruned = db.connection.execute(SQL["prune_audit"], {"before": before}).rowcount
    db.connection.execute(SQL["remove_setting"], {"key": PRUNE_BEFORE})
    return pruned


def forget_person(db: Writing, params: dict[str, Any]) -> tuple[dict[str, int], list[str]]:
    """Delete the events, history, lines, frames and settings of a person.

    Returns the number of rows of each kind, and the ids of the messages."""
    [event_ids] = db.connection.execute(SQL["events_of_person"], params).fetchone()
    params = params | {"event_ids": event_ids}
    events = db.connection.execute(SQL["forget_events"], params).fetchall()
    history = db.connection.execute(SQL["forget_history"], params).fetchall()
    erase_journals(db, [id for id, _, _ in (*events, *history)])
    names = [name for _, name, _ in (*events, *history)]
    lines = [line for _, _, line in (*events, *history) if line is not None]
    params |= {"names": dump(names), "lines": dump(lines)}
    messages = db.connection.execute(SQL["forget_agent_messages"], params).fetchall()
    names += [name for (name,) in messages]
    removed = {"events": len(events), "history": len(history), "agent_messages": len(messages)}
    return removed | _forget_by_name(db, params | {"names": dump(names)}), names


def _forget_by_name(db: Writing, params: dict[str, Any]) -> dict[str, int]:
    """Delete rows that name a person or its messages. Returns their numbers."""
    queries = {
        "chat_messages": "forget_chat_messages",
        "activity": "forget_frames",
        "settings": "forget_choices",
        "pairings": "forget_pairings",
    }
    removed = {
        kind: db.connection.execute(SQL[query], params).rowcount for kind, query in queries.items()
    }
    if removed["activity"]:
        # Makes readers drop their cached frames.
        db.frames.append([{"type": FORGOTTEN}])
    return removed


def count_unattributed(db: Writing) -> dict[str, int]:
    """Count rows of earlier releases that name no person; forgetting may have missed some.

    Counts of zero are left out."""
    names = ("unattributed_agent_messages", "unattributed_chat_messages", "unattributed_activity")
    counts = db.connection.execute(SQL["count_unattributed"]).fetchone()
    return {name: count for name, count in zip(names, counts, strict=True) if count}
