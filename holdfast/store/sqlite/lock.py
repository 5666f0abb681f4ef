"""File locks for the one writer and for live processes; a forked child never keeps one."""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from pathlib import Path
from types import TracebackType

NEXT_SECONDS = 0.05
"""Longest wait for the lock of the next writer; after that its holder counts as stopped."""
RETRY_SECONDS = 0.0005


class LockFile:
    """An open file that can be locked. Children do not inherit it, by exec or by fork."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _open_files.add(self)

    def lock(self) -> None:
        fcntl.flock(self._open_fd(), fcntl.LOCK_EX)

    def try_lock(self) -> bool:
        try:
            fcntl.flock(self._open_fd(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.flock(self._open_fd(), fcntl.LOCK_UN)

    def is_current(self) -> bool:
        """Return whether the path still names this file and not a later one."""
        try:
            current = os.stat(self.path)
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(self._open_fd()), current)

    def close(self) -> None:
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)

    def _open_fd(self) -> int:
        if self.fd is None:
            raise ValueError(f"{self.path} is closed")
        return self.fd


_open_files: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _close_in_child() -> None:
    # A lock belongs to the open file. A child that kept it open would keep its parent's lock,
    # even after the parent's death.
    for file in list(_open_files):
        file.close()


os.register_at_fork(after_in_child=_close_in_child)


class WriteLock:
    """Allow one writer at a time over all processes, in the order of arrival.

    flock is unfair: whoever releases it usually gets it back. A second lock file queues the next
    writer, and the last one has to queue there again. A process that holds the second file for
    long may be stopped, so others ignore it: only the order depends on that file.
    """

    def __init__(self, database: Path) -> None:
        self._writer = LockFile(database.with_name(database.name + ".lock"))
        self._next = LockFile(database.with_name(database.name + ".lock-next"))
        self._ignores_next = False

    def __enter__(self) -> WriteLock:
        if not self._become_next():
            self._writer.lock()
            return self
        try:
            self._writer.lock()
        finally:
            self._next.unlock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def try_acquire(self) -> bool:
        """Acquire the lock if nobody holds it or waits for it."""
        if not self._next.try_lock():
            return False
        try:
            return self._writer.try_lock()
        finally:
            self._next.unlock()

    def _become_next(self) -> bool:
        """Lock the file of the next writer. Returns False if another process keeps it too long."""
        give_up_at = time.monotonic() + (0 if self._ignores_next else NEXT_SECONDS)
        while not self._next.try_lock():
            if time.monotonic() >= give_up_at:
                self._ignores_next = True
                return False
            time.sleep(RETRY_SECONDS)
        self._ignores_next = False
        return True

    def release(self) -> None:
        self._writer.unlock()

    def close(self) -> None:
        self._writer.close()
        self._next.close()
