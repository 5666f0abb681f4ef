"""Freeing the bytes of deleted rows: nothing of them is left in the database's files."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.store.sqlite.connection import BUSY_SECONDS, LOOK_SECONDS, connect, translated
from holdfast.store.sqlite.lock import WriteLock
from holdfast.store.sqlite.queries import load

SQL = load()


def vacuum(path: Path) -> None:
    """Rebuild the full-text index, rewrite the file and empty the write-ahead log, while other writers wait.

    Freed pages keep their content, since overwriting them would slow down every turn; and parts of a page that rows
    left behind do so even with `secure_delete`. Only a rewritten file is free of both."""
    lock = WriteLock(path)
    try:
        with lock, closing(connect(path)) as connection:
            # The copy that SQLite makes may be larger than memory.
            connection.execute("pragma temp_store = file")
            connection.execute("pragma secure_delete = on")
            connection.execute(SQL["rebuild_text"])
            connection.execute("vacuum")
            _empty_log(connection, path)
    except sqlite3.Error as error:
        raise translated(error, path) from error
    finally:
        lock.close()


def _empty_log(connection: sqlite3.Connection, path: Path) -> None:
    """Truncate the write-ahead log, once nobody reads from it."""
    patient_until = time.monotonic() + BUSY_SECONDS
    while connection.execute("pragma wal_checkpoint(truncate)").fetchone()[0]:
        if time.monotonic() > patient_until:
            raise StoreUnavailable(
                f"deleted rows are still in {path}-wal, because somebody reads from it; try again once that is over"
            )
        time.sleep(LOOK_SECONDS)
