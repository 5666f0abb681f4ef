"""Pairings on SQLite."""

from __future__ import annotations

from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

from holdfast.queue.audit import Action, AuditEntry
from holdfast.store.pairing import (
    EXPIRES_AFTER,
    MOST_REQUESTS,
    PAIRING,
    Pairing,
    PairingRequest,
    pairing_of,
)
from holdfast.store.sqlite.access import add_audit, pseudonym
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.rows import MICROSECOND, Row, micros, moment
from holdfast.store.sqlite.writer import Writing

if TYPE_CHECKING:
    from holdfast.store.sqlite.store import SqliteStore

SQL = load()
MOMENTS = ("requested_at", "expires_at", "approved_at")


class SqlitePairings:
    """The pairings of a SQLite store."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def find(self, channel: str, sender_id: str) -> Pairing | None:
        now = micros(await self._store.now())
        return await self._store.read(lambda connection: _find(connection, channel, sender_id, now))

    async def request(self, request: PairingRequest) -> Pairing | None:
        return await self._store.write(lambda db: _request(db, request))

    async def requests(self) -> list[Pairing]:
        return await self._list("open_pairings")

    async def list_approved(self) -> list[Pairing]:
        return await self._list("approved_pairings")

    async def approve(self, code: str, *, actor: str | None = None) -> Pairing | None:
        return await self._store.write(lambda db: _approve(db, code, actor))

    async def revoke(self, channel: str, sender_id: str, *, actor: str | None = None) -> bool:
        return await self._store.write(lambda db: _revoke(db, channel, sender_id, actor))

    async def _list(self, query: str) -> list[Pairing]:
        params = {"now": micros(await self._store.now())}
        rows = await self._store.read(
            lambda connection: connection.execute(SQL[query], params).fetchall()
        )
        return [_pairing_of(row) for row in rows]


def _find(connection: Connection, channel: str, sender_id: str, now: int) -> Pairing | None:
    params = {"channel": channel, "sender_id": sender_id, "now": now}
    row = connection.execute(SQL["find_pairing"], params).fetchone()
    return None if row is None else _pairing_of(row)


def _request(db: Writing, request: PairingRequest) -> Pairing | None:
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
    return _find(db.connection, request.channel, request.sender_id, db.now)


def _approve(db: Writing, code: str, actor: str | None) -> Pairing | None:
    params: dict[str, Any] = {"code": code, "actor": actor, "now": db.now}
    approved = db.connection.execute(SQL["approve_pairing"], params).fetchall()
    if not approved:
        return None
    [(channel, sender_id, subject)] = approved
    _audit(db, actor, "approved", subject, channel)
    return _find(db.connection, channel, sender_id, db.now)


def _revoke(db: Writing, channel: str, sender_id: str, actor: str | None) -> bool:
    params = {"channel": channel, "sender_id": sender_id}
    revoked = db.connection.execute(SQL["revoke_pairing"], params).fetchall()
    for (subject,) in revoked:
        _audit(db, actor, "revoked", subject, channel)
    return bool(revoked)


def _audit(db: Writing, actor: str | None, action: Action, subject: str, channel: str) -> None:
    if actor is not None:
        person, details = pseudonym(db.connection, subject), {"channel": channel}
        add_audit(db, AuditEntry(actor=actor, action=action, subject=person, details=details))


def _pairing_of(row: Row) -> Pairing:
    values = dict(zip(PAIRING, row, strict=True))
    moments = {name: moment(values[name]) for name in MOMENTS if values[name] is not None}
    return pairing_of((values | moments).values())
