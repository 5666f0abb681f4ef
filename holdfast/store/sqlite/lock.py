"""File locks that say who writes and who lives; a forked child never keeps one."""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from pathlib import Path
from types import TracebackType

DOOR_SECONDS = 0.05
LOOK_SECONDS = 0.0005


class HeldFile:
    """An open file that can be locked, closed in children by exec and by fork alike."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _held.add(self)

    def lock(self) -> None:
        fcntl.flock(self._open(), fcntl.LOCK_EX)

    def try_lock(self) -> bool:
        try:
            fcntl.flock(self._open(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.flock(self._open(), fcntl.LOCK_UN)

    def is_current(self) -> bool:
        """Whether the path still names this file and not a later one."""
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(self._open()), there)

    def close(self) -> None:
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)

    def _open(self) -> int:
        if self.fd is None:
            raise ValueError(f"{self.path} is closed")
        return self.fd


_held: weakref.WeakSet[HeldFile] = weakref.WeakSet()


def _close_in_child() -> None:
    # a lock belongs to the open file: a child that kept it open would hold its parent's lock beyond its death
    for file in list(_held):
        file.close()


os.register_at_fork(after_in_child=_close_in_child)


class WriteLock:
    """One writer at a time over all processes, in the order they came.

    A released flock goes to whoever asks first, and that is the one that just held it. So the next in line waits
    in a doorway of its own, which the last holder has to pass again. Who stands there for long may be a stopped
    process: it is walked past, since nothing but the order depends on the door.
    """

    def __init__(self, database: Path) -> None:
        self._room = HeldFile(database.with_name(database.name + ".lock"))
        self._door = HeldFile(database.with_name(database.name + ".lock-next"))
        self._is_blocked = False

    def __enter__(self) -> WriteLock:
        if not self._stands_in_door():
            self._room.lock()
            return self
        try:
            self._room.lock()
        finally:
            self._door.unlock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave()

    def try_enter(self) -> bool:
        """Only if nobody is inside or waits to be."""
        if not self._door.try_lock():
            return False
        try:
            return self._room.try_lock()
        finally:
            self._door.unlock()

    def _stands_in_door(self) -> bool:
        """False if somebody else has stood there for too long, and does still."""
        patient_until = time.monotonic() + (0 if self._is_blocked else DOOR_SECONDS)
        while not self._door.try_lock():
            if time.monotonic() >= patient_until:
                self._is_blocked = True
                return False
            time.sleep(LOOK_SECONDS)
        self._is_blocked = False
        return True

    def leave(self) -> None:
        self._room.unlock()

    def close(self) -> None:
        self._room.close()
        self._door.close()
