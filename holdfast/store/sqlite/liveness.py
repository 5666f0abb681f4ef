"""Signs of life: every process holds a lock on a file of its own, which its death lets go."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from holdfast.errors import HoldfastError
from holdfast.queue.store import DEFAULT_MAX_ATTEMPTS
from holdfast.store.payload import dump
from holdfast.store.sqlite.lock import HeldFile
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.settling import finish
from holdfast.store.sqlite.writer import Writing
from holdfast.store.watch import Watch

SQL = load()

LOCK_TRIES = 50
LOCK_PAUSE = timedelta(milliseconds=20)
LONGEST_NAME = 200
"""Longest file name that is made of an id; longer ones are hashed. File systems take 255 bytes."""


class SignsOfLife:
    """Our own sign, and a look at those of others."""

    def __init__(self, database: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._folder = database.with_name(database.name + ".processes")
        self._watch = Watch(monotonic)
        self._own: dict[str, HeldFile] = {}

    def hold(self, process_id: str) -> None:
        """Show that this process lives, until `close` or its death."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # an observer's look locks the file for an instant; only what lasts is another process
        for _ in range(LOCK_TRIES):
            file = HeldFile(self._path(process_id))
            # whoever buried a namesake may have removed the file between our open and our lock
            if file.try_lock() and file.is_current():
                self._own[process_id] = file
                return
            file.close()
            time.sleep(LOCK_PAUSE.total_seconds())
        raise HoldfastError(
            f"a process with the id {process_id} is at work already; give this one another id"
        )

    def gone(self, process_ids: list[str]) -> list[str]:
        """One look: those now seen gone twice, far enough apart."""
        return self._watch.look(id for id in process_ids if self.is_gone(id))

    def is_gone(self, process_id: str) -> bool:
        if process_id in self._own:
            return False
        try:
            fd = os.open(self._path(process_id), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            # shared, so that two observers do not take each other for the process
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True

    def let_go(self, process_id: str) -> None:
        """Take our own sign down."""
        file = self._own.pop(process_id, None)
        if file is not None:
            self.forget(process_id)
            file.close()

    def forget(self, process_id: str) -> None:
        """Remove the file of a process that is dead and buried."""
        with suppress(FileNotFoundError):
            self._path(process_id).unlink()

    def close(self) -> None:
        for file in self._own.values():
            file.close()
        self._own.clear()

    def _path(self, process_id: str) -> Path:
        # A dot is quoted too: an id must not name a file elsewhere.
        name = quote(process_id, safe="", errors="replace").replace(".", "%2E")
        # A row written by hand may hold any id. Hashes cannot be mistaken for quoted ids.
        return self._folder / (
            name if 0 < len(name) <= LONGEST_NAME else f"%-{sha256(name.encode()).hexdigest()}"
        )


def reap(db: Writing, signs: SignsOfLife, process_id: str, max_attempts: Mapping[str, int]) -> bool:
    """Take back what a dead process held; False if it is back, or reaped by another."""
    connection, now = db.connection, db.now
    if not signs.is_gone(process_id):
        return False
    if connection.execute(SQL["delete_process"], {"id": process_id}).rowcount == 0:
        return False
    params = {
        "id": process_id,
        "max_attempts": dump(max_attempts),
        "otherwise": DEFAULT_MAX_ATTEMPTS,
    }
    rows = connection.execute(SQL["held_by"], params).fetchall()
    backs = [[id, now, 0, None, None] for id, _, used_up in rows if not used_up]
    error = f"process {process_id} died"
    connection.execute(SQL["back"], {"backs": dump(backs), "now": now})
    finish(db, [[id, "dead", error, None, None] for id, _, used_up in rows if used_up])
    db.ready.update(queue for _, queue, _ in rows)
    return True
