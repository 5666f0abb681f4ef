"""The database file: connections, named statements, translated errors, back-up and vacuum."""

from __future__ import annotations

import os
import re
import sqlite3
import time
import traceback
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from holdfast.errors import HoldfastError, StoreUnavailable, Unreadable
from holdfast.memory.observation import is_person
from holdfast.message import channel_of, sender_id_of, sender_of, subject_of, written_of
from holdfast.queue.event import payload_of
from holdfast.store.sqlite.lock import WriteLock
from holdfast.store.statistics import cell_of

BUSY_SECONDS = 30.0
"""Longest wait for a writer that does not use our lock file."""
RETRY_SECONDS = 0.005
CHECKPOINT_PAGES = 4000
CACHE_KIB = 32 * 1024
MOVED = "this database "
"""First words of the error with which a moved database refuses changes."""

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
    connection.create_function("is_sent_by", 2, _is_sent_by, deterministic=True)
    connection.create_function("contains_text", 2, _contains_text, deterministic=True)
    connection.create_function("duration_cell", 1, cell_of, deterministic=True)
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


def _is_sent_by(event: str, sender: str) -> bool:
    """Implement the SQL function is_sent_by: the sender has this name, in any case, or this id."""
    payload = payload_of(event)
    if isinstance(payload, Unreadable):
        return False
    return sender_of(payload).lower() == sender.lower() or sender_id_of(payload) == sender


def _contains_text(event: str, text: str) -> bool:
    """Implement the SQL function contains_text: the message contains this text, in any case."""
    payload = payload_of(event)
    return not isinstance(payload, Unreadable) and text.lower() in written_of(payload).lower()


def begin(connection: sqlite3.Connection, busy_seconds: float = BUSY_SECONDS) -> None:
    """Begin a write transaction. Waits for writers that ignore our lock: a shell, a back-up."""
    give_up_at = time.monotonic() + busy_seconds
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
    extended = getattr(error, "sqlite_errorcode", 0)
    if extended & 0xFF in _TRANSIENT:
        ours: HoldfastError = StoreUnavailable(
            f"the database {path} cannot be used right now: {error}; try again"
        )
    elif extended == sqlite3.SQLITE_CONSTRAINT_TRIGGER and str(error).startswith(MOVED):
        ours = StoreUnavailable(str(error))
    else:
        ours = HoldfastError(f"the database {path} refused: {error}")
    ours.__cause__ = error
    return ours


def back_up(database: Path, target: Path, *, replace: bool = False) -> int:
    """Copy the database while others use it, check the copy, then rename it to `target`.

    Only the owner may read the copy. Returns its size in bytes."""
    if not database.exists():
        raise HoldfastError(f"there is no database {database}")
    if _is_part_of(target, database):
        raise HoldfastError(f"{target} is the database in use: name another file")
    if target.exists() and not replace:
        raise HoldfastError(f"{target} is there already: --force writes over it")
    draft = target.with_name(f".{target.name}-{os.getpid()}.part")
    try:
        # SQLite accepts an empty file as target; created here, it is private from the beginning.
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        _copy(database, draft)
        _check(draft)
        _flush(draft)
        os.replace(draft, target)
        _flush(target.parent)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise HoldfastError(f"the back-up {target} cannot be written: {reason}") from error
    finally:
        with suppress(OSError):
            draft.unlink()
    return target.stat().st_size


def _is_part_of(target: Path, database: Path) -> bool:
    """Return whether a file is the database or one of the files that SQLite keeps beside it."""
    if target.exists() and target.samefile(database):
        return True
    name, parent = database.resolve().name, database.resolve().parent
    return target.resolve() in {parent / f"{name}{end}" for end in ("-wal", "-shm", "-journal")}


def _copy(database: Path, draft: Path) -> None:
    """Copy one snapshot, without deleted rows and free space."""
    with closing(
        sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
    ) as connection:
        connection.execute("vacuum into ?", (str(draft),))


def _check(draft: Path) -> None:
    with closing(sqlite3.connect(f"{draft.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        [answer] = connection.execute("pragma integrity_check(1)").fetchone()
    if answer != "ok":
        raise HoldfastError(
            f"the copy is damaged ({answer}); run `pragma integrity_check` on the database itself"
        )


def _flush(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def vacuum(path: Path) -> None:
    """Rebuild the full-text index, rewrite the file and empty the write-ahead log.

    All other writers wait until it is done: about as long as copying the file takes.
    Freed pages keep their content, since overwriting them would slow down every turn. Freed parts
    of pages keep it even with `secure_delete`. Only rewriting the file removes both."""
    lock = WriteLock(path)
    try:
        with lock, closing(connect(path)) as connection:
            # SQLite's copy may be larger than memory.
            connection.execute("pragma temp_store = file")
            connection.execute("pragma secure_delete = on")
            connection.execute(load()["rebuild_text"])
            connection.execute("vacuum")
            _empty_log(connection, path)
    except sqlite3.Error as error:
        raise translate_error(error, path) from error
    finally:
        lock.close()


def _empty_log(connection: sqlite3.Connection, path: Path) -> None:
    """Truncate the write-ahead log as soon as nobody reads from it."""
    give_up_at = time.monotonic() + BUSY_SECONDS
    while connection.execute("pragma wal_checkpoint(truncate)").fetchone()[0]:
        if time.monotonic() > give_up_at:
            raise StoreUnavailable(
                f"deleted rows are still in {path}-wal, because a reader uses it; "
                "try again when the reader has finished"
            )
        time.sleep(RETRY_SECONDS)
