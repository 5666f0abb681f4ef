"""The one writer of a process, which commits waiting requests together, and transactions."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.store.sqlite.activity import put_activity
from holdfast.store.sqlite.connection import (
    BUSY_SECONDS,
    begin,
    close_cursors,
    connect,
    load,
    translate_error,
    try_begin,
)
from holdfast.store.sqlite.lock import WriteLock
from holdfast.store.sqlite.put import Ids

T = TypeVar("T")

SQL = load()

GROUP_REQUESTS = 200
GROUP_SECONDS = 0.005
QUICK_SECONDS = 0.002
"""Longest commit after which the event loop itself may do the next one."""
FEW = 8
"""Maximum number of small requests that the event loop itself commits together."""
POLL_SECONDS = 0.02


@dataclass(slots=True, eq=False)
class Writing:
    """The open transaction of a request, its time, and the lists of its effects.

    `ready` names the queues to wake. `frames` are for the activity stream: all frames of a commit
    become one row. They are iterated only if the stream is on."""

    connection: sqlite3.Connection
    now: int
    ids: Ids
    ready: set[str]
    frames: list[Iterable[Payload]]


@dataclass(slots=True, eq=False)
class Request:
    """Work for the writer. A task that commits its own small request needs no future."""

    work: Callable[[Writing], Any]
    future: asyncio.Future[Any] | None = None
    result: Any = None
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class Group:
    """The requests of one transaction, and its effects."""

    requests: list[Request]
    ready: set[str] = field(default_factory=set)
    frames: list[Iterable[Payload]] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """Counts of the writer; requests per commit show how well commits are shared."""

    requests: int = 0
    commits: int = 0


class Writer:
    """Runs groups of requests on its connection, one transaction each, one thread at a time."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        now: Callable[[], int],
        waiting: SimpleQueue[Request | None],
        tally: Tally,
        quick_seconds: float,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self._connection = connection
        self._now = now
        self._waiting = waiting
        self._tally = tally
        self._quick_seconds = quick_seconds
        self._busy_seconds = busy_seconds
        self._ids = Ids()
        self.is_quick = True
        """Whether the last commit took little time on the disk."""

    def serve(self, requests: list[Request], *, has_begun: bool = False) -> Group:
        """Commit requests and those that arrive meanwhile; each then has a result or an error."""
        group = Group(requests)
        try:
            if not has_begun:
                begin(self._connection, self._busy_seconds)
            if not self._commit(group, self._take_waiting(group.requests)):
                self._serve_separately(group)
        except Exception as error:  # noqa: BLE001 - every caller gets it
            self._fail(group, error)
        return group

    def _commit(self, group: Group, requests: Iterable[Request]) -> bool:
        """Run and commit the requests. If one of several fails, store nothing and return False."""
        connection = self._connection
        self._ids.begin(connection)
        for request in requests:
            if request.future is not None and request.future.cancelled():
                continue
            try:
                request.result = request.work(
                    Writing(connection, self._now(), self._ids, group.ready, group.frames)
                )
            except Exception:
                # A full disk or an I/O error may have ended the transaction: the group fails.
                if len(group.requests) == 1 or not connection.in_transaction:
                    raise
                return False
        if group.frames:
            put_activity(connection, group.frames, self._now())
        began_at = time.monotonic()
        connection.execute("commit")
        self.is_quick = time.monotonic() - began_at < self._quick_seconds
        self._tally.requests += len(group.requests)
        self._tally.commits += 1
        return True

    def _serve_separately(self, group: Group) -> None:
        """Run each request in a transaction of its own, so that only the faulty ones fail."""
        self._roll_back()
        group.ready.clear()
        for request in group.requests:
            alone = Group([request])
            try:
                begin(self._connection, self._busy_seconds)
                self._commit(alone, [request])
            except Exception as error:  # noqa: BLE001 - its caller gets it
                self._fail(alone, error)
            group.ready |= alone.ready

    def _fail(self, group: Group, error: Exception) -> None:
        close_cursors(error)
        self._roll_back()
        for request in group.requests:
            request.error = error
        group.ready.clear()

    def _take_waiting(self, requests: list[Request]) -> Iterator[Request]:
        """Yield the requests of the group and add those that arrive meanwhile, without waiting."""
        until = time.monotonic() + GROUP_SECONDS
        yield from tuple(requests)
        while (
            len(requests) < GROUP_REQUESTS
            and time.monotonic() < until
            and not self._waiting.empty()
        ):
            request = self._waiting.get()
            if request is None:
                self._waiting.put(None)
                return
            requests.append(request)
            yield request

    def _roll_back(self) -> None:
        self._ids.forget()
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("rollback")


