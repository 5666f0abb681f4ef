"""Reading beside the writer: a few threads, each with a connection of its own."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from holdfast.store.sqlite.connection import close_cursors, connect, translated

T = TypeVar("T")

READERS = 3


class Reader:
    """Runs reads in threads, so that neither the event loop nor the writer waits for them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="holdfast-reader")
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._work, work)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        for connection in self._connections:
            connection.close()

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._connection()
            # One snapshot for all its statements: what one found the next must find, too.
            connection.execute("begin")
            try:
                return _done(connection, work)
            except Exception as error:
                close_cursors(error)
                raise
            finally:
                connection.execute("commit")
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect(self._path, read_only=True)
            self._connections.append(connection)
        return connection


def _done(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Do the work; if a text is no UTF-8, do it again with the broken characters replaced."""
    try:
        return work(connection)
    except sqlite3.OperationalError as error:
        if "UTF-8" not in str(error):
            raise
    connection.text_factory = lambda text: text.decode(errors="replace")
    try:
        return work(connection)
    finally:
        connection.text_factory = str
