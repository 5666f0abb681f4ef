"""Tokens, sessions and login codes on SQLite."""

from __future__ import annotations

from typing import Any

from holdfast.store.credentials import USED_EVERY_SECONDS, Credential, Kind, Role
from holdfast.store.payload import dump, parse
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.rows import Row, micros, moment
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.writer import Writing

SQL = load()


class SqliteCredentials:
    """The credentials of a SQLite store."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def add(self, credential: Credential, digest: str) -> bool:
        params = _params(credential) | {"digest": digest}

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
        found = _credential(row)
        if found.used_at is None or now - micros(found.used_at) > USED_EVERY_SECONDS * 1_000_000:
            await self._execute("use_credential", {"id": found.id, "now": now})
        return found

    async def take(self, digest: str) -> Credential | None:
        now = micros(await self._store.now())
        rows = await self._execute("take_code", {"digest": digest, "now": now})
        return _credential(rows[0]) if rows else None

    async def tokens(self) -> list[Credential]:
        rows = await self._store.read(
            lambda connection: connection.execute(SQL["tokens"]).fetchall()
        )
        return [_credential(row) for row in rows]

    async def revoke(self, name: str) -> Credential | None:
        rows = await self._execute("revoke_token", {"name": name})
        return next((_credential(row) for row in rows if row[1] == "token"), None)

    async def end(self, session_id: str) -> None:
        await self._execute("end_session", {"id": session_id})

    async def end_all(self, role: Role) -> int:
        rows = await self._execute("end_sessions", {"role": role})
        return sum(kind == "session" for (kind,) in rows)

    async def _execute(self, name: str, params: dict[str, Any]) -> list[Row]:
        return await self._store.write(
            lambda db: db.connection.execute(SQL[name], params).fetchall()
        )


def _params(credential: Credential) -> dict[str, Any]:
    return {
        "id": credential.id,
        "kind": credential.kind,
        "name": credential.name,
        "role": credential.role,
        "channels": None if credential.channels is None else dump(credential.channels),
        "agents": None if credential.agents is None else dump(credential.agents),
        "sender": credential.sender,
        "owner": credential.owner,
        "created_at": micros(credential.created_at),
        "expires_at": None if credential.expires_at is None else micros(credential.expires_at),
        "used_at": None if credential.used_at is None else micros(credential.used_at),
    }


def _credential(row: Row) -> Credential:
    id_, kind, name, role, channels, agents, sender, owner, created_at, expires_at, used_at = row
    return Credential(
        id=id_,
        kind=kind,
        name=name,
        role=role,
        channels=None if channels is None else tuple(parse(channels)),
        agents=None if agents is None else tuple(parse(agents)),
        sender=sender,
        owner=owner,
        created_at=moment(created_at),
        expires_at=None if expires_at is None else moment(expires_at),
        used_at=None if used_at is None else moment(used_at),
    )
