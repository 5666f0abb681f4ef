"""Tokens, sessions and login codes on PostgreSQL."""

from __future__ import annotations

from holdfast.store.credentials import (
    CREDENTIAL,
    USED_EVERY_SECONDS,
    Credential,
    Kind,
    Role,
    credential_of,
    credential_values,
)
from holdfast.store.postgres.store import PostgresStore

_COLUMNS = ", ".join(CREDENTIAL)
_IS_LIVE = "(expires_at is null or expires_at > agent.now())"
# A session or code of a token ends with it.
_OWNER_IS_LIVE = (
    "not exists (select from agent.credential as token where token.id = credential.owner"
    " and token.kind = 'token' and token.expires_at <= agent.now())"
)


class PostgresCredentials:
    """The credentials of a PostgreSQL store."""

    def __init__(self, store: PostgresStore) -> None:
        self._connections = store.connections

    async def add(self, credential: Credential, digest: str) -> bool:
        rows = await self._connections.rows(
            "with expired as (delete from agent.credential"
            " where kind <> 'token' and expires_at <= agent.now())"
            f" insert into agent.credential ({_COLUMNS}, digest)"
            " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
            " on conflict do nothing returning id",
            (*credential_values(credential).values(), digest),
        )
        return bool(rows)

    async def find(self, kind: Kind, digest: str) -> Credential | None:
        rows = await self._connections.rows(
            f"select {_COLUMNS},"
            " used_at is null or used_at < agent.now() - make_interval(secs => %s)"
            " from agent.credential"
            f" where digest = %s and kind = %s and {_IS_LIVE} and {_OWNER_IS_LIVE}",
            (USED_EVERY_SECONDS, digest, kind),
        )
        if not rows:
            return None
        *row, is_stale = rows[0]
        if is_stale:
            await self._connections.rows(
                "update agent.credential set used_at = agent.now() where id = %s returning id",
                (row[0],),
            )
        return credential_of(row)

    async def take(self, digest: str) -> Credential | None:
        rows = await self._connections.rows(
            "delete from agent.credential"
            f" where digest = %s and kind = 'code' and {_IS_LIVE} returning {_COLUMNS}",
            (digest,),
        )
        return credential_of(rows[0]) if rows else None

    async def tokens(self) -> list[Credential]:
        rows = await self._connections.rows(
            f"select {_COLUMNS} from agent.credential where kind = 'token' order by name, id"
        )
        return [credential_of(row) for row in rows]

    async def sessions(self) -> list[Credential]:
        rows = await self._connections.rows(
            f"select {_COLUMNS} from agent.credential where kind = 'session' and {_IS_LIVE}"
            " order by created_at desc, id"
        )
        return [credential_of(row) for row in rows]

    async def revoke(self, name: str) -> Credential | None:
        rows = await self._connections.rows(
            "delete from agent.credential where owner ="
            " (select id from agent.credential where kind = 'token' and name = %s)"
            f" returning {_COLUMNS}",
            (name,),
        )
        return next((credential_of(row) for row in rows if row[1] == "token"), None)

    async def end(self, session_id: str) -> None:
        await self._connections.rows(
            "delete from agent.credential where id = %s returning id", (session_id,)
        )

    async def end_all(self, role: Role) -> int:
        rows = await self._connections.rows(
            "delete from agent.credential"
            " where kind <> 'token' and owner is null and role = %s returning kind",
            (role,),
        )
        return sum(kind == "session" for (kind,) in rows)
