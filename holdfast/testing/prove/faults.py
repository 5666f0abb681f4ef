"""Faults of a proof: killed and suspended workers, and a database that goes away."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from random import Random

import psycopg

from holdfast.queue.event import INBOX
from holdfast.queue.store import Store
from holdfast.settings.database import sqlite_path
from holdfast.testing.crash.workers import pid_of
from holdfast.testing.prove.plan import LEASE
from holdfast.testing.prove.workers import Workers

KINDS = ("kill", "kill", "kill", "suspend", "stop", "outage")
PAUSES = (0.1, 0.9)
"""Shortest and longest time between two faults, in seconds."""
SUSPENDED_FOR = LEASE.total_seconds() * 1.5
OUTAGE_SECONDS = 1.0
_END_SESSIONS = """select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()"""


class Faults:
    """Makes the faults of one seed. The seed fixes their order, but not the app's scheduling."""

    def __init__(self, seed: int, url: str, store: Store, workers: Workers) -> None:
        self._rng = Random(seed)
        self._url = url
        self._store = store
        self._workers = workers
        self.counts: Counter[str] = Counter()

    async def run(self, duration: timedelta) -> None:
        """Make one fault after the other."""
        until = time.monotonic() + duration.total_seconds()
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < until:
                await asyncio.sleep(self._rng.uniform(*PAUSES))
                kind = self._rng.choice(KINDS)
                self.counts[kind] += 1
                group.create_task(self._make(kind))

    async def _make(self, kind: str) -> None:
        match kind:
            case "kill":
                self._workers.signal(await self._victim(), signal.SIGKILL)
            case "stop":
                self._workers.signal(await self._victim(), signal.SIGTERM)
            case "suspend":
                pid = await self._victim()
                self._workers.signal(pid, signal.SIGSTOP)
                await asyncio.sleep(SUSPENDED_FOR)
                self._workers.signal(pid, signal.SIGCONT)
            case "outage":
                await asyncio.to_thread(break_database, self._url)

    async def _victim(self) -> int:
        """Return a worker that holds a turn, if there is one."""
        leased = await self._store.leased(INBOX, limit=20)
        busy = {pid_of(event.holder or "") for event in leased}
        pids = self._workers.pids
        candidates = [pid for pid in pids if pid in busy] or pids
        return self._rng.choice(candidates) if candidates else 0


def break_database(url: str) -> None:
    """Cut all sessions of a PostgreSQL database, or keep a SQLite file locked for a while."""
    path = sqlite_path(url)
    if path is None:
        _cut(url)
    else:
        _lock(path)


def _cut(url: str) -> None:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(_END_SESSIONS)


def _lock(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=OUTAGE_SECONDS)) as file:
        try:
            file.execute("begin immediate")
        except sqlite3.OperationalError:
            return
        time.sleep(OUTAGE_SECONDS)
        file.execute("rollback")