@dataclass(slots=True, eq=False)
class WriterThread:
    """Passes requests of the event loop to the writer in its thread, and the results back.

    A few small requests are committed by the event loop itself if the disk is quick and nobody
    else writes: waking the thread and being woken by it takes as long as such a commit."""

    path: Path
    loop: asyncio.AbstractEventLoop
    now: Callable[[], int]
    on_ready: Callable[[set[str]], None]
    quick_seconds: float = QUICK_SECONDS
    busy_seconds: float = BUSY_SECONDS
    tally: Tally = field(default_factory=Tally)
    watching: bool = False
    _queue: SimpleQueue[Request | None] = field(default_factory=SimpleQueue)
    _small: list[Request] = field(default_factory=list)
    _writes: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False
    _connection: sqlite3.Connection = field(init=False)
    _writer: Writer = field(init=False)
    _lock: WriteLock = field(init=False)
    _thread: threading.Thread = field(init=False)

    async def start(self) -> None:
        self._connection = await asyncio.to_thread(connect, self.path)
        # The event loop must not wait for a lock inside SQLite; the thread retries instead.
        self._connection.execute("pragma busy_timeout = 0")
        self._writer = Writer(
            self._connection,
            self.now,
            self._queue,
            self.tally,
            self.quick_seconds,
            self.busy_seconds,
        )
        self._lock = WriteLock(self.path)
        self._thread = threading.Thread(target=self._run, name="holdfast-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Writing], T]) -> asyncio.Future[T]:
        """Run work in a transaction. The future is done once it is committed."""
        self._require_open()
        future: asyncio.Future[T] = self.loop.create_future()
        self._queue.put(Request(work, future))
        return future

    async def do_small(self, work: Callable[[Writing], T]) -> T:
        """Run a little work in a transaction, shared with small requests of other tasks.

        Requests made in the same iteration of the event loop share a commit: the first task that
        resumes commits them all."""
        self._require_open()
        request, together = Request(work), self._small
        together.append(request)
        try:
            await asyncio.sleep(0)
            if self._small is together:
                self._take_small()
            if request.future is not None:
                await request.future
        except asyncio.CancelledError:
            self._drop(request)
            raise
        if request.error is not None:
            raise translate_error(request.error, self.path)
        return cast(T, request.result)

    def _require_open(self) -> None:
        if self._closed:
            raise HoldfastError("the store is closed")

    def watch(self) -> None:
        """Look for the commits of other processes from now on."""
        self.watching = True
        if not self._closed:
            self._queue.put(Request(lambda db: None, self.loop.create_future()))

    async def close(self) -> None:
        """Finish all requests, then stop."""
        if self._closed:
            return
        self._closed = True
        requests, self._small = self._small, []
        self._hand_over(requests)
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        # The thread's last calls were scheduled before its end: let them run.
        await asyncio.sleep(0)

    def _take_small(self) -> None:
        requests, self._small = self._small, []
        is_quick = len(requests) <= FEW and self._writer.is_quick
        try:
            group = self._serve_here(requests) if is_quick else None
        except (OSError, sqlite3.Error) as error:
            # Nothing was written yet; every caller gets the error.
            for request in requests:
                request.error = error
            return
        if group is None:
            self._hand_over(requests)
        else:
            self._complete(group)

    def _hand_over(self, requests: list[Request]) -> None:
        for request in requests:
            request.future = self.loop.create_future()
            self._queue.put(request)

    def _drop(self, request: Request) -> None:
        """Cancel a request that has no caller any more, unless it is done already."""
        if request.future is not None:
            request.future.cancel()
        elif request in self._small:
            self._small.remove(request)

    def _serve_here(self, requests: list[Request]) -> Group | None:
        """Commit in the event loop, which may wait for the disk but for nobody else.

        Returns None if somebody else writes or waits for it."""
        if not self._queue.empty() or not self._writes.acquire(blocking=False):
            return None
        try:
            if not self._lock.try_acquire():
                return None
            try:
                if not try_begin(self._connection):
                    return None
                return self._writer.serve(requests, has_begun=True)
            finally:
                self._lock.release()
        finally:
            self._writes.release()

    def _run(self) -> None:
        foreign = _ForeignCommits(self._connection)
        while True:
            request = self._next()
            if request is None:
                break
            with self._writes:
                group = self._serve(request) if isinstance(request, Request) else None
                has_news = self.watching and foreign.have_changed()
            # Only after releasing the lock: the loop may then commit the next request itself.
            if group is not None:
                self._call(self._complete, group)
            if has_news:
                self._call(self.on_ready, {""})
        self._lock.close()
        self._connection.close()

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        # A loop that was closed without closing the store takes no more calls.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *args)

    def _next(self) -> Request | Empty | None:
        try:
            return self._queue.get(timeout=POLL_SECONDS if self.watching else None)
        except Empty as nothing:
            return nothing

    def _serve(self, request: Request) -> Group:
        try:
            with self._lock:
                return self._writer.serve([request])
        except OSError as error:
            request.error = error
            return Group([request])

    def _complete(self, group: Group) -> None:
        for request in group.requests:
            if request.future is None or request.future.done():
                continue
            if request.error is None:
                request.future.set_result(request.result)
            else:
                request.future.set_exception(translate_error(request.error, self.path))
        if group.ready:
            self.on_ready(group.ready)


class _ForeignCommits:
    """Notices commits of other connections: they alone change the writer's `data_version`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version = self._read()
        self._read_at = time.monotonic()

    def have_changed(self) -> bool:
        now = time.monotonic()
        if now - self._read_at < POLL_SECONDS / 2:
            return False
        self._read_at = now
        with suppress(sqlite3.Error):
            version = self._read()
            if version != self._version:
                self._version = version
                return True
        return False

    def _read(self) -> int:
        return int(self._connection.execute("pragma data_version").fetchone()[0])


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
