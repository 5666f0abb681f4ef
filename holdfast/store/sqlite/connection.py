"""Connections to the database's file, and SQLite's errors in our words."""

from __future__ import annotations

import sqlite3
import time
import traceback
from pathlib import Path

from holdfast.errors import HoldfastError, StoreUnavailable, Unreadable
from holdfast.memory.observation import is_person
from holdfast.message import subject_of
from holdfast.queue.event import payload_of

BUSY_SECONDS = 30.0
LOOK_SECONDS = 0.005
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


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection with the settings all of ours share; a missing file is not created."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
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
        # What a savepoint or a large statement might undo stays in memory: else each batch writes it to a file first.
        connection.execute("pragma temp_store = memory")
        # Freed pages are not written once more, full of zeros; some builds of SQLite do so unless told.
        connection.execute("pragma secure_delete = fast")
    return connection


def _subject_of(event: str) -> str:
    """The SQL function subject_of, as agent.subject_of on PostgreSQL."""
    payload = payload_of(event)
    return "" if isinstance(payload, Unreadable) else subject_of(payload)


def begin(connection: sqlite3.Connection) -> None:
    """Begin to write, after whoever does so without our lock: somebody's shell, a backup."""
    patient_until = time.monotonic() + BUSY_SECONDS
    while not begins_at_once(connection, is_patient=time.monotonic() < patient_until):
        time.sleep(LOOK_SECONDS)


def begins_at_once(connection: sqlite3.Connection, *, is_patient: bool = True) -> bool:
    """Begin to write unless somebody else does; an error only for who has lost patience with them."""
    try:
        connection.execute("begin immediate")
    except sqlite3.OperationalError as error:
        if is_patient and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            return False
        raise
    return True


def close_cursors(error: BaseException | None) -> None:
    """Let go of the half-read cursors in the frames of an error.

    As long as somebody handles the error, they would keep their snapshot open. After a commit of another connection,
    SQLite then lets this one neither write (SQLITE_BUSY_SNAPSHOT) nor read anything newer."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def translated(error: BaseException, path: Path) -> BaseException:
    """SQLite's errors as ours, in one sentence; others as they are."""
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


def _is_person(subject: str | None, key: str) -> bool:
    """The SQL function is_person, as agent.is_person on PostgreSQL."""
    return subject is not None and is_person(subject, key)
