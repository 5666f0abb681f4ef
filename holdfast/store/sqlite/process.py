"""Live and dead processes: each process locks a file of its own, which its death unlocks."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from sqlite3 import Connection
from urllib.parse import quote

from holdfast.errors import HoldfastError
from holdfast.queue.store import DEFAULT_MAX_ATTEMPTS, Process
from holdfast.store.payload import dump
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.lock import LockFile
from holdfast.store.sqlite.rows import process_of, process_params
from holdfast.store.sqlite.settle import finish, keep_attempts
from holdfast.store.sqlite.writer import Writing
from holdfast.store.watch import Watch

SQL = load()

LOCK_TRIES = 50
LOCK_PAUSE = timedelta(milliseconds=20)
LONGEST_NAME = 200
"""Longest file name made of an id; longer ones are hashed. File systems allow 255 bytes."""


class ProcessLocks:
    """Holds lock files for this process, and checks those of others."""

    def __init__(self, database: Path, watch: Watch) -> None:
        self._folder = database.with_name(database.name + ".processes")
        self._watch = watch
        self._own: dict[str, LockFile] = {}

    def hold(self, process_id: str) -> None:
        """Show that this process lives, until `release`, `close` or its death."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # An observer locks the file for an instant. A lock that lasts is another process.
        for _ in range(LOCK_TRIES):
            file = LockFile(self._path(process_id))
            # The reaper of a namesake may have removed the file between our open and our lock.
            if file.try_lock() and file.is_current():
                self._own[process_id] = file
                return
            file.close()
            time.sleep(LOCK_PAUSE.total_seconds())
        raise HoldfastError(
            f"a process with the id {process_id} is at work already; give this one another id"
        )

    def find_dead(self, process_ids: list[str]) -> list[str]:
        """Check once. Returns the processes that were dead in two checks, far enough apart."""
        return self._watch.look(id for id in process_ids if self.is_dead(id))

    def is_dead(self, process_id: str) -> bool:
        if process_id in self._own:
            return False
        try:
            fd = os.open(self._path(process_id), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            # Shared, so that two observers do not take each other for the process.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True

    def release(self, process_id: str) -> None:
        """Remove our own lock file."""
        file = self._own.pop(process_id, None)
        if file is not None:
            self._remove(process_id)
            file.close()

    def remove_dead(self, process_id: str) -> None:
        """Remove the lock file of a process that was reaped, unless a namesake has locked it."""
        with suppress(FileNotFoundError), closing(LockFile(self._path(process_id))) as file:
            if file.try_lock() and file.is_current():
                self._remove(process_id)

    def _remove(self, process_id: str) -> None:
        with suppress(FileNotFoundError):
            self._path(process_id).unlink()

    def close(self) -> None:
        for file in self._own.values():
            file.close()
        self._own.clear()

    def _path(self, process_id: str) -> Path:
        # Dots are quoted too: an id must not name a file elsewhere.
        name = quote(process_id, safe="", errors="replace").replace(".", "%2E")
        # A row written by hand may hold any id. A hash cannot be mistaken for a quoted id.
        return self._folder / (
            name if 0 < len(name) <= LONGEST_NAME else f"%-{sha256(name.encode()).hexdigest()}"
        )


def read_processes(connection: Connection) -> list[Process]:
    return [process_of(row) for row in connection.execute(SQL["processes"])]


def put_process(db: Writing, process: Process) -> None:
    db.connection.execute(SQL["put_process"], process_params(process))


def update_process(db: Writing, process: Process) -> None:
    """Store that the process was just seen, with its counts."""
    db.connection.execute(SQL["update_process"], process_params(process) | {"seen_at": db.now})


def delete_process(db: Writing, process_id: str) -> bool:
    return db.connection.execute(SQL["delete_process"], {"id": process_id}).rowcount > 0


def touch(db: Writing, queue: str) -> None:
    """Make other processes look at a queue: they notice every commit that changes something."""
    db.connection.execute(SQL["touch"])
    db.ready.add(queue)


def reap_process(
    db: Writing, locks: ProcessLocks, process_id: str, max_attempts: Mapping[str, int]
) -> bool:
    """Release the turns of a dead process. Returns False if it lives or was reaped already."""
    connection, now = db.connection, db.now
    if not locks.is_dead(process_id) or not delete_process(db, process_id):
        return False
    params = {
        "id": process_id,
        "max_attempts": dump(max_attempts),
        "otherwise": DEFAULT_MAX_ATTEMPTS,
    }
    rows = connection.execute(SQL["held_by"], params).fetchall()
    backs = [[id, now, 0, None, None] for id, _, used_up in rows if not used_up]
    error = f"process {process_id} died"
    keep_attempts(db, [[id, error, None, None] for id, *_ in rows])
    connection.execute(SQL["back"], {"backs": dump(backs), "now": now})
    finish(db, [[id, "dead", error, None, None] for id, _, used_up in rows if used_up])
    db.ready.update(queue for _, queue, _ in rows)
    return True
