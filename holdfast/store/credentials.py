"""Tokens, sessions and login codes in the database; secrets are stored as digests only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from holdfast.queue.pages import Page
from holdfast.queue.store import Store
from holdfast.store.engine import is_sqlite, postgres_engine, sqlite_engine
from holdfast.store.payload import dump, parse
from holdfast.store.scoped import dialect_of

Role = Literal["read", "send", "admin"]
Kind = Literal["token", "session", "code"]

USED_EVERY_SECONDS = 60
"""Minimum time between two writes of the last use."""


LISTS = ("channels", "agents")
MOMENTS = ("created_at", "expires_at", "used_at")
CREDENTIAL = ("id", "kind", "name", "role", *LISTS, "sender", "owner", *MOMENTS)
"""Columns of a credential, in the order in which both engines select them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A token, session or login code.

    `channels`, `agents` and `sender` are None if it is not bound to any. `owner` owns the messages
    sent with it, the only ones that role send can see; None for bootstrap tokens and sessions."""

    id: str
    kind: Kind
    name: str
    role: Role
    channels: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None
    sender: str | None = None
    owner: str | None = None
    created_at: datetime
    expires_at: datetime | None = None
    used_at: datetime | None = None


def credential_of(row: Iterable[Any]) -> Credential:
    """Return the credential of a row whose times are datetimes; lists are JSON."""
    values = dict(zip(CREDENTIAL, row, strict=True))
    lists = {name: tuple(parse(values[name])) for name in LISTS if values[name] is not None}
    return Credential(**values | lists)


def credential_values(credential: Credential) -> dict[str, Any]:
    """Return the values of a row, with lists as JSON."""
    values = {name: getattr(credential, name) for name in CREDENTIAL}
    return values | {name: dump(values[name]) for name in LISTS if values[name] is not None}


class Credentials(Protocol):
    """The credentials of a store."""

    async def add(self, credential: Credential, digest: str) -> bool:
        """Store a credential and drop expired sessions and codes.

        Returns False if a token of this name exists."""

    async def find(self, kind: Kind, digest: str) -> Credential | None:
        """Return the live credential with this digest and note its use."""

    async def take(self, digest: str) -> Credential | None:
        """Consume a login code. Of several callers, one gets it."""

    async def tokens(self) -> list[Credential]:
        """Return all tokens by name, also expired ones."""

    async def revoke(self, name: str) -> Credential | None:
        """Delete a token with its sessions and codes. Returns None if there is no such token."""

    async def sessions(self) -> list[Credential]:
        """List the sessions that have not expired, latest first."""

    async def end(self, session_id: str) -> None:
        """Delete a session."""

    async def end_all(self, role: Role) -> int:
        """Delete the sessions and codes of a bootstrap token. Returns the number of sessions."""


async def page_of_tokens(
    store: Store, after: str | None, *, limit: int, most_bytes: int | None = None
) -> Page[Credential]:
    """List tokens by name, also expired ones; only those after `after`."""
    reader = _PageReader(store, limit, most_bytes)
    return await reader.read("kind = 'token' and name > {after}", "name", after=after or "")


async def page_of_sessions(
    store: Store,
    after: tuple[datetime, str] | None,
    *,
    limit: int,
    most_bytes: int | None = None,
) -> Page[Credential]:
    """List the sessions that have not expired, latest first.

    Only those after the one that was created at a time and has an id."""
    reader = _PageReader(store, limit, most_bytes)
    where = "kind = 'session' and (expires_at is null or expires_at > {now})"
    values: dict[str, Any] = {"now": await store.now()}
    if after is not None:
        where += " and (created_at < {at} or (created_at = {at} and id > {id}))"
        values |= {"at": after[0], "id": after[1]}
    return await reader.read(where, "created_at desc, id", **values)


class _PageReader:
    def __init__(self, store: Store, limit: int, most_bytes: int | None) -> None:
        self._dialect = dialect_of(store)
        self._limit = limit
        self._most_bytes = most_bytes

    async def read(self, where: str, order: str, **values: Any) -> Page[Credential]:
        dialect = self._dialect
        values["limit"] = self._limit
        marks = {name: dialect.mark.format(name) for name in values}
        statement = (
            f"select {', '.join(CREDENTIAL)} from {dialect.schema}credential"
            f" where {where} order by {order} limit {{limit}}"
        ).format(**marks)
        params = {name: self._param(value) for name, value in values.items()}
        found = await dialect.page(statement, params, self._limit, self._most_bytes)
        return found.map(self._credential)

    def _param(self, value: Any) -> Any:
        return self._dialect.moment(value) if isinstance(value, datetime) else value

    def _credential(self, row: Iterable[Any]) -> Credential:
        values = dict(zip(CREDENTIAL, row, strict=True))
        for name in MOMENTS:
            if values[name] is not None:
                values[name] = self._dialect.to_datetime(values[name])
        return credential_of(values.values())


def open_credentials(store: Store) -> Credentials:
    """Return the credentials in a store's database."""
    if is_sqlite(store):
        from holdfast.store.sqlite.access import SqliteCredentials

        return SqliteCredentials(sqlite_engine(store))
    from holdfast.store.postgres.credentials import PostgresCredentials

    return PostgresCredentials(postgres_engine(store))
