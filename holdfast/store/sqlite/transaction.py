"""A transaction that a caller holds open, beside the writer's groups."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from holdfast.message import Payload
from holdfast.store.sqlite.activity import note
from holdfast.store.sqlite.connection import begin, connect, translated
from holdfast.store.sqlite.ids import Ids
from holdfast.store.sqlite.lock import WriteLock
from holdfast.store.sqlite.writer import Writing

T = TypeVar("T")


class SqliteTransaction:
    """What `SqliteStore.transaction` yields. All other writers wait until its block ends."""

    def __init__(self, path: Path, now: Callable[[], int]) -> None:
        self.ready: set[str] = set()
        self._frames: list[Iterable[Payload]] = []
        self._path = path
        self._now = now
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-transaction")
        self._connection: sqlite3.Connection | None = None
        self._lock: WriteLock | None = None
        self._ids = Ids()

    async def run(self, work: Callable[[Writing], T]) -> T:
        """Do work in this transaction: all of it or, on an error, none."""
        return await self._in_thread(lambda: self._work(work))

    async def begin(self) -> None:
        try:
            await self._in_thread(self._begin)
        except BaseException:
            # the thread may still wait for the lock: it lets go as soon as it has it
            self._thread.submit(self._end, "rollback")
            self._thread.shutdown(wait=False)
            raise

    async def end(self, how: str) -> None:
        try:
            await self._in_thread(lambda: self._end(how))
        finally:
            self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        # shielded: what the thread has begun it ends, and the next call waits its turn behind it
        return await asyncio.shield(
            asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, work)
        )

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def _begin(self) -> None:
        self._lock = WriteLock(self._path)
        self._lock.__enter__()
        self._connection = connect(self._path)
        begin(self._connection)
        self._ids.begin(self._connection)

    def _work(self, work: Callable[[Writing], T]) -> T:
        assert self._connection is not None
        told = len(self._frames)
        self._connection.execute("savepoint request")
        try:
            result = work(
                Writing(self._connection, self._now(), self._ids, self.ready, self._frames)
            )
        except BaseException:
            self._ids.forget()
            del self._frames[told:]
            if self._connection.in_transaction:
                self._connection.execute("rollback to request")
                self._connection.execute("release request")
            raise
        self._connection.execute("release request")
        return result

    def _end(self, how: str) -> None:
        try:
            if self._connection is not None and self._connection.in_transaction:
                if how == "commit" and self._frames:
                    note(self._connection, self._frames, self._now())
                self._connection.execute(how)
        finally:
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    # an open transaction, whose commit failed, is rolled back by this
                    self._connection.close()
            if self._lock is not None:
                self._lock.close()
