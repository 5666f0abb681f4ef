"""The half of the SQLite store that only reads, beside the writer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from sqlite3 import Connection, Error
from typing import Any, TypeVar

from holdfast.errors import HoldfastError
from holdfast.queue.audit import AuditEntry, AuditFilter
from holdfast.queue.event import Event, FinishedEvent
from holdfast.queue.pages import Measure, Page
from holdfast.queue.record import AgentMessage, ChatMessage
from holdfast.queue.store import Clock, Count, Filter, Happened, Process
from holdfast.store.payload import dump
from holdfast.store.readable import setting_of
from holdfast.store.sqlite import audit
from holdfast.store.sqlite import dead as letters
from holdfast.store.sqlite.activity import read_activity, read_activity_span
from holdfast.store.sqlite.connection import connect, translated
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.rows import (
    ANY_ID,
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
        return await self._reader.run(
            lambda connection: read_next_due(connection, now, queue, targets)
        )

    async def finished(
        self,
        which: Filter,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[FinishedEvent]:
        page = page_params(limit, before_id, since_id)
        return await self._reader.run(
            lambda connection: letters.finished(connection, which, page, most_bytes)
        )

    async def dead(
        self,
        which: Filter,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[FinishedEvent]:
        page = page_params(limit, before_id, since_id)
        return await self._reader.run(
            lambda connection: letters.dead(connection, which, page, most_bytes)
        )

    async def died(
        self, queue: str, after: tuple[datetime, int], *, limit: int
    ) -> list[FinishedEvent]:
        return await self._reader.run(
            lambda connection: letters.died(connection, queue, after, limit)
        )

    async def audit_log(
        self,
        which: AuditFilter,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[AuditEntry]:
        page = page_params(limit, before_id, since_id)
        return await self._reader.run(
            lambda connection: audit.read(connection, which, page, most_bytes)
        )

    async def pseudonym(self, name: str) -> str:
        return await self._reader.run(lambda connection: audit.pseudonym(connection, name))

    async def live(self, event_id: int) -> Event | None:
        found = await self._reader.run(lambda connection: listed(connection, [event_id]))
        return found[0] if found else None

    async def leased(
        self,
        queue: str,
        *,
        limit: int | None = None,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        page = page_params(ANY_ID if limit is None else limit, before_id, since_id)
        wanted = {"queue": queue, "now": self._now()} | page
        return await self._reader.run(
            lambda connection: read_live(connection, "leased", wanted, most_bytes)
        )

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
        most_bytes: int | None = None,
    ) -> Page[AgentMessage]:
        wanted = {
            "agent_id": agent_id,
            "conversation": conversation,
            **page_params(limit, before_id, since_id),
        }
        return await self._reader.run(
            lambda connection: read_agent_messages(connection, wanted, most_bytes)
        )

    async def chat_messages(
        self,
        team_id: str,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[ChatMessage]:
        wanted = {"team_id": team_id} | page_params(limit, before_id, since_id)
        return await self._reader.run(
            lambda connection: read_chat_messages(connection, wanted, most_bytes)
        )

    async def handed_on(self, root_id: int, before_id: int) -> int:
        params = {"root_id": root_id, "before_id": before_id}
        return await self._reader.run(
            lambda connection: int(connection.execute(SQL["handed_on"], params).fetchone()[0])
        )

    async def spent(self, root_id: int) -> int:
        params = {"root_id": root_id}
        return await self._reader.run(
            lambda connection: int(connection.execute(SQL["spent"], params).fetchone()[0])
        )

    async def waiting(
        self,
        queue: str,
        target: str,
        *,
        limit: int = 100,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        wanted = {"queue": queue, "target": target} | page_params(limit, before_id, since_id)
        return await self._reader.run(
            lambda connection: read_live(connection, "waiting", wanted, most_bytes)
        )

    async def recent(
        self,
        queue: str,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        wanted = {"queue": queue} | page_params(limit, before_id, since_id)
        return await self._reader.run(
            lambda connection: read_recent(connection, wanted, most_bytes)
        )

    async def activity(
        self, position: int, *, limit: int = 500, most_bytes: int | None = None
    ) -> Page[Happened]:
        return await self._reader.run(
            lambda connection: read_activity(connection, position, limit, most_bytes)
        )

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
        raise HoldfastError(
            f"the database {path} has no Holdfast tables; run `holdfast migrate` first"
        )


def read_next_due(
    connection: Connection, now: int, queue: str, targets: Sequence[str]
) -> datetime | None:
    params = {"queue": queue, "targets": dump(list(targets)), "now": now}
    [vt] = connection.execute(SQL["next_due"], params).fetchone()
    return None if vt is None else moment(vt)


def listed(connection: Connection, ids: Sequence[int]) -> list[Event]:
    return [listed_of(row) for row in connection.execute(SQL["events"], {"ids": dump(ids)})]


def read_live(
    connection: Connection, query: str, wanted: dict[str, Any], most_bytes: int | None
) -> Page[Event]:
    """Live events by the ids that a query gives, one after the other, until the page is full."""
    ids = connection.execute(SQL[query], wanted).fetchall()
    rows = (
        row for (id_,) in ids for row in connection.execute(SQL["events"], {"ids": dump([id_])})
    )
    return Measure(wanted["limit"], most_bytes).page(rows).made(listed_of)


def read_recent(
    connection: Connection, wanted: dict[str, Any], most_bytes: int | None
) -> Page[Event]:
    ids = connection.execute(SQL["recent"], wanted).fetchall()
    rows = (
        row for (id_,) in ids for row in connection.execute(SQL["event_or_finished"], {"id": id_})
    )
    return Measure(wanted["limit"], most_bytes).page(rows).made(listed_of)


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


def read_agent_messages(
    connection: Connection, wanted: dict[str, Any], most_bytes: int | None
) -> Page[AgentMessage]:
    name = "agent_messages" if wanted["conversation"] is None else "conversation_messages"
    rows = connection.execute(SQL[name], wanted)
    return Measure(wanted["limit"], most_bytes).page(rows).made(agent_message_of)


def read_chat_messages(
    connection: Connection, wanted: dict[str, Any], most_bytes: int | None
) -> Page[ChatMessage]:
    rows = connection.execute(SQL["chat_messages"], wanted)
    return Measure(wanted["limit"], most_bytes).page(rows).made(chat_message_of)
