"""The one writer of a process: a thread that commits together what waits together."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.event import Payload
from holdfast.store.sqlite.activity import note
from holdfast.store.sqlite.calls import LoopCalls
from holdfast.store.sqlite.ids import Ids
from holdfast.store.sqlite.lock import WriteLock

T = TypeVar("T")

GROUP_REQUESTS = 200
GROUP_SECONDS = 0.005
POLL_SECONDS = 0.02
BUSY_SECONDS = 30.0
CHECKPOINT_PAGES = 4000
CACHE_KIB = 32 * 1024

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


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection with the settings all of ours share; a missing file is not created."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.execute("pragma foreign_keys = on")
    connection.execute("pragma synchronous = full")
    connection.execute(f"pragma wal_autocheckpoint = {CHECKPOINT_PAGES}")
    if read_only:
        connection.execute("pragma query_only = on")
    else:
        connection.execute("pragma journal_mode = wal")
        connection.execute(f"pragma cache_size = -{CACHE_KIB}")
        # What a savepoint or a large statement might undo stays in memory: else each batch writes it to a file first.
        connection.execute("pragma temp_store = memory")
        # Freed pages are not written once more, full of zeros; some builds of SQLite do so unless told.
        connection.execute("pragma secure_delete = fast")
    return connection


def translated(error: BaseException, path: Path) -> BaseException:
    """SQLite's errors as ours, in one sentence; others as they are."""
    if not isinstance(error, sqlite3.Error):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _TRANSIENT:
        ours: HoldfastError = StoreUnavailable(f"the database {path} cannot be used right now: {error}; try again")
    else:
        ours = HoldfastError(f"the database {path} refused: {error}")
    ours.__cause__ = error
    return ours


@dataclass(slots=True, eq=False)
class Writing:
    """What a piece of work writes with: the open transaction, its moment, and where it notes what became ready.

    `frames` tell of it to whoever watches; those of all that commits together become one row."""

    connection: sqlite3.Connection
    now: int
    ids: Ids
    ready: set[str]
    frames: list[Payload]


@dataclass(slots=True, eq=False)
class Request:
    """Work for the writer, and the future that waits for it."""

    work: Callable[[Writing], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


@dataclass(slots=True)
class Tally:
    """What the writer has done; requests per commit show how well commits are shared."""

    requests: int = 0
    commits: int = 0


@dataclass(slots=True, eq=False)
class Writer:
    """Runs requests on its own connection and thread, in groups of one transaction each."""

    path: Path
    loop: asyncio.AbstractEventLoop
    now: Callable[[], int]
    on_ready: Callable[[set[str]], None]
    tally: Tally = field(default_factory=Tally)
    watching: bool = False
    _queue: SimpleQueue[Request | None] = field(default_factory=SimpleQueue)
    _thread: threading.Thread | None = None
    _calls: LoopCalls | None = None
    _closed: bool = False
    _ids: Ids = field(default_factory=Ids)

    async def start(self) -> None:
        connection = await asyncio.to_thread(connect, self.path)
        lock = WriteLock(self.path)
        self._calls = LoopCalls(self.loop)
        self._thread = threading.Thread(target=self._run, args=(connection, lock), name="holdfast-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Writing], T]) -> asyncio.Future[T]:
        """Have the work done in a transaction; the future is done once it is committed."""
        if self._closed:
            raise HoldfastError("the store is closed")
        future: asyncio.Future[T] = self.loop.create_future()
        self._queue.put(Request(work, future))
        return future

    def watch(self) -> None:
        """From now on look for the commits of other processes too."""
        self.watching = True
        if not self._closed:
            self._queue.put(Request(lambda db: None, self.loop.create_future()))

    async def close(self) -> None:
        """Finish what was asked, then stop."""
        if self._closed or self._thread is None:
            return
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        if self._calls is not None:
            self._calls.close()

    def _run(self, connection: sqlite3.Connection, lock: WriteLock) -> None:
        foreign = _ForeignCommits(connection)
        while True:
            request = self._next()
            if request is None:
                break
            if isinstance(request, Request):
                self._serve(connection, lock, request)
            if self.watching and foreign.seen():
                self._call(self.on_ready, {""})
        lock.close()
        connection.close()

    def _next(self) -> Request | Empty | None:
        try:
            return self._queue.get(timeout=POLL_SECONDS if self.watching else None)
        except Empty as nothing:
            return nothing

    def _serve(self, connection: sqlite3.Connection, lock: WriteLock, first: Request) -> None:
        group, ready = [first], set[str]()
        try:
            with lock:
                self._commit(connection, group, ready)
        except Exception as error:  # noqa: BLE001 - each that waits gets it
            self._roll_back(connection)
            for request in group:
                request.error = error
            ready.clear()
        self._call(self._complete, group, ready)

    def _commit(self, connection: sqlite3.Connection, group: list[Request], ready: set[str]) -> None:
        frames: list[Payload] = []
        self._begin(connection)
        for request in self._waiting(group):
            if request.future.cancelled():
                continue
            db = Writing(connection, self.now(), self._ids, ready, frames)
            if request is group[0]:
                self._attempt_first(db, request)
            else:
                self._attempt(db, request)
        if frames:
            note(connection, frames, self.now())
        connection.execute("commit")
        self.tally.requests += len(group)
        self.tally.commits += 1

    def _waiting(self, group: list[Request]) -> Iterator[Request]:
        """The first of the group and what comes meanwhile; nobody is waited for."""
        until = time.monotonic() + GROUP_SECONDS
        yield group[0]
        while len(group) < GROUP_REQUESTS and time.monotonic() < until and not self._queue.empty():
            request = self._queue.get()
            if request is None:
                self._queue.put(None)
                return
            group.append(request)
            yield request

    def _begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("begin immediate")
        self._ids.begin(connection)

    def _attempt_first(self, db: Writing, request: Request) -> None:
        """Do the first request of a group: if it fails, there is nothing before it to be kept."""
        try:
            request.result = request.work(db)
        except Exception as error:
            if not db.connection.in_transaction:
                raise
            request.error = error
            db.frames.clear()
            self._roll_back(db.connection)
            self._begin(db.connection)

    def _attempt(self, db: Writing, request: Request) -> None:
        """Do one request in a savepoint, so that its failure is its own."""
        connection, told = db.connection, len(db.frames)
        connection.execute("savepoint request")
        try:
            request.result = request.work(db)
        except Exception as error:
            # a full disk or an I/O error may have ended the whole transaction: then the group fails
            if not connection.in_transaction:
                raise
            request.error = error
            del db.frames[told:]
            self._ids.forget()
            connection.execute("rollback to request")
        connection.execute("release request")

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        self._ids.forget()
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("rollback")

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        assert self._calls is not None
        self._calls.call(function, *args)

    def _complete(self, group: list[Request], ready: set[str]) -> None:
        for request in group:
            if request.future.done():
                continue
            if request.error is None:
                request.future.set_result(request.result)
            else:
                request.future.set_exception(translated(request.error, self.path))
        if ready:
            self.on_ready(ready)


class _ForeignCommits:
    """Tells the commits of other connections from our own: `data_version` of the writer changes by theirs alone."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version = self._read()
        self._looked = time.monotonic()

    def seen(self) -> bool:
        now = time.monotonic()
        if now - self._looked < POLL_SECONDS / 2:
            return False
        self._looked = now
        with suppress(sqlite3.Error):
            version = self._read()
            if version != self._version:
                self._version = version
                return True
        return False

    def _read(self) -> int:
        return int(self._connection.execute("pragma data_version").fetchone()[0])
