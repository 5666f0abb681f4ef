"""SQLite in a move: the source file, and a target that is built beside its name."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.migrations.runner import migrate
from holdfast.store.sqlite.connection import begin, connect, translate_error
from holdfast.store.sqlite.lock import LockFile, WriteLock
from holdfast.store.sqlite.process import ProcessLocks
from holdfast.store.transfer.database import (
    ANOTHER_MOVE,
    WAIT_FOR_MOVE,
    Role,
    State,
    refuse_contents,
)
from holdfast.store.transfer.tables import (
    BY_NAME,
    COUNTERS,
    DERIVED_COUNTERS,
    STATE_KEYS,
    TABLES,
    Table,
)
from holdfast.store.transfer.values import Row
from holdfast.store.watch import Watch

FETCH = 1000
COUNTER_TABLES = ("fence", "observation_version")
CHANGES = ("insert", "update", "delete")
LOCK_TRIGGER = "refuse_changes_"
DRAIN_TRIGGER = "refuse_work_"
RETRY_SECONDS = 0.1


class SqliteDatabase:
    """A file that a move reads from or writes to. The source may be in use by processes."""

    is_sqlite = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = f"sqlite:///{path}"
        self._guard = _take_guard(path)
        try:
            with self._clear_errors():
                self._connection = connect(path)
        except BaseException:
            self._guard.close()
            raise

    def close(self) -> None:
        self._connection.close()
        with suppress(FileNotFoundError):
            self._guard.path.unlink()
        self._guard.close()

    def has_vectors(self) -> bool:
        return True

    def count(self, table: Table) -> int:
        with self._clear_errors():
            return int(self._value(f"select count(*) from {quote(table.name)} where {table.where}"))

    def rows(self, table: Table, after: Sequence[Any] | None = None) -> Generator[Row, None, None]:
        key_of = itemgetter(*map(table.names.index, table.key))
        last: Any = after
        try:
            for row in self._rows(table, after):
                yield row
                last = key_of(row)
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise translate_error(error, self.path) from error
        else:
            return
        # A text is not UTF-8, since somebody wrote it by hand. Go on with this decoder, which is
        # slower.
        self._connection.text_factory = _decode
        yield from self._rows(table, last if isinstance(last, tuple | list | None) else (last,))

    def _rows(self, table: Table, after: Sequence[Any] | None) -> Iterator[Row]:
        key = ", ".join(map(quote, table.key))
        marks = ", ".join("?" * len(table.key))
        following = f"and ({key}) > ({marks})" if after is not None else ""
        cursor = self._connection.execute(
            f"select {', '.join(map(quote, table.names))} from {quote(table.name)}"
            f" where {table.where} {following} order by {key}",
            tuple(after or ()),
        )
        while rows := cursor.fetchmany(FETCH):
            yield from rows

    def counters(self) -> dict[str, int]:
        with self._clear_errors():
            known = dict(self._connection.execute("select name, seq from sqlite_sequence"))
            found = {name: int(known.get(name, 0)) for name in COUNTERS}
            for name in COUNTER_TABLES:
                found[name] = int(self._value(f"select value from {name}"))
            for name in DERIVED_COUNTERS:
                found[name] = int(self._value(f"select coalesce(max(id), 0) from {name}"))
        return found

    def find_contents(self) -> str | None:
        tables = (table.name for table in TABLES if table.name != "setting")
        with self._clear_errors():
            return next(filter(self._has_rows, tables), None)

    def find_live_processes(self) -> list[str]:
        locks = ProcessLocks(self.path, Watch())
        with self._clear_errors():
            ids = [id_ for (id_,) in self._connection.execute("select id from process")]
        return [id_ for id_ in ids if not locks.is_dead(id_)]

    def state(self, role: Role) -> State | None:
        with self._clear_errors():
            row = self._connection.execute(
                "select value from setting where key = ?", (STATE_KEYS + role,)
            ).fetchone()
        return None if row is None else State.parse(row[0])

    def refuse_new_work(self, state: State) -> None:
        text = literal(_moving(state.peer))
        with self._changing() as connection:
            _drop_triggers(connection)
            _put_state(connection, "source", state)
            connection.execute(
                f"create trigger {DRAIN_TRIGGER}put before insert on event"
                " when new.queue = 'inbox' and new.parent_id is null"
                f" begin select raise(abort, {text}); end"
            )
            connection.execute(
                f"create trigger {DRAIN_TRIGGER}claim before update of fence on event"
                " when new.fence > 0 and new.fence <> old.fence"
                f" begin select raise(abort, {text}); end"
            )

    def running_turns(self) -> int:
        live = self.find_live_processes()
        with self._clear_errors():
            return int(
                self._value(
                    "select count(*) from event where fence > 0 and vt > ?"
                    " and holder in (select value from json_each(?))",
                    time.time_ns() // 1000,
                    json.dumps(live),
                )
            )

    def lock(self, state: State) -> None:
        self._lock(state, _moving(state.peer))

    def mark_moved(self, state: State) -> None:
        self._lock(state, f"this database was moved to {state.peer}: use that one")

    def unlock(self) -> None:
        with self._changing() as connection:
            _drop_triggers(connection)
            connection.execute("delete from setting where key = ?", (STATE_KEYS + "source",))

    def _lock(self, state: State, text: str) -> None:
        with self._changing() as connection:
            _drop_triggers(connection)
            _put_state(connection, "source", state)
            for table in (*BY_NAME, *COUNTER_TABLES):
                for change in CHANGES:
                    connection.execute(
                        f"create trigger {LOCK_TRIGGER}{table}_{change} before {change}"
                        f" on {quote(table)} begin select raise(abort, {literal(text)}); end"
                    )

    def _has_rows(self, table: str) -> bool:
        return bool(self._value(f"select exists (select 1 from {quote(table)})"))

    def _value(self, statement: str, *values: object) -> Any:
        return self._connection.execute(statement, values).fetchone()[0]

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Run a write transaction under the lock of all writers."""
        lock = WriteLock(self.path)
        try:
            with self._clear_errors(), lock:
                begin(self._connection)
                yield self._connection
                self._connection.execute("commit")
        finally:
            with suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._connection.execute("rollback")
            lock.close()

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise translate_error(error, self.path) from error


