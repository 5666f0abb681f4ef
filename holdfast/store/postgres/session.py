"""The direct session of a process: it holds the process lock, listens, and sends wake-ups."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg

from holdfast.errors import HoldfastError
from holdfast.queue.store import Process
from holdfast.store.payload import dump
from holdfast.store.postgres.outage import OUTAGES, with_timeouts
from holdfast.telemetry import SESSION_LOST, SESSION_RESTORED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

Connection = psycopg.AsyncConnection[tuple[Any, ...]]

REGISTER_EVERY = timedelta(seconds=1)
"""Interval between tries to take the lock of the process."""
FIRST_DELAY = 0.1
LONGEST_DELAY = 0.5
"""Seconds between tries to reconnect, in a fleet of up to 250 processes."""
RECONNECTS_PER_SECOND = 500
"""Reconnects of a whole fleet. In a larger fleet, each process waits longer between tries."""

EXPECT = "select pg_advisory_lock_shared(agent.wait_key(%s))"
EXPECT_NO_MORE = "select pg_advisory_unlock_shared(agent.wait_key(%s))"
NOTICE_ABSENCE = """
select set_config(name, value, false) from (values
    ('tcp_keepalives_idle', '3'), ('tcp_keepalives_interval', '2'), ('tcp_keepalives_count', '3'),
    ('tcp_user_timeout', '10000')) as limits (name, value)
"""
"""Let the server notice within about ten seconds that our machine is gone or cut off.

By default it keeps the session, and with it our locks, for two hours."""
START_PROCESS = "select agent.start_process(%s, %s, %s, %s)"


class Session:
    """Connects, and reconnects, while `run` runs. Holds the lock of the registered process."""

    def __init__(self, url: str, ring: Callable[[str], None]) -> None:
        self._conninfo = with_timeouts(url)
        self._ring = ring
        self._process: Process | None = None
        self._registered: asyncio.Future[None] | None = None
        self._connection: Connection | None = None
        self._connected_at = 0.0
        self._holds_lock = False
        self._attention = asyncio.Event()
        self._loss: psycopg.Error | None = None
        self._expected: Counter[str] = Counter()
        self._locked: set[str] = set()
        self._locking = asyncio.Lock()
        self.connections = 0
        """Number of connections so far. Each one begins without locks."""
        self.processes = 0
        """Size of the fleet, as last seen."""

    async def register(self, process: Process) -> None:
        """Register the process and wait until the session holds its lock."""
        self._process = process
        self._registered = asyncio.get_running_loop().create_future()
        self._attention.set()
        await self._registered

    @property
    def is_up(self) -> bool:
        """Whether the session is connected."""
        return self._connection is not None

    @property
    def reconnected_for(self) -> timedelta:
        """Time since the last reconnect. The first connection does not count."""
        if self.connections <= 1:
            return timedelta.max
        return timedelta(seconds=time.monotonic() - self._connected_at)

    async def fetch(self, statement: str, arguments: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Run one statement on the session. Returns its row, None during a database outage.

        Raises HoldfastError for other errors, for example if the tables are missing."""
        connection = self._connection
        if connection is None:
            return None
        try:
            cursor = await connection.execute(statement.encode(), arguments)
            return await cursor.fetchone()
        except OUTAGES as error:
            if connection is self._connection:
                self._note_loss(error)
            return None
        except psycopg.Error as error:
            reason = str(error).strip().partition("\n")[0]
            raise HoldfastError(f"the database refused: {reason}") from error

    async def expect(self, queue: str, is_expected: bool) -> None:
        """Tell other processes whether to wake this one for a queue. Calls are counted."""
        self._expected[queue] += 1 if is_expected else -1
        await self._lock_expected()

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._conninfo, autocommit=True
                ) as connection:
                    await self._serve(connection, was_out=failures > 0)
            except OUTAGES as error:
                # A connection that served for a while begins the delays anew.
                failures = 0 if self._connection is not None else failures
                failures += 1
                if failures == 1:
                    log.warning(Entry(SESSION_LOST, error=str(error).splitlines()[0]))
            finally:
                self._connection = None
            await asyncio.sleep(self._delay(failures))

    def _delay(self, failures: int) -> float:
        """Return the seconds until the next try, spread at random over a fleet."""
        most = max(LONGEST_DELAY, self.processes / RECONNECTS_PER_SECOND)
        longest: float = min(FIRST_DELAY * 2 ** min(failures, 10), most)
        return longest * random.uniform(0.2, 1.0)

    async def _serve(self, connection: Connection, *, was_out: bool) -> None:
        connection.add_notify_handler(lambda note: self._ring(note.payload))
        await connection.execute(NOTICE_ABSENCE)
        await connection.execute("listen holdfast")
        if was_out:
            log.info(Entry(SESSION_RESTORED))
        self.connections += 1
        self._connected_at = time.monotonic()
        self._holds_lock, self._loss, self._locked = False, None, set()
        self._connection = connection
        with self._reading(connection):
            await self._take_lock(connection)
            await self._lock_expected()
            # Notifications sent while we had no session are lost: wake every queue once.
            self._ring("")
            while self._loss is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(REGISTER_EVERY.total_seconds()):
                        await self._attention.wait()
                self._attention.clear()
                await self._take_lock(connection)
            raise self._loss

    @contextmanager
    def _reading(self, connection: Connection) -> Iterator[None]:
        """Pass notifications on as they arrive, without holding the connection while waiting."""
        loop = asyncio.get_running_loop()
        # The driver watches the socket's own descriptor during its calls, and would end our watch.
        watched = os.dup(connection.fileno())
        loop.add_reader(watched, self._read, connection)
        try:
            yield
        finally:
            loop.remove_reader(watched)
            os.close(watched)

    def _read(self, connection: Connection) -> None:
        if connection.lock.locked():
            # A call is under way, and reads what arrives.
            return
        try:
            connection.pgconn.consume_input()
            while note := connection.pgconn.notifies():
                self._ring(note.extra.decode())
        except psycopg.Error as error:
            self._note_loss(error)

    def _note_loss(self, error: psycopg.Error) -> None:
        self._loss = error
        self._attention.set()

    async def _lock_expected(self) -> None:
        """Hold shared locks for exactly the queues whose wake-ups this process expects."""
        async with self._locking:
            wanted = {queue for queue, times in self._expected.items() if times > 0}
            for queue in wanted - self._locked:
                if await self.fetch(EXPECT, (queue,)) is not None:
                    self._locked.add(queue)
            for queue in self._locked - wanted:
                await self.fetch(EXPECT_NO_MORE, (queue,))
                self._locked.discard(queue)

    async def _take_lock(self, connection: Connection) -> None:
        if self._holds_lock or self._process is None or self._registered is None:
            return
        process = self._process
        serves = None if process.serves is None else dump(process.serves)
        cursor = await connection.execute(
            START_PROCESS, (process.id, process.host, process.started_at, serves)
        )
        self._holds_lock = await cursor.fetchone() == (True,)
        if self._registered.done():
            # The server may not know yet that our last session is gone; its lock still counts.
            return
        if self._holds_lock:
            self._registered.set_result(None)
        else:
            self._registered.set_exception(
                HoldfastError(f"process {process.id} is already running: use another id")
            )
