"""Reading beside the writer: a few threads, each with a connection of its own."""

from __future__ import annotations

import asyncio
import heapq
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.chat import AgentMessage, ChatMessage
from holdfast.errors import HoldfastError
from holdfast.queue.event import Event
from holdfast.queue.pages import Page
from holdfast.queue.store import Count
from holdfast.store.payload import dump
from holdfast.store.scoped import Dialect
from holdfast.store.sqlite.connection import close_cursors, connect, load, translate_error
from holdfast.store.sqlite.rows import (
    Row,
    agent_message_of,
    chat_message_of,
    finished_event_of,
    listed_event_of,
    micros,
    moment,
    read_page,
)

if TYPE_CHECKING:
    from holdfast.store.sqlite.store import SqliteStore

T = TypeVar("T")

SQL = load()

READERS = 3
CONVERSATION = 7
"""Position of the conversation in a line of an agent's history."""
TABLES = 4
"""Tables that the statement `migrated` counts."""

CONDITIONS = {
    "sent_by": "sent_by = :sent_by",
    "channels": "channel_of(event) in (select value from json_each(:channels))",
    # A payload changed by hand may not be JSON: then it belongs to no agent.
    "agents": "iif(queue = 'inbox', target, "
    "iif(json_valid(event), json_extract(event, '$.agent'), '')) "
    "in (select value from json_each(:agents))",
}
"""Conditions on events, for callers who may not see all of them."""
FILTERS = {
    "channel": "channel_of(event) = :channel",
    "sender": "is_sent_by(event, :sender)",
    "text": "contains_text(event, :text)",
}
"""Conditions on the messages of events."""
NEWEST_IN_LANES = (
    "select id from (select id, row_number() over (partition by lane order by id desc) as nth"
    " from event indexed by event_lane where queue = 'inbox'"
    " and lane in (select value from json_each(:lanes))) where nth <= :most"
)
ANSWERS = (
    "json_valid(event) and exists (select 1 from json_each(event, '$.message_ids')"
    " where value = :message_id)"
)


class Reader:
    """Runs reads in threads, so that neither the event loop nor the writer waits for them."""

    def __init__(self, path: Path, threads: int = READERS) -> None:
        self._path = path
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="holdfast-reader")
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, work)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        for connection in self._connections:
            connection.close()

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._connection()
            # All statements of a read see one snapshot: ids found by one exist for the next.
            connection.execute("begin")
            try:
                return _run_with_any_text(connection, work)
            except Exception as error:
                close_cursors(error)
                raise
            finally:
                connection.execute("commit")
        except sqlite3.Error as error:
            raise translate_error(error, self._path) from error

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect(self._path, read_only=True)
            self._connections.append(connection)
        return connection


def _run_with_any_text(
    connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]
) -> T:
    """Do the work. If a text is not UTF-8, do it again with the broken characters replaced."""
    try:
        return work(connection)
    except sqlite3.OperationalError as error:
        if "UTF-8" not in str(error):
            raise
    connection.text_factory = lambda text: text.decode(errors="replace")
    try:
        return work(connection)
    finally:
        connection.text_factory = str


def sqlite_dialect(store: SqliteStore) -> Dialect:
    """Return the dialect by which holdfast.store.scoped and others read from this store."""

    async def rows(statement: str, params: dict[str, Any]) -> Sequence[Any]:
        return await store.read(lambda connection: connection.execute(statement, params).fetchall())

    async def write(statement: str, params: dict[str, Any]) -> Sequence[Any]:
        return await store.write(lambda db: db.connection.execute(statement, params).fetchall())

    async def page(
        statement: str, params: dict[str, Any], limit: int, most_bytes: int | None
    ) -> Page[Any]:
        sizes = {"limit": limit, "most_bytes": most_bytes}
        # A read may run twice, so each makes a new measure.
        return await store.read(lambda db: read_page(db.execute(statement, params), sizes))

    return Dialect(
        schema="",
        mark=":{}",
        conditions=CONDITIONS,
        rows=rows,
        page=page,
        ids="id in (select value from json_each(:ids))",
        like="like",
        lane_order="iif(head, 0, id)",
        newest_in_lanes=NEWEST_IN_LANES,
        texts=lambda name: f"id in (select value from json_each(:{name}))",
        moment=micros,
        array=dump,
        each="json_each(:{0}) as {0}",
        write=write,
        to_datetime=moment,
        answers=ANSWERS,
        event=listed_event_of,
        finished=finished_event_of,
        last_claim="iif(json_valid(claimed), json_extract(claimed, '$[#-1]'), null)",
        filters=FILTERS,
        contains="instr(lower({0}), lower({1})) > 0",
        server="select 'SQLite ' || sqlite_version(), null",
    )


def require_schema(path: Path) -> None:
    """Refuse a database that was never migrated; never create one."""
    if not path.exists():
        raise HoldfastError(f"there is no database at {path}; run `holdfast migrate` first")
    try:
        connection = connect(path, read_only=True)
        [tables] = connection.execute(SQL["migrated"]).fetchone()
        connection.close()
    except sqlite3.Error as error:
        raise translate_error(error, path) from error
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


def read_live_event(connection: Connection, id: int) -> Event | None:
    row = connection.execute(SQL["events"], {"ids": dump([id])}).fetchone()
    return None if row is None else listed_event_of(row)


def read_live_events(connection: Connection, query: str, params: dict[str, Any]) -> Page[Event]:
    """Read the live events of the ids that a query returns, one by one, until the page is full."""
    ids = connection.execute(SQL[query], params).fetchall()
    rows = (row for (id,) in ids for row in connection.execute(SQL["events"], {"ids": dump([id])}))
    return read_page(rows, params).map(listed_event_of)


def read_recent(connection: Connection, params: dict[str, Any]) -> Page[Event]:
    ids = connection.execute(SQL["recent"], params).fetchall()
    rows = (
        row for (id,) in ids for row in connection.execute(SQL["event_or_finished"], {"id": id})
    )
    return read_page(rows, params).map(listed_event_of)


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


def read_number(connection: Connection, query: str, params: dict[str, Any]) -> int:
    return int(connection.execute(SQL[query], params).fetchone()[0])


def read_agent_messages(connection: Connection, params: dict[str, Any]) -> Page[AgentMessage]:
    name = "agent_messages" if params["conversation"] is None else "conversation_messages"
    rows: Iterable[Row] = connection.execute(SQL[name], params)
    if params["waiting"]:
        waiting = _waiting_lines(connection, params)
        rows = heapq.merge(rows, waiting, key=itemgetter(0), reverse=True)
    return read_page(rows, params).map(agent_message_of)


def _waiting_lines(connection: Connection, params: dict[str, Any]) -> Iterator[Row]:
    """Yield the lines of messages that are not finished, newest first."""
    for (event_id,) in connection.execute(SQL["unfinished_ids"], params):
        row = connection.execute(SQL["message_line"], {"event_id": event_id}).fetchone()
        if params["conversation"] in (None, row[CONVERSATION]):
            yield row


def read_chat_messages(connection: Connection, params: dict[str, Any]) -> Page[ChatMessage]:
    rows = connection.execute(SQL["chat_messages"], params)
    return read_page(rows, params).map(chat_message_of)
