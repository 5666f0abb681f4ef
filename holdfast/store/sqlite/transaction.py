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
from holdfast.store.sqlite.activity import put_activity
from holdfast.store.sqlite.connection import begin, connect, translate_error
from holdfast.store.sqlite.lock import WriteLock
from holdfast.store.sqlite.writer import Ids, Writing

T = TypeVar("T")


class SqliteTransaction:
    """A transaction as an async context manager. All other writers wait until its block ends."""

    def __init__(
        self, path: Path, now: Callable[[], int], on_ready: Callable[[set[str]], None]
    ) -> None:
        self._ready: set[str] = set()
        self._frames: list[Iterable[Payload]] = []
        self._path = path
        self._now = now
        self._on_ready = on_ready
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-transaction")
        self._connection: sqlite3.Connection | None = None
        self._lock: WriteLock | None = None
        self._ids = Ids()

    async def run(self, work: Callable[[Writing], T]) -> T:
        """Do work in this transaction: all of it or, on an error, none."""
        return await self._in_thread(lambda: self._run(work))

    async def __aenter__(self) -> SqliteTransaction:
        try:
            await self._in_thread(self._begin)
        except BaseException:
            # The thread may still wait for the lock; it releases the lock as soon as it has it.
            self._thread.submit(self._end, "rollback")
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self._in_thread(lambda: self._end("commit" if kind is None else "rollback"))
        finally:
            self._thread.shutdown(wait=False)
        if kind is None:
            self._on_ready(self._ready)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        # Shielded: the thread ends what it has begun, and the next call queues behind it.
        return await asyncio.shield(
            asyncio.get_running_loop().run_in_executor(self._thread, self._translate_errors, work)
        )

    def _translate_errors(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except sqlite3.Error as error:
            raise translate_error(error, self._path) from error

    def _begin(self) -> None:
        self._lock = WriteLock(self._path)
        self._lock.__enter__()
        self._connection = connect(self._path)
        begin(self._connection)
        self._ids.begin(self._connection)

    def _run(self, work: Callable[[Writing], T]) -> T:
        assert self._connection is not None
        frames = len(self._frames)
        self._connection.execute("savepoint request")
        try:
            result = work(
                Writing(self._connection, self._now(), self._ids, self._ready, self._frames)
            )
        except BaseException:
            self._ids.forget()
            del self._frames[frames:]
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
                    put_activity(self._connection, self._frames, self._now())
                self._connection.execute(how)
        finally:
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    # This also rolls back a transaction whose commit failed.
                    self._connection.close()
            if self._lock is not None:
                self._lock.close()
