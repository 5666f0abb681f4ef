"""Links between identities on SQLite."""

from __future__ import annotations

import uuid
from itertools import groupby
from operator import itemgetter
from sqlite3 import Connection

from holdfast.queue.audit import Action, AuditEntry
from holdfast.store.people import checked, checked_pair
from holdfast.store.sqlite import audit
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.writer import Writing

SQL = load()


class SqlitePeople:
    """See holdfast.store.people.People."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def link(self, one: str, other: str, *, actor: str | None = None) -> bool:
        first, second = checked_pair(one, other)
        return await self._store.write(
            lambda db: _link(db, first, second) and _noted(db, actor, "people_linked", first)
        )

    async def unlink(self, subject: str, *, actor: str | None = None) -> bool:
        key = checked(subject)
        return await self._store.write(
            lambda db: unlink(db, key) and _noted(db, actor, "people_unlinked", key)
        )

    async def identities(self, subject: str) -> list[str]:
        return await self._store.read(lambda connection: identities(connection, subject))

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


def identities(connection: Connection, subject: str) -> list[str]:
    return [
        subject,
        *(other for (other,) in connection.execute(SQL["linked_subjects"], {"subject": subject})),
    ]


def unlink(db: Writing, subject: str) -> bool:
    found = db.connection.execute(SQL["unlink_subject"], {"subject": subject}).fetchall()
    for (person,) in found:
        db.connection.execute(SQL["unlink_last"], {"person": person})
    return bool(found)


def _link(db: Writing, one: str, other: str) -> bool:
    first, second = _person(db, one), _person(db, other)
    if first is not None and first == second:
        return False
    person = first or str(uuid.uuid4())
    db.connection.execute(SQL["join_people"], {"person": person, "other": second})
    for subject in (one, other):
        db.connection.execute(
            SQL["link_subject"], {"subject": subject, "person": person, "now": db.now}
        )
    return True


def _person(db: Writing, subject: str) -> str | None:
    found = db.connection.execute(SQL["person_of_subject"], {"subject": subject}).fetchone()
    return None if found is None else str(found[0])


def _noted(db: Writing, actor: str | None, action: Action, subject: str) -> bool:
    if actor is not None:
        who = audit.pseudonym(db.connection, subject)
        audit.add(db, AuditEntry(actor=actor, action=action, subject=who))
    return True
