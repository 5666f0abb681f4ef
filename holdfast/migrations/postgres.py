"""The PostgreSQL side of a migration: version, lock, owner, scripts, records."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo, errors, pq

from holdfast.errors import HoldfastError, MigrationError, StoreUnavailable
from holdfast.migrations.script import Migration, Report, Script, one_line

LOCK_KEY = 31321898691465844
LOCK_TRIES = 10
CONNECT_TIMEOUT_SECONDS = 10
WAIT_REPORT_SECONDS = 1.0
FOREIGN_SCHEMA = (
    "schema agent belongs to another program, perhaps Tiger Agent; nothing was changed. "
    "`holdfast import tiger --from URL --database URL` takes over its events and keeps its tables "
    "in schema tiger_agent; or use another database."
)

_BOOTSTRAP = Path(__file__).parent / "bootstrap" / "postgres.sql"

_TABLE = """
select 1
from pg_catalog.pg_class c
inner join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'agent' and c.relname = %s
"""

_OWNER = """
select
    current_user::text,
    pg_catalog.current_database()::text,
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create'),
    (
        select pg_catalog.pg_get_userbyid(n.nspowner)::text
        from pg_catalog.pg_namespace n where n.nspname = 'agent'
    )
"""

_WAIT = """
select
    max(l.relation::regclass::text),
    pg_catalog.array_to_string(pg_catalog.pg_blocking_pids(l.pid), ', ')
