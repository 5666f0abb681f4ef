"""The one lasting PostgreSQL session of a process: it hears wake-ups, and its lock is the sign of life."""

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

# A server that vanished without a word is noticed within about ten seconds.
KEEPALIVES = {
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
LISTEN_FOR = timedelta(seconds=1)
RECONNECT_GRACE = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(seconds=5)


class Session:
    """Connects, and connects again, for as long as `run` runs; works for the process it was told of."""

    def __init__(self, url: str, ring: Callable[[str], None]) -> None:
        self._conninfo = make_conninfo(url, **KEEPALIVES)
        self._ring = ring
        self._process: Process | None = None
        self._registered: asyncio.Future[None] | None = None
        self._connections = 0
        self._connected_at = 0.0
        self._up = False
        self._signed = False

    async def register(self, process: Process) -> None:
        """Returns once the sign of life is held."""
        self._process = process
        self._registered = asyncio.get_running_loop().create_future()
        await self._registered

    @property
    def trusted(self) -> bool:
        """Whether what this process sees of others may be believed: not while it was itself cut off just now."""
        if self._connections <= 1:
            return self._up
        return self._up and time.monotonic() - self._connected_at > RECONNECT_GRACE.total_seconds()

    async def run(self) -> None:
        pause, is_out = 0.1, False
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._conninfo, autocommit=True
                ) as connection:
                    if is_out:
                        log.info(Entry(SESSION_RESTORED))
                    pause, is_out = 0.1, False
                    await self._serve(connection)
            except psycopg.OperationalError as error:
                if not is_out:
                    log.warning(Entry(SESSION_LOST, error=str(error).splitlines()[0]))
                is_out = True
            finally:
                self._up = False
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE.total_seconds())

    async def _serve(self, connection: Connection) -> None:
        await connection.execute("listen holdfast")
        self._connections += 1
        self._connected_at = time.monotonic()
        self._up, self._signed = True, False
        # What was said while nobody listened is lost: look at everything once.
        self._ring("")
        while True:
            await self._sign(connection)
            async for notify in connection.notifies(
                timeout=LISTEN_FOR.total_seconds(), stop_after=1
            ):
                self._ring(notify.payload)

    async def _sign(self, connection: Connection) -> None:
        if self._signed or self._process is None or self._registered is None:
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
        self._signed = await cursor.fetchone() == (True,)
        if self._registered.done():
            # The server may not have noticed yet that our last session is gone: its lock still speaks for us.
            return
        if self._signed:
            self._registered.set_result(None)
        else:
            self._registered.set_exception(
                HoldfastError(f"process {process.id} is running already: use another id")
            )
