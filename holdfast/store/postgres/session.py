"""The lasting session of a process: it listens for wake-ups and holds the process lock."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from datetime import timedelta

import psycopg
from psycopg.conninfo import make_conninfo

from holdfast.errors import HoldfastError
from holdfast.queue.store import Process
from holdfast.store.payload import dump
from holdfast.telemetry import SESSION_LOST, SESSION_RESTORED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

Connection = psycopg.AsyncConnection[tuple[object, ...]]

# These find out within about ten seconds that a server has vanished.
KEEPALIVES = {
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
LISTEN_FOR = timedelta(seconds=1)
"""Interval between looks whether a process wants to register."""
RECONNECT_GRACE = timedelta(seconds=30)
"""Time after a reconnect in which no other process is declared dead."""
LONGEST_RECONNECT_DELAY = timedelta(seconds=5)


class Session:
    """Connects, and reconnects, while `run` runs. Holds the lock of the registered process."""

    def __init__(self, url: str, ring: Callable[[str], None]) -> None:
        self._conninfo = make_conninfo(url, **KEEPALIVES)
        self._ring = ring
        self._process: Process | None = None
        self._registered: asyncio.Future[None] | None = None
        self._connections = 0
        self._connected_at = 0.0
        self._up = False
        self._holds_lock = False

    async def register(self, process: Process) -> None:
        """Register the process and wait until the session holds its lock."""
        self._process = process
        self._registered = asyncio.get_running_loop().create_future()
        await self._registered

    @property
    def may_declare_deaths(self) -> bool:
        """Say whether this process may declare others dead: not soon after a reconnect."""
        if self._connections <= 1:
            return self._up
        return self._up and time.monotonic() - self._connected_at > RECONNECT_GRACE.total_seconds()

    async def run(self) -> None:
        delay, is_out = 0.1, False
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._conninfo, autocommit=True
                ) as connection:
                    if is_out:
                        log.info(Entry(SESSION_RESTORED))
                    delay, is_out = 0.1, False
                    await self._serve(connection)
            except psycopg.OperationalError as error:
                if not is_out:
                    log.warning(Entry(SESSION_LOST, error=str(error).splitlines()[0]))
                is_out = True
            finally:
                self._up = False
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, LONGEST_RECONNECT_DELAY.total_seconds())

    async def _serve(self, connection: Connection) -> None:
        await connection.execute("listen holdfast")
        self._connections += 1
        self._connected_at = time.monotonic()
        self._up, self._holds_lock = True, False
        # Notifications sent while we were away are lost: wake every queue once.
        self._ring("")
        while True:
            await self._take_lock(connection)
            async for notify in connection.notifies(
                timeout=LISTEN_FOR.total_seconds(), stop_after=1
            ):
                self._ring(notify.payload)

    async def _take_lock(self, connection: Connection) -> None:
        if self._holds_lock or self._process is None or self._registered is None:
            return
        process = self._process
        cursor = await connection.execute(
            "select agent.start_process(%s, %s, %s, %s)",
            (
                process.id,
                process.host,
                process.started_at,
                None if process.serves is None else dump(process.serves),
            ),
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