from pg_catalog.pg_locks l
where l.pid = %s and not l.granted
group by l.pid
"""

_RECORD = "insert into agent.migration (file_name, applied_at_version, body) values (%s, %s, %s)"

Connection = psycopg.Connection[tuple[Any, ...]]


def migrate_postgres(url: str, migration: Migration) -> Report:
    """Bring a PostgreSQL database to the requested version."""
    with connect(url) as connection, clear_errors():
        _refuse_foreign_schema(connection, migration)
        found = _version(connection)
        if not migration.is_due(found):
            return migration.nothing(found)
        if migration.dry_run:
            return _preview(connection, migration, found)
        warnings = _collect_warnings(connection)
        with _hold_lock(connection, migration):
            # The last holder of the lock may have done the work.
            found = _version(connection)
            if not migration.is_due(found):
                return migration.nothing(found)
            with _reporting_waits(connection, url, migration):
                report = apply(connection, migration, found)
        return _validate_checks(connection, report.with_warnings(*warnings))


@contextmanager
def connect(url: str) -> Iterator[Connection]:
    # Hide the message of libpq: it quotes parts of a broken URL, the password among them.
    try:
        options = {"connect_timeout": CONNECT_TIMEOUT_SECONDS, **conninfo.conninfo_to_dict(url)}
    except psycopg.Error:
        raise HoldfastError(
            "the database URL cannot be read, expected "
            "postgresql://user:password@host:port/database "
            "with special characters percent-encoded"
        ) from None
    try:
        connection: Connection = psycopg.connect(
            **options,  # type: ignore[arg-type]
            autocommit=True,
            prepare_threshold=None,
        )
    except psycopg.Error as error:
        raise StoreUnavailable(f"the database cannot be reached: {one_line(error)}") from error
    with connection:
        # In a stricter isolation, reads after the lock would see the state before it.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only = False
        yield connection


@contextmanager
def clear_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise MigrationError(f"the database cannot be migrated: {_message(error)}") from error


def _collect_warnings(connection: Connection) -> list[str]:
    """Return a list that collects the warnings of scripts from now on."""
    warnings: list[str] = []

    def add(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING" and notice.message_primary:
            warnings.append(one_line(notice.message_primary))

    connection.add_notice_handler(add)
    return warnings


@contextmanager
def _hold_lock(connection: Connection, migration: Migration) -> Iterator[None]:
    """Open a transaction that holds the migration lock. No transaction is open between tries."""
    for number in range(1, LOCK_TRIES + 1):
        with connection.transaction():
            if _one(connection, "select pg_catalog.pg_try_advisory_xact_lock(%s)", LOCK_KEY)[0]:
                yield
                return
        migration.on_wait(f"another migration is running, try {number} of {LOCK_TRIES}")
        if number < LOCK_TRIES:
            time.sleep(migration.lock_interval.total_seconds())
    raise MigrationError("another migration is running: try again when it has ended")


@contextmanager
def _reporting_waits(connection: Connection, url: str, migration: Migration) -> Iterator[None]:
    """Report the locks that a script waits for, and who holds them: a silent wait looks broken."""
    done = threading.Event()
    watch = threading.Thread(
        target=_watch_waits, args=(connection.info.backend_pid, url, migration, done), daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()


def _read_wait(url: str, pid: int) -> Any:
    """Return the lock that a session waits for and its holders, None if it waits for none."""
    with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS) as watcher:
        return watcher.execute(_WAIT, (pid,)).fetchone()


def _watch_waits(pid: int, url: str, migration: Migration, done: threading.Event) -> None:
    reported: object = None
    while not done.wait(WAIT_REPORT_SECONDS):
        try:
            wait = _read_wait(url, pid)
        except psycopg.Error:
            # Only the report is lost: the migration has a connection of its own.
            return
        if wait is not None and wait != reported:
            what, holders = wait
            migration.on_wait(
                f"waiting for a lock on {what or 'the database'}, held by process {holders}"
            )
        reported = wait


def _preview(connection: Connection, migration: Migration, found: str | None) -> Report:
    connection.read_only = True
    with connection.transaction():
        _check_owner(connection)
        return migration.report(found, _read_applied(connection))


def apply(connection: Connection, migration: Migration, found: str | None) -> Report:
    # The search_path of the role must not decide the meaning of names in scripts.
    connection.execute("set local search_path = public, pg_temp")
    if not _check_owner(connection):
        connection.execute("create schema agent")
    connection.execute(_BOOTSTRAP.read_bytes())
    connection.execute("lock table agent.migration in exclusive mode")
    applied = _read_applied(connection)
    report = migration.report(found, applied)
    for script in migration.missing(applied):
        _run(connection, migration, script)
        connection.execute(_RECORD, (script.file_name, migration.version, script.body))
    for script in migration.idempotent:
        _run(connection, migration, script)
    _write_version(connection, migration.version)
    return report


def _validate_checks(connection: Connection, report: Report) -> Report:
    """Check the constraints on older rows. A failure is a warning; the new version stays."""
    if _one(connection, "select pg_catalog.to_regprocedure('agent.validate_checks()') is null")[0]:
        return report
    try:
        [buried] = _one(connection, "select agent.validate_checks()")
    except psycopg.Error as error:
        failure = "older rows could not be checked, the next migration tries again"
        return report.with_warnings(f"{failure}: {_message(error)}")
    advice = "see holdfast dead list --error unreadable"
    found = (f"dead letters made of unreadable rows: {buried}; {advice}",) if buried else ()
    return report.with_warnings(*found)


def _run(connection: Connection, migration: Migration, script: Script) -> None:
    migration.on_step(script.label)
    try:
        # Without parameters, percent signs are literal and a script may hold many statements.
        connection.execute(script.body.encode())
    except psycopg.Error as error:
        raise MigrationError(f"{script.label}{_line(script, error)}: {_message(error)}") from error
    if connection.info.transaction_status != pq.TransactionStatus.INTRANS:
        raise MigrationError(
            f"{script.label} ends the transaction; a script must not commit or roll back"
        )


def _check_owner(connection: Connection) -> bool:
    """Return whether schema agent exists. Refuse a foreign one, and one that cannot be created."""
    user, database, may_create, owner = _one(connection, _OWNER)
    if owner is None and not may_create:
        raise MigrationError(
            f'"{user}" may not create schema agent in database "{database}": '
            f'grant create on database "{database}" to "{user}", '
            f'or create schema agent authorization "{user}"'
        )
    if owner is not None and owner != user:
        advice = f'migrate as "{owner}"'
        if not _one(connection, "select pg_catalog.has_schema_privilege('agent', 'usage')")[0]:
            advice = f'grant "{user}" what a worker needs (docs/database.md, Roles), or {advice}'
        raise MigrationError(f'schema agent belongs to "{owner}", not to "{user}": {advice}')
    return owner is not None


def _refuse_foreign_schema(connection: Connection, migration: Migration) -> None:
    """Refuse the schema of another program; the tables of Tiger Agent have the same names."""
    if not _table_exists(connection, "event") or not migration.incremental:
        return
    try:
        applied = _read_applied(connection)
    except errors.InsufficientPrivilege:
        # Not the owner: the version says whether there is anything to do.
        return
    if migration.incremental[0].file_name not in applied:
        raise MigrationError(FOREIGN_SCHEMA)


def _version(connection: Connection) -> str | None:
    if not _table_exists(connection, "version"):
        return None
    try:
        row = connection.execute("select version from agent.version").fetchone()
    except errors.InsufficientPrivilege:
        if connection.info.transaction_status == pq.TransactionStatus.IDLE:
            _check_owner(connection)
        raise
    return None if row is None else str(row[0])


def _read_applied(connection: Connection) -> dict[str, str]:
    if not _table_exists(connection, "migration"):
        return {}
    rows = connection.execute("select file_name, body from agent.migration order by file_name")
    return {str(name): str(body) for name, body in rows}


def _write_version(connection: Connection, version: str) -> None:
    updated = connection.execute("update agent.version set version = %s, at = now()", (version,))
    if updated.rowcount == 0:
        connection.execute("insert into agent.version (version) values (%s)", (version,))


def _table_exists(connection: Connection, name: str) -> bool:
    return connection.execute(_TABLE, (name,)).fetchone() is not None


def _one(connection: Connection, query: str, *values: object) -> tuple[Any, ...]:
    row = connection.execute(query.encode(), values or None).fetchone()
    assert row is not None, "these queries return exactly one row"
    return row


def _line(script: Script, error: psycopg.Error) -> str:
    position = error.diag.statement_position
    return f", line {script.body.count(chr(10), 0, int(position) - 1) + 1}" if position else ""


def _message(error: psycopg.Error) -> str:
    parts = [error.diag.message_primary or str(error), error.diag.message_detail]
    message = one_line(": ".join(part for part in parts if part))
    if isinstance(error, (errors.LockNotAvailable, errors.QueryCanceled)):
        message += "; try again when the database is less busy, or raise that limit for this role"
    return message
