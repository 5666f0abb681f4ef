"""The half of the SQLite store that only reads, beside the writer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from sqlite3 import Connection, Error
from typing import Any, TypeVar

from holdfast.errors import HoldfastError
from holdfast.event import AgentMessage, ChatMessage, Event, FinishedEvent
from holdfast.store.audit import AuditEntry, AuditFilter
from holdfast.store.base import Clock, Count, Filter, Happened, Process
from holdfast.store.payload import dump, parse
from holdfast.store.readable import setting_of
from holdfast.store.sqlite import audit
from holdfast.store.sqlite import dead as letters
from holdfast.store.sqlite.activity import read_activity, read_activity_span
from holdfast.store.sqlite.connection import connect, translated
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.rows import (
    agent_message_of,
    chat_message_of,
    listed_of,
    micros,
    moment,
    page_params,
    process_of,
)

T = TypeVar("T")

SQL = load()

TABLES = 4


class SqliteReads:
    """What a SQLite store tells."""

    has_server = False

    def __init__(self, path: Path, clock: Clock | None) -> None:
        self.path = path
        self._clock = clock
        self._reader = Reader(path)

    async def now(self) -> datetime:
        return moment(self._now())

    async def read(self, work: Callable[[Connection], T]) -> T:
        """A read of a neighbour's (memory) beside the writer."""
        return await self._reader.run(work)

    def _now(self) -> int:
        return time.time_ns() // 1000 if self._clock is None else micros(self._clock())

    async def next_due(self, queue: str, targets: Sequence[str]) -> datetime | None:
        now = self._now()
        return await self._reader.run(lambda connection: read_next_due(connection, now, queue, targets))

    async def finished(
        self, which: Filter, *, limit: int = 20, before_id: int | None = None, since_id: int | None = None
    ) -> list[FinishedEvent]:
        page = page_params(limit, before_id, since_id)
        return await self._reader.run(lambda connection: letters.finished(connection, which, page))

    async def dead(
        self, which: Filter, *, limit: int = 20, before_id: int | None = None, since_id: int | None = None
    ) -> list[FinishedEvent]:
        page = page_params(limit, before_id, since_id)
        return await self._reader.run(lambda connection: letters.dead(connection, which, page))

    async def died(self, queue: str, after: tuple[datetime, int], *, limit: int) -> list[FinishedEvent]:
        return await self._reader.run(lambda connection: letters.died(connection, queue, after, limit))

    async def audit_log(
        self, which: AuditFilter, *, limit: int = 20, before_id: int | None = None, since_id: int | None = None
    ) -> list[AuditEntry]:
        page = page_params(limit, before_id, since_id)
        return await self._reader.run(lambda connection: audit.read(connection, which, page))

    async def pseudonym(self, name: str) -> str:
        return await self._reader.run(lambda connection: audit.pseudonym(connection, name))

    async def live(self, event_id: int) -> Event | None:
        found = await self._reader.run(lambda connection: listed(connection, [event_id]))
        return found[0] if found else None

    async def leased(self, queue: str) -> list[Event]:
        now = self._now()
        return await self._reader.run(lambda connection: read_leased(connection, now, queue))

    async def counts(self) -> list[Count]:
        now = self._now()
        return await self._reader.run(lambda connection: read_counts(connection, now))

    async def outcomes(self, queue: str) -> dict[str, int]:
        return await self._reader.run(lambda connection: read_outcomes(connection, queue))

    async def oldest_snapshot(self) -> timedelta | None:
        # A reader of ours may hold up a checkpoint, never the removal of rows.
        return None

    async def setting(self, key: str) -> Any:
        return await self._reader.run(lambda connection: read_setting(connection, key))

    async def processes(self) -> list[Process]:
        return await self._reader.run(read_processes)

    async def agent_messages(
        self,
        agent_id: str,
        *,
        conversation: str | None = None,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
    ) -> list[AgentMessage]:
        wanted = {"agent_id": agent_id, "conversation": conversation, **page_params(limit, before_id, since_id)}
        return await self._reader.run(lambda connection: read_agent_messages(connection, wanted))

    async def chat_messages(
        self, team_id: str, *, limit: int = 20, before_id: int | None = None, since_id: int | None = None
    ) -> list[ChatMessage]:
        page = page_params(limit, before_id, since_id)
        return await self._reader.run(lambda connection: read_chat_messages(connection, team_id, page))

    async def handed_on(self, root_id: int, before_id: int) -> int:
        params = {"root_id": root_id, "before_id": before_id}
        return await self._reader.run(
            lambda connection: int(connection.execute(SQL["handed_on"], params).fetchone()[0])
        )

    async def spent(self, root_id: int) -> int:
        params = {"root_id": root_id}
        return await self._reader.run(lambda connection: int(connection.execute(SQL["spent"], params).fetchone()[0]))

    async def waiting(
        self,
        queue: str,
        target: str,
        *,
        limit: int = 100,
        before_id: int | None = None,
        since_id: int | None = None,
    ) -> list[Event]:
        page = page_params(limit, before_id, since_id)
        return await self._reader.run(lambda connection: read_waiting(connection, queue, target, page))

    async def recent(
        self, queue: str, *, limit: int = 20, before_id: int | None = None, since_id: int | None = None
    ) -> list[Event]:
        page = page_params(limit, before_id, since_id)
        return await self._reader.run(lambda connection: read_recent(connection, queue, page))

    async def activity(self, position: int, *, limit: int = 500) -> list[Happened]:
        return await self._reader.run(lambda connection: read_activity(connection, position, limit))

    async def activity_span(self) -> tuple[int, int]:
        return await self._reader.run(read_activity_span)


