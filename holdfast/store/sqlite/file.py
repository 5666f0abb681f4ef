"""Work on the database file as a whole: copy it, and erase the bytes of deleted rows."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.store.sqlite.connection import (
    BUSY_SECONDS,
    RETRY_SECONDS,
    connect,
    load,
    translate_error,
)
from holdfast.store.sqlite.lock import WriteLock

SQL = load()


def back_up(database: Path, target: Path, *, replace: bool = False) -> int:
    """Copy the database while others use it, check the copy, then rename it to `target`.

    Only the owner may read the copy. Returns its size in bytes."""
    if not database.exists():
        raise HoldfastError(f"there is no database {database}")
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
    Freed pages keep their content, since overwriting them would slow down every turn. Parts of
    pages do so even with `secure_delete`. Only a rewritten file is free of both."""
    lock = WriteLock(path)
    try:
        with lock, closing(connect(path)) as connection:
            # SQLite's copy may be larger than memory.
            connection.execute("pragma temp_store = file")
            connection.execute("pragma secure_delete = on")
            connection.execute(SQL["rebuild_text"])
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