class SqliteTarget(SqliteDatabase):
    """A new file, built under another name and renamed when it is complete."""

    def __init__(self, path: Path) -> None:
        self.published_path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._open()

    def _open(self) -> None:
        draft = draft_of(self.published_path)
        migrate(f"sqlite:///{draft}")
        super().__init__(draft)
        self.name = f"sqlite:///{self.published_path}"

    def begin(self, state: State) -> State:
        found = self.state("target")
        if found is not None and found.id == state.id:
            return found
        if found is not None:
            self.wipe(found)
            self._open()
        with self._changing() as connection:
            # The triggers would choose heads and report messages; the rows have both already.
            state.triggers = _take_triggers(connection, "event")
            connection.execute("delete from setting")
            _put_state(connection, "target", state)
        return state

    def write(self, table: Table, rows: Sequence[Row], state: State) -> None:
        marks = ", ".join("?" * len(table.columns))
        names = ", ".join(map(quote, table.names))
        with self._changing() as connection:
            connection.executemany(
                f"insert into {quote(table.name)} ({names}) values ({marks})", rows
            )
            _put_state(connection, "target", state)

    def finish(self, counters: dict[str, int], state: State) -> None:
        with self._changing() as connection:
            for name in COUNTER_TABLES:
                connection.execute(f"update {name} set value = ?", (counters[name],))
            for name in set(COUNTERS) - set(COUNTER_TABLES):
                connection.execute("delete from sqlite_sequence where name = ?", (name,))
                connection.execute(
                    "insert into sqlite_sequence values (?, ?)", (name, counters[name])
                )
            for statement in state.triggers:
                connection.execute(statement)
            state.triggers = []
            _put_state(connection, "target", state)

    def publish(self, state: State) -> None:
        if self.published_path.exists():
            require_empty(self.published_path)
        with self._changing() as connection:
            _put_state(connection, "target", state)
        with self._clear_errors():
            self._connection.execute("pragma optimize")
            self._connection.execute("pragma wal_checkpoint(truncate)")
        self._connection.close()
        _replace(self.path, self.published_path)

    def wipe(self, state: State) -> None:
        self.close()
        remove_draft(self.published_path)


def require_empty(path: Path) -> None:
    """Refuse a file that holds data or that a process uses."""
    if path.stat().st_size == 0:
        return
    database = SqliteDatabase(path)
    try:
        contents, processes = database.find_contents(), database.find_live_processes()
    finally:
        database.close()
    refuse_contents(database.name, contents, processes)


def draft_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.moving")


def remove_draft(path: Path) -> None:
    draft = draft_of(path)
    for suffix in ("", "-wal", "-shm", ".lock", ".lock-next", ".move"):
        with suppress(FileNotFoundError):
            draft.with_name(draft.name + suffix).unlink()


def quote(name: str) -> str:
    """Quote a name: `key`, `text` and `signal` are keywords of SQL."""
    return f'"{name}"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _moving(peer: str) -> str:
    return f"this database is being moved to {peer}: wait until that has ended"


def _put_state(connection: sqlite3.Connection, role: Role, state: State) -> None:
    connection.execute(
        "insert into setting (key, value) values (?, ?)"
        " on conflict (key) do update set value = excluded.value",
        (STATE_KEYS + role, state.dump()),
    )


def _take_triggers(connection: sqlite3.Connection, table: str) -> list[str]:
    """Drop the triggers of a table. Returns the statements that create them."""
    triggers = connection.execute(
        "select name, sql from sqlite_master where type = 'trigger' and tbl_name = ?", (table,)
    ).fetchall()
    for name, _ in triggers:
        connection.execute(f"drop trigger {quote(name)}")
    return [statement for _, statement in triggers]


def _drop_triggers(connection: sqlite3.Connection) -> None:
    names: Iterable[tuple[str]] = connection.execute(
        "select name from sqlite_master where type = 'trigger'"
        f" and (name like '{LOCK_TRIGGER}%' or name like '{DRAIN_TRIGGER}%')"
    ).fetchall()
    for (name,) in names:
        connection.execute(f"drop trigger {quote(name)}")


def _take_guard(path: Path) -> LockFile:
    """Lock out other moves; the lock ends with this process."""
    give_up_at = time.monotonic() + WAIT_FOR_MOVE.total_seconds()
    while True:
        guard = LockFile(path.with_name(path.name + ".move"))
        # The last holder removes the file, perhaps between our open and our lock.
        if guard.try_lock() and guard.is_current():
            return guard
        guard.close()
        if time.monotonic() > give_up_at:
            raise HoldfastError(ANOTHER_MOVE)
        time.sleep(RETRY_SECONDS)


def _decode(text: bytes) -> str:
    return text.decode(errors="replace")


def _replace(draft: Path, target: Path) -> None:
    """Rename the draft to its final name.

    An empty file there may have left a log, which SQLite would take for the draft's: remove it."""
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            target.with_name(target.name + suffix).unlink()
    os.replace(draft, target)
    remove_draft(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
