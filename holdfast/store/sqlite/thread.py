"""The way to the writer: a thread of its own, which need not be woken for a few small requests."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

from holdfast.errors import HoldfastError
from holdfast.store.sqlite.calls import LoopCalls
from holdfast.store.sqlite.connection import begins_at_once, connect, translated
from holdfast.store.sqlite.lock import WriteLock
from holdfast.store.sqlite.writer import Group, Request, Tally, Writer, Writing

T = TypeVar("T")

POLL_SECONDS = 0.02
FEW = 8
"""Small requests that the event loop itself may commit."""


@dataclass(slots=True, eq=False)
class WriterThread:
    """Takes requests from the event loop, has the writer commit them, and tells the loop."""

    path: Path
    loop: asyncio.AbstractEventLoop
    now: Callable[[], int]
    on_ready: Callable[[set[str]], None]
    tally: Tally = field(default_factory=Tally)
    watching: bool = False
    _queue: SimpleQueue[Request | None] = field(default_factory=SimpleQueue)
    _small: list[Request] = field(default_factory=list)
    _writes: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False
    _connection: sqlite3.Connection = field(init=False)
    _writer: Writer = field(init=False)
    _lock: WriteLock = field(init=False)
    _calls: LoopCalls = field(init=False)
    _thread: threading.Thread = field(init=False)

    async def start(self) -> None:
        self._connection = await asyncio.to_thread(connect, self.path)
        # The event loop must not wait for a lock inside of SQLite; the thread waits by asking again.
        self._connection.execute("pragma busy_timeout = 0")
        self._writer = Writer(
            self._connection, self.now, self._queue, self._before_commit, self.tally
        )
        self._lock = WriteLock(self.path)
        self._calls = LoopCalls(self.loop)
        self._thread = threading.Thread(target=self._run, name="holdfast-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Writing], T]) -> asyncio.Future[T]:
        """Have the work done in a transaction; the future is done once it is committed."""
        return self._submitted(Request(work, self.loop.create_future()))

    def submit_making(self, work: Callable[[Writing], Callable[[], T]]) -> asyncio.Future[T]:
        """The same for work that leaves its result to be made by the event loop, while the disk writes."""
        return self._submitted(Request(work, self.loop.create_future(), leaves_making=True))

    def _submitted(self, request: Request) -> asyncio.Future[Any]:
        self._require_open()
        self._queue.put(request)
        assert request.future is not None
        return request.future

    async def do_small(self, work: Callable[[Writing], T]) -> T:
        """The same for little work. What other tasks ask for in the same breath shares its commit, which the first of
        them does here: to wake the thread and be woken by it takes as long as a quick commit."""
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
            raise translated(request.error, self.path)
        return cast(T, request.result)

    def _require_open(self) -> None:
        if self._closed:
            raise HoldfastError("the store is closed")

    def watch(self) -> None:
        """From now on look for the commits of other processes too."""
        self.watching = True
        if not self._closed:
            self._queue.put(Request(lambda db: None, self.loop.create_future()))

    async def close(self) -> None:
        """Finish what was asked, then stop."""
        if self._closed:
            return
        self._closed = True
        requests, self._small = self._small, []
        self._hand_over(requests)
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._calls.close()

    def _take_small(self) -> None:
        requests, self._small = self._small, []
        is_quick = len(requests) <= FEW and self._writer.is_quick
        try:
            group = self._served_here(requests) if is_quick else None
        except (OSError, sqlite3.Error) as error:
            # before anything was written: each that waits gets it
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
        """Nobody waits for it any more; it need not be done unless it is already."""
        if request.future is not None:
            request.future.cancel()
        elif request in self._small:
            self._small.remove(request)

    def _served_here(self, requests: list[Request]) -> Group | None:
        """None if anybody else writes or waits to: the loop waits for the disk, and for nobody."""
        if not self._queue.empty() or not self._writes.acquire(blocking=False):
            return None
        try:
            if not self._lock.try_enter():
                return None
            try:
                return (
                    self._writer.serve(requests, has_begun=True)
                    if begins_at_once(self._connection)
                    else None
                )
            finally:
                self._lock.leave()
        finally:
            self._writes.release()

    def _run(self) -> None:
        foreign = _ForeignCommits(self._connection)
        while True:
            request = self._next()
            if request is None:
                break
            with self._writes:
                group = self._served(request) if isinstance(request, Request) else None
                has_news = self.watching and foreign.seen()
            # Told only now: what is asked for next may be done in the loop again.
            if group is not None:
                self._calls.call(self._complete, group)
            if has_news:
                self._calls.call(self.on_ready, {""})
        self._lock.close()
        self._connection.close()

    def _next(self) -> Request | Empty | None:
        try:
            return self._queue.get(timeout=POLL_SECONDS if self.watching else None)
        except Empty as nothing:
            return nothing

    def _served(self, request: Request) -> Group:
        try:
            with self._lock:
                return self._writer.serve([request])
        except OSError as error:
            request.error = error
            return Group([request])

    def _before_commit(self, group: Group) -> None:
        if threading.current_thread() is self._thread:
            for request in group.requests:
                if request.leaves_making:
                    self._calls.call(request.make)

    def _complete(self, group: Group) -> None:
        for request in group.requests:
            if request.future is None or request.future.done():
                continue
            request.make()
            if request.error is None:
                request.future.set_result(request.result)
            else:
                request.future.set_exception(translated(request.error, self.path))
        if group.ready:
            self.on_ready(group.ready)


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
