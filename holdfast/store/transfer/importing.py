"""Writing imported rows: one transaction on either engine, ids in order, known messages skipped."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from holdfast.message import Payload
from holdfast.migrations.runner import migrate
from holdfast.queue.event import NewEvent
from holdfast.settings import sqlite_path
from holdfast.store.payload import dump
from holdfast.store.sqlite.connection import begin, connect, load, translate_error
from holdfast.store.sqlite.lock import WriteLock
from holdfast.store.transfer.tables import BY_NAME, Table
from holdfast.store.transfer.values import Row

CHUNK = 2000
DRAWN_AT_ONCE = 1000
SQL = load()

Route = Callable[[Payload, str | None], NewEvent]
"""Returns the target, the lane and the attempts of a message for an agent; None routes its text."""

_EVENT_DEFAULTS: dict[str, Any] = {
    "queue": "inbox",
    "target": "",
    "lane": None,
    # Triggers choose the heads of lanes.
    "head": 0,
    "attempts": 0,
    "claimed": "[]",
    "fence": 0,
    "holder": None,
    "message_id": None,
    "max_attempts": None,
    "parent_id": None,
    "hops": 0,
    "state": None,
    "last_error": None,
    "error_class": None,
    "sent_by": None,
    "traceback": None,
    "routed_text": None,
    "routed_team": None,
}


@dataclass(slots=True, kw_only=True)
class ImportReport:
    """Numbers of imported rows by kind; `known` rows were in the target already.

    `kept` names the schema that keeps the old tables, `left` the rows of tables that have no
    counterpart."""

    source: str
    target: str
    dry_run: bool
    imported: dict[str, int] = field(default_factory=dict)
    known: int = 0
    kept: str | None = None
    left: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, number: int = 1) -> None:
        self.imported[what] = self.imported.get(what, 0) + number


class Writer(Protocol):
    """The target of an import, in one open transaction."""

    def draw(self, count: int) -> list[int]:
        """Draw ids of events."""

    def keep_ids(self, last: int) -> None:
        """Make later events draw ids after this one."""

    def is_unused(self) -> bool:
        """Return whether no event was ever stored."""

    def find_known(self, queue: str, ids: Sequence[str]) -> set[str]:
        """Return the message ids that are stored already."""

    def insert(self, table: Table, rows: Sequence[Row]) -> None: ...

    def line_offset(self) -> int:
        """Return the difference between the id of a line and that of its event."""

    def find_lines(self) -> set[Row]:
        """Return the lines of agents and rooms: names, texts and times."""


class SqliteWriter:
    """Writes to a SQLite file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def draw(self, count: int) -> list[int]:
        row = self._connection.execute(SQL["draw_ids"], {"count": count}).fetchone()
        if row is None:
            row = self._connection.execute(SQL["first_ids"], {"count": count}).fetchone()
        return list(range(row[0] - count + 1, row[0] + 1))

    def keep_ids(self, last: int) -> None:
        missing = last - self.draw(1)[0]
        if missing > 0:
            self.draw(missing)

    def is_unused(self) -> bool:
        query = "select 1 from sqlite_sequence where name = 'event' and seq > 0"
        return self._connection.execute(query).fetchone() is None

    def find_known(self, queue: str, ids: Sequence[str]) -> set[str]:
        keys = dump([[queue, id_] for id_ in ids])
        return {row[1] for row in self._connection.execute(SQL["known_keys"], {"keys": keys})}

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        names = ", ".join(f'"{name}"' for name in table.names)
        marks = ", ".join("?" * len(table.columns))
        self._connection.executemany(f'insert into "{table.name}" ({names}) values ({marks})', rows)

    def line_offset(self) -> int:
        return int(self._connection.execute("select value from line_offset").fetchone()[0])

    def find_lines(self) -> set[Row]:
        agents = "agent_id, role, message_id, content, created_at from agent_message"
        rooms = "team_id, from_agent, message, created_at from chat_message"
        return {
            *self._connection.execute(f"select {agents}"),
            *self._connection.execute(f"select {rooms}"),
        }


class Rows:
    """Rows to insert, table by table, written in chunks."""

    def __init__(self, writer: Writer, report: ImportReport) -> None:
        self.writer = writer
        self.report = report
        self.now = time.time_ns() // 1000
        self._rows: dict[Table, list[Row]] = {}
        self._ids: list[int] = []

    def draw(self) -> int:
        """Draw the id of an event or a line."""
        if not self._ids:
            self._ids = self.writer.draw(DRAWN_AT_ONCE)[::-1]
        return self._ids.pop()

    def add_event(self, id_: int, outcome: str | None, values: dict[str, Any]) -> None:
        """Add an event, live if it has no outcome, and the key of its message."""
        row = _EVENT_DEFAULTS | {"id": id_, "root_id": id_} | values
        if outcome is not None:
            row |= {"outcome": outcome, "head": 1}
        self.add(BY_NAME["event" if outcome is None else "event_hist"], row)
        if row["message_id"] is not None:
            key = {"event_id": id_, "seen_at": row["created_at"]}
            names = ("queue", "message_id", "parent_id")
            self.add(BY_NAME["message_key"], key | {name: row[name] for name in names})

    def add(self, table: Table, values: dict[str, Any]) -> None:
        rows = self._rows.setdefault(table, [])
        rows.append(tuple(values[name] for name in table.names))
        if len(rows) >= CHUNK:
            self.flush()

    def flush(self) -> None:
        for table, rows in self._rows.items():
            self.writer.insert(table, rows)
        self._rows.clear()


@contextmanager
def open_writer(url: str) -> Iterator[Writer]:
    """Open the target of an import. After an error it is as it was before."""
    is_new = migrate(url, dry_run=True).found is None
    migrate(url)
    path = sqlite_path(url)
    try:
        if path is not None:
            with _writing_sqlite(path) as writer:
                yield writer
        else:
            from holdfast.store.transfer.importing_postgres import writing_postgres

            with writing_postgres(url) as opened:
                yield opened
    except BaseException:
        if is_new:
            _remove(url, path)
        raise


@contextmanager
def _writing_sqlite(path: Path) -> Iterator[Writer]:
    lock = WriteLock(path)
    try:
        with closing(connect(path)) as connection, lock:
            begin(connection)
            try:
                yield SqliteWriter(connection)
                connection.execute("commit")
            except sqlite3.Error as error:
                raise translate_error(error, path) from error
            finally:
                if connection.in_transaction:
                    connection.execute("rollback")
    finally:
        lock.close()


def _remove(url: str, path: Path | None) -> None:
    """Remove a schema that the import created."""
    if path is None:
        from holdfast.store.transfer.importing_postgres import drop_schema

        drop_schema(url)
        return
    for suffix in ("", "-wal", "-shm", ".lock", ".lock-next"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).unlink()
