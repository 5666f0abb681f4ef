"""The one writer of a process: it commits together what waits together, and each request fails for itself."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from holdfast.event import Payload
from holdfast.store.sqlite.activity import note
from holdfast.store.sqlite.connection import begin
from holdfast.store.sqlite.ids import Ids

GROUP_REQUESTS = 200
GROUP_SECONDS = 0.005
QUICK_SECONDS = 0.002
"""What a commit may take for the event loop to wait for the next one."""


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


@dataclass(slots=True, eq=False)
class Group:
    """Requests of one transaction, and what it made ready."""

    requests: list[Request]
    ready: set[str] = field(default_factory=set)
    frames: list[Payload] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """What the writer has done; requests per commit show how well commits are shared."""

    requests: int = 0
    commits: int = 0


class Writer:
    """Does requests on its own connection, in groups of one transaction each. One thread at a time may call it."""

    def __init__(
        self, connection: sqlite3.Connection, now: Callable[[], int], waiting: SimpleQueue[Request | None], tally: Tally
    ) -> None:
        self._connection = connection
        self._now = now
        self._waiting = waiting
        self._tally = tally
        self._ids = Ids()
        self.is_quick = True
        """Whether the disk took little time for the last commit."""

    def serve(self, first: Request, *, has_begun: bool = False) -> Group:
        """Commit a request and what has come meanwhile; each then has a result or an error."""
        group = Group([first])
        try:
            self._commit(group, has_begun)
        except Exception as error:  # noqa: BLE001 - each that waits gets it
            self._roll_back()
            for request in group.requests:
                request.error = error
            group.ready.clear()
        return group

    def _commit(self, group: Group, has_begun: bool) -> None:
        connection = self._connection
        self._begin(has_begun)
        for request in self._taken(group.requests):
            if request.future.cancelled():
                continue
            db = Writing(connection, self._now(), self._ids, group.ready, group.frames)
            if request is group.requests[0]:
                self._attempt_first(db, request)
            else:
                self._attempt(db, request)
        if group.frames:
            note(connection, group.frames, self._now())
        began_at = time.monotonic()
        connection.execute("commit")
        self.is_quick = time.monotonic() - began_at < QUICK_SECONDS
        self._tally.requests += len(group.requests)
        self._tally.commits += 1

    def _taken(self, requests: list[Request]) -> Iterator[Request]:
        """The first of the group and what comes meanwhile; nobody is waited for."""
        until = time.monotonic() + GROUP_SECONDS
        yield requests[0]
        while len(requests) < GROUP_REQUESTS and time.monotonic() < until and not self._waiting.empty():
            request = self._waiting.get()
            if request is None:
                self._waiting.put(None)
                return
            requests.append(request)
            yield request

    def _begin(self, has_begun: bool = False) -> None:
        if not has_begun:
            begin(self._connection)
        self._ids.begin(self._connection)

    def _attempt_first(self, db: Writing, request: Request) -> None:
        """Do the first request of a group: if it fails, there is nothing before it to be kept."""
        try:
            request.result = request.work(db)
        except Exception as error:
            if not self._connection.in_transaction:
                raise
            request.error = error
            db.frames.clear()
            self._roll_back()
            self._begin()

    def _attempt(self, db: Writing, request: Request) -> None:
        """Do one request in a savepoint, so that its failure is its own."""
        connection, told = self._connection, len(db.frames)
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

    def _roll_back(self) -> None:
        self._ids.forget()
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("rollback")