def require_schema(path: Path) -> None:
    """Refuse a database that was never migrated; it is not created here either."""
    if not path.exists():
        raise HoldfastError(f"there is no database at {path}; run `holdfast migrate` first")
    try:
        connection = connect(path, read_only=True)
        [tables] = connection.execute(SQL["migrated"]).fetchone()
        connection.close()
    except Error as error:
        raise translated(error, path) from error
    if tables < TABLES:
        raise HoldfastError(f"the database {path} has no Holdfast tables; run `holdfast migrate` first")


def read_next_due(connection: Connection, now: int, queue: str, targets: Sequence[str]) -> datetime | None:
    params = {"queue": queue, "targets": dump(list(targets)), "now": now}
    [vt] = connection.execute(SQL["next_due"], params).fetchone()
    return None if vt is None else moment(vt)


def listed(connection: Connection, ids: Sequence[int]) -> list[Event]:
    return [listed_of(row) for row in connection.execute(SQL["events"], {"ids": dump(ids)})]


def read_leased(connection: Connection, now: int, queue: str) -> list[Event]:
    [ids] = connection.execute(SQL["leased"], {"queue": queue, "now": now}).fetchone()
    return listed(connection, parse(ids))


def read_waiting(connection: Connection, queue: str, target: str, page: dict[str, int]) -> list[Event]:
    [ids] = connection.execute(SQL["waiting"], {"queue": queue, "target": target} | page).fetchone()
    return listed(connection, parse(ids))


def read_recent(connection: Connection, queue: str, page: dict[str, int]) -> list[Event]:
    return [listed_of(row) for row in connection.execute(SQL["recent"], {"queue": queue} | page)]


def read_counts(connection: Connection, now: int) -> list[Count]:
    names = ("queue", "target", "ready", "delayed", "queued", "leased")
    return [
        Count(
            **dict(zip(names, numbers, strict=True)),
            ready_since=None if since is None else moment(since),
            pending_since=moment(stored),
        )
        for *numbers, since, stored in connection.execute(SQL["counts"], {"now": now})
    ]


def read_outcomes(connection: Connection, queue: str) -> dict[str, int]:
    return dict(connection.execute(SQL["outcomes"], {"queue": queue}).fetchall())


def read_setting(connection: Connection, key: str) -> Any:
    found = connection.execute(SQL["setting"], {"key": key}).fetchone()
    return None if found is None else setting_of(found[0])


def read_processes(connection: Connection) -> list[Process]:
    return [process_of(row) for row in connection.execute(SQL["processes"])]


def read_agent_messages(connection: Connection, wanted: dict[str, Any]) -> list[AgentMessage]:
    name = "agent_messages" if wanted["conversation"] is None else "conversation_messages"
    return [agent_message_of(row) for row in connection.execute(SQL[name], wanted)]


def read_chat_messages(connection: Connection, team_id: str, page: dict[str, int]) -> list[ChatMessage]:
    rows = connection.execute(SQL["chat_messages"], {"team_id": team_id} | page)
    return [chat_message_of(row) for row in rows]
