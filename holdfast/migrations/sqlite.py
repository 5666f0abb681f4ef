"""The SQLite side of a migration: the same rules, locked by a file and `begin immediate`."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from holdfast.errors import MigrationError
from holdfast.migrations.script import Migration, Report, Script, one_line

LOCK_TRIES = 10
_BOOTSTRAP = Path(__file__).parent / "bootstrap" / "sqlite.sql"


def migrate_sqlite(path: Path, migration: Migration) -> Report:
    """Bring a SQLite file to the requested version; create the file and its folder if needed."""
    with _clear_errors(path):
        report = _inspect(path, migration)
        if migration.dry_run or not report.due:
            return report
        path.parent.mkdir(parents=True, exist_ok=True)
        with _file_lock(path, migration), closing(_connect(path, migration)) as connection:
            _use_wal(connection, path)
            with _transaction(connection):
                return _apply(connection, migration)


def split(body: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a script, each with its first line.

    `executescript` cannot be used, since it commits first."""
    start, statement = 0, ""
    for part in body.split(";"):
        statement += part
        if start + len(statement) < len(body):
            statement += ";"
        if sqlite3.complete_statement(statement):
            yield _first_line(body, start, statement), statement
            start, statement = start + len(statement), ""
    if statement.strip():
        yield _first_line(body, start, statement), statement


def _inspect(path: Path, migration: Migration) -> Report:
    """Return the steps to do, without a lock and without creating a file."""
    if not path.exists() or path.stat().st_size == 0:
        return migration.report(None, {}) if migration.dry_run else migration.nothing(None)
    # Opened for writing though only read: a read-only connection leaves its -wal and -shm files.
    with closing(
        sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
    ) as connection:
        connection.execute("pragma query_only = on")
        found = _version(connection)
        if not migration.is_due(found) or not migration.dry_run:
            return migration.nothing(found)
        return migration.report(found, _read_applied(connection))


def _connect(path: Path, migration: Migration) -> sqlite3.Connection:
    timeout = LOCK_TRIES * migration.lock_interval.total_seconds()
    with suppress(FileExistsError):
        # SQLite would take the mode from the umask. The -wal and -shm files inherit it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None)
    connection.execute("pragma foreign_keys = on")
    connection.execute("pragma synchronous = full")
    return connection


def _use_wal(connection: sqlite3.Connection, path: Path) -> None:
    [mode] = connection.execute("pragma journal_mode = wal").fetchone()
    if mode != "wal":
        raise MigrationError(
            f"{path} cannot use write-ahead logging (its journal mode is {mode}): use a local disk"
        )


@contextmanager
def _file_lock(path: Path, migration: Migration) -> Iterator[None]:
    """Hold the lock that every writer of this file takes."""
    lock = _QueuedLock(path)
    threading.Thread(target=lock.acquire, daemon=True).start()
    for number in range(1, LOCK_TRIES + 1):
        if lock.acquired.wait(migration.lock_interval.total_seconds()):
            break
        migration.on_wait(f"the file is locked, try {number} of {LOCK_TRIES}")
    if not lock.acquired.is_set() and lock.give_up():
        raise MigrationError("another migration is running: try again when it has ended")
    try:
        yield
    finally:
        lock.close()


class _QueuedLock:
    """The write lock of the store: writers queue at a second file, then take the lock itself.

    Only a blocking call keeps its position in the queue, and flock has no time limit. So a thread
    waits; after giving up, it releases the lock as soon as it gets it.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._writer = os.open(f"{path}.lock", flags, 0o600)
        self._next = os.open(f"{path}.lock-next", flags, 0o600)
        self._deciding = threading.Lock()
        self._given_up = False
        self.acquired = threading.Event()

    def acquire(self) -> None:
        fcntl.flock(self._next, fcntl.LOCK_EX)
        fcntl.flock(self._writer, fcntl.LOCK_EX)
        fcntl.flock(self._next, fcntl.LOCK_UN)
        with self._deciding:
            if self._given_up:
                self.close()
            else:
                self.acquired.set()

    def give_up(self) -> bool:
        """Stop waiting. Returns False if the lock was acquired just before."""
        with self._deciding:
            self._given_up = not self.acquired.is_set()
            return self._given_up

    def close(self) -> None:
        os.close(self._writer)
        os.close(self._next)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        connection.execute("begin immediate")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        raise MigrationError("another migration is running: try again when it has ended") from error
    try:
        yield
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise MigrationError(f"{path} cannot be migrated: {reason or one_line(error)}") from error


def _apply(connection: sqlite3.Connection, migration: Migration) -> Report:
    # The last holder of the lock may have done the work.
    found = _version(connection)
    if not migration.is_due(found):
        return migration.nothing(found)
    for _, statement in split(_BOOTSTRAP.read_text(encoding="utf-8")):
        connection.execute(statement)
    applied = _read_applied(connection)
    report = migration.report(found, applied)
    for script in migration.missing(applied):
        _run(connection, migration, script)
        _record(connection, script, migration.version)
    _write_version(connection, migration.version)
    return report


def _run(connection: sqlite3.Connection, migration: Migration, script: Script) -> None:
    migration.on_step(script.label)
    for line, statement in split(script.body):
        try:
            connection.execute(statement)
        except sqlite3.Error as error:
            raise MigrationError(f"{script.label}, line {line}: {one_line(error)}") from error
        if not connection.in_transaction:
            raise MigrationError(
                f"{script.label} ends the transaction; a script must not commit or roll back"
            )


def _record(connection: sqlite3.Connection, script: Script, version: str) -> None:
    connection.execute(
        "insert into migration (file_name, applied_at_version, applied_at, body) "
        "values (?, ?, ?, ?)",
        (script.file_name, version, _now(), script.body),
    )


def _version(connection: sqlite3.Connection) -> str | None:
    if not _table_exists(connection, "version"):
        return None
    row = connection.execute("select version from version").fetchone()
    return None if row is None else str(row[0])


def _read_applied(connection: sqlite3.Connection) -> dict[str, str]:
    if not _table_exists(connection, "migration"):
        return {}
    return dict(connection.execute("select file_name, body from migration order by file_name"))


def _write_version(connection: sqlite3.Connection, version: str) -> None:
    updated = connection.execute("update version set version = ?, at = ?", (version, _now()))
    if updated.rowcount == 0:
        connection.execute("insert into version (version, at) values (?, ?)", (version, _now()))


def _table_exists(connection: sqlite3.Connection, name: str) -> bool:
    query = "select 1 from sqlite_master where type = 'table' and name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def _now() -> int:
    return time.time_ns() // 1000


def _first_line(body: str, start: int, statement: str) -> int:
    blank = len(statement) - len(statement.lstrip())
    return body.count("\n", 0, start + blank) + 1
