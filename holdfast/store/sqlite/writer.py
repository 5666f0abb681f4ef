"""The one writer of a process: it commits together what waits together, and each request fails for itself."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from holdfast.message import Payload
from holdfast.store.sqlite.activity import note
from holdfast.store.sqlite.connection import begin, close_cursors
from holdfast.store.sqlite.ids import Ids

GROUP_REQUESTS = 200
GROUP_SECONDS = 0.005
QUICK_SECONDS = 0.002
"""What a commit may take for the event loop to wait for the next one."""


@dataclass(slots=True, eq=False)
class Writing:
    """What a piece of work writes with: the open transaction, its moment, and where it notes what became ready.

    `frames` tell of it to whoever watches; those of all that commits together become one row. They are looked at
    only if anybody does."""

    connection: sqlite3.Connection
    now: int
    ids: Ids
    ready: set[str]
    frames: list[Iterable[Payload]]


@dataclass(slots=True, eq=False)
class Request:
    """Work for the writer, and the future that waits for it; none where a task does so itself."""

    work: Callable[[Writing], Any]
    future: asyncio.Future[Any] | None = None
    leaves_making: bool = False
    """Whether the work returns a function that makes the result, to be called while the disk writes."""
    result: Any = None
    error: BaseException | None = None

    def make(self) -> None:
        """Once, by the event loop."""
        if self.leaves_making and self.error is None:
            self.leaves_making = False
            try:
                self.result = self.result()
            except Exception as error:  # noqa: BLE001 - who waits gets it
                self.error = error


@dataclass(slots=True, eq=False)
class Group:
    """Requests of one transaction, and what it made ready."""

    requests: list[Request]
    ready: set[str] = field(default_factory=set)
    frames: list[Iterable[Payload]] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """What the writer has done; requests per commit show how well commits are shared."""

    requests: int = 0
    commits: int = 0


class Writer:
    """Does requests on its own connection, in groups of one transaction each. One thread at a time may call it."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        now: Callable[[], int],
        waiting: SimpleQueue[Request | None],
        before_commit: Callable[[Group], None],
        tally: Tally,
    ) -> None:
        self._connection = connection
        self._now = now
        self._waiting = waiting
        self._before_commit = before_commit
        self._tally = tally
        self._ids = Ids()
        self.is_quick = True
        """Whether the disk took little time for the last commit."""

    def serve(self, requests: list[Request], *, has_begun: bool = False) -> Group:
        """Commit requests and what has come meanwhile; each then has a result or an error."""
        group = Group(requests)
        try:
            if not has_begun:
                begin(self._connection)
            if not self._commit(group, self._taken(group.requests)):
                self._serve_apart(group)
        except Exception as error:  # noqa: BLE001 - each that waits gets it
            self._fail(group, error)
        return group

    def _commit(self, group: Group, requests: Iterable[Request]) -> bool:
        """Whether all is done that could be: no if one of several failed, and nothing is stored."""
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
                # a full disk or an I/O error may have ended the transaction: then the group fails
                if len(group.requests) == 1 or not connection.in_transaction:
                    raise
                return False
        if group.frames:
            note(connection, group.frames, self._now())
        self._before_commit(group)
        began_at = time.monotonic()
        connection.execute("commit")
        self.is_quick = time.monotonic() - began_at < QUICK_SECONDS
        self._tally.requests += len(group.requests)
        self._tally.commits += 1
        return True

    def _serve_apart(self, together: Group) -> None:
        """Each in a transaction of its own, so that the failure of one is its own."""
        self._roll_back()
        together.ready.clear()
        for request in together.requests:
            alone = Group([request])
            try:
                begin(self._connection)
                self._commit(alone, [request])
            except Exception as error:  # noqa: BLE001 - who waits gets it
                self._fail(alone, error)
            together.ready |= alone.ready

    def _fail(self, group: Group, error: Exception) -> None:
        close_cursors(error)
        self._roll_back()
        for request in group.requests:
            request.error = error
        group.ready.clear()

    def _taken(self, requests: list[Request]) -> Iterator[Request]:
        """The first of the group and what comes meanwhile; nobody is waited for."""
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
