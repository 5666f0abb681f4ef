"""Connections to the database file, the named statements, and SQLite's errors as ours."""

from __future__ import annotations

import re
import sqlite3
import time
import traceback
from functools import cache
from pathlib import Path

from holdfast.errors import HoldfastError, StoreUnavailable, Unreadable
from holdfast.memory.observation import is_person
from holdfast.message import channel_of, subject_of
from holdfast.queue.event import payload_of

BUSY_SECONDS = 30.0
"""Longest wait for a writer that does not use our lock file."""
RETRY_SECONDS = 0.005
CHECKPOINT_PAGES = 4000
CACHE_KIB = 32 * 1024

_TRANSIENT = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOMEM,
}
_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def load(folder: Path = Path(__file__).parent) -> dict[str, str]:
    """Read the named statements of all .sql files in a folder; a name must be unique."""
    statements: dict[str, str] = {}
    for file in sorted(folder.glob("*.sql")):
        for name, body in parse_statements(file.read_text(encoding="utf-8")):
            if name in statements:
                raise HoldfastError(f"the query {name} is defined twice, again in {file.name}")
            statements[name] = body
    return statements


def parse_statements(text: str) -> list[tuple[str, str]]:
    """Return the `-- name: x` sections of a file. Text before the first one is a comment."""
    parts = _NAME.split(text)[1:]
    return [(name, body.strip()) for name, body in zip(parts[::2], parts[1::2], strict=True)]


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection with the settings that all of ours share; never create the file."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.create_function("channel_of", 1, _channel_of, deterministic=True)
    connection.create_function("subject_of", 1, _subject_of, deterministic=True)
    connection.create_function("is_person", 2, _is_person, deterministic=True)
    connection.execute("pragma foreign_keys = on")
    connection.execute("pragma synchronous = full")
    connection.execute(f"pragma wal_autocheckpoint = {CHECKPOINT_PAGES}")
    if read_only:
        connection.execute("pragma query_only = on")
    else:
        connection.execute("pragma journal_mode = wal")
        connection.execute(f"pragma cache_size = -{CACHE_KIB}")
        # Keep the undo log of savepoints and large statements in memory instead of a file.
        connection.execute("pragma temp_store = memory")
        # Do not overwrite freed pages with zeros; some builds of SQLite do so by default.
        connection.execute("pragma secure_delete = fast")
    return connection


def _channel_of(event: str) -> str:
    """Implement the SQL function channel_of, the twin of agent.channel_of on PostgreSQL."""
    payload = payload_of(event)
    return "" if isinstance(payload, Unreadable) else channel_of(payload)


def _subject_of(event: str) -> str:
    """Implement the SQL function subject_of, the twin of agent.subject_of on PostgreSQL."""
    payload = payload_of(event)
    return "" if isinstance(payload, Unreadable) else subject_of(payload)


def _is_person(subject: str | None, key: str) -> bool:
    """Implement the SQL function is_person, the twin of agent.is_person on PostgreSQL."""
    return subject is not None and is_person(subject, key)


def begin(connection: sqlite3.Connection) -> None:
    """Begin a write transaction. Waits for writers without our lock: a shell, a backup."""
    give_up_at = time.monotonic() + BUSY_SECONDS
    while not try_begin(connection, raise_if_busy=time.monotonic() >= give_up_at):
        time.sleep(RETRY_SECONDS)


def try_begin(connection: sqlite3.Connection, *, raise_if_busy: bool = False) -> bool:
    """Begin a write transaction unless somebody else writes. Returns whether it has begun."""
    try:
        connection.execute("begin immediate")
    except sqlite3.OperationalError as error:
        if not raise_if_busy and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            return False
        raise
    return True


def close_cursors(error: BaseException | None) -> None:
    """Release the half-read cursors in the frames of an error.

    While somebody handles the error, they would keep their snapshot open. After a commit of
    another connection, SQLite then refuses writes (SQLITE_BUSY_SNAPSHOT) and reads old data."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def translate_error(error: BaseException, path: Path) -> BaseException:
    """Return our error for one of SQLite's; return any other error unchanged."""
    if not isinstance(error, sqlite3.Error):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _TRANSIENT:
        ours: HoldfastError = StoreUnavailable(
            f"the database {path} cannot be used right now: {error}; try again"
        )
    else:
        ours = HoldfastError(f"the database {path} refused: {error}")
    ours.__cause__ = error
    return ours
